"""Deliberately broken variants of the protocol: the simulation must find each of them.

Most change an operation on its way to the server, so that the rest of the protocol stays the real
one; the others change an answer on its way back, or leave a step out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkplan.protocol.core import add as adding
from zkplan.protocol.core import commit as committing
from zkplan.protocol.core import end_claims as clearing
from zkplan.protocol.core import load as loading
from zkplan.protocol.core import plan_life as control
from zkplan.protocol.core import publish, wide_delivery
from zkplan.protocol.core import repeatable_adds as wide_join
from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.core.publish import Published
from zkplan.protocol.features import keys, retry
from zkplan.protocol.features import remove_plan as removal
from zkplan.protocol.layout import DELIVERED, Entry, parse_claim, parse_entry
from zkplan.protocol.records import UNCHANGED
from zkplan.protocol.requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Op,
    ReadChildren,
    ReadMany,
    Refused,
    SetData,
)
from zkplan.protocol.transactions import Allowance

from . import (
    broken_bounds,
    broken_gates,
    broken_keys,
    broken_leases,
    broken_limits,
    broken_queues,
    broken_runs,
    gates,
    mixes,
    runs,
)
from .broken_runs import Answers
from .mutant import Mutant, only, without
from .network import Fiber
from .shares import SHARES
from .world import ROOT, World

#: Where entries of active plans lie, and what puts back one that somebody deleted by hand.
_INDEX, _FINDS = f"{ROOT}/active/", ("index", "check")
_WORKERS = f"{ROOT}/workers/"


# Operations changed on their way.


def _fence_by_owner_only(world: World, fiber: Fiber, op: Op) -> Op:
    """The commit deletes whichever claim of its task stands, not the one it was made under."""
    if fiber.kind != "commit" or type(op) is not Delete:
        return op
    claim = parse_claim(op.path.rpartition("/")[2])
    if claim is None:
        return op
    task = world.auditor.tasks[f"{ROOT}/plan-{claim.plan}/task-{claim.task}"]
    standing = [place for place in task.places if "/claims/" in place]
    return Delete(standing[0]) if standing else op


def _no_compare_and_set(world: World, fiber: Fiber, op: Op) -> Op:
    of_task = "/task-" in op.path and op.path.endswith("/ready")
    return SetData(op.path, op.data) if type(op) is SetData and op.version > 0 and of_task else op


def _release_keeps_n(world: World, fiber: Fiber, op: Op) -> Op:
    if fiber.kind not in ("clear", "hand back") or type(op) is not Create:
        return op
    head, _, name = op.path.rpartition("/")
    entry = parse_entry(name)
    if entry is None or not entry.n:
        return op
    return Create(f"{head}/{Entry(entry.rank, entry.task, entry.n - 1, entry.a).name}")


def _done_without_adds(world: World, fiber: Fiber, op: Op) -> Op:
    return Delete(op.path) if type(op) is Delete and op.path.endswith("/add-count") else op


def _is_index_entry(op: Op, kind: type) -> bool:
    return type(op) is kind and op.path.startswith(_INDEX)


def _index_unnoticed(world: World, fiber: Fiber, op: Op) -> Op:
    """The entry comes without a new version of `ready`, for who has seen neither."""
    of_plan = op.path.endswith("/ready") and "/task-" not in op.path
    if type(op) is SetData and of_plan and fiber.kind in _FINDS:
        return Check(op.path, op.version)
    return op


def _share_not_compared(world: World, fiber: Fiber, op: Op) -> Op:
    return SetData(op.path, op.data) if fiber.kind == SHARES and type(op) is SetData else op


def _dep_that_names_the_next(world: World, fiber: Fiber, op: Op) -> Op:
    if type(op) is Create and "/dep-" in op.path and op.data:
        return op._replace(data=b"%010d" % (int(op.data) + 1))
    return op


# Steps changed.


def _publish_nothing(*_: object) -> Answers:
    yield from ()
    return Published([])


def _nothing_is_complete(*_: object) -> Answers:
    yield from ()
    return []


_real_load = loading.load
_real_commit = committing.commit
_real_read_finished = adding.read_finished
_real_added = adding.added_ops
_real_fix = wide_delivery._fix_result


def answered(step: Answers, change: Callable[[Any, Any], Any]) -> Answers:
    """The step, which is given `change(request, answer)` instead of each answer."""
    answer = None
    while True:
        try:
            request = step.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = change(request, (yield request))


def _load_without_claim(claims: list[Any], read: Any = None) -> Answers:
    """The list of the claims node is not looked at: every claim counts as standing."""

    def all_stand(request: Any, answer: Any) -> Any:
        if type(request) is ReadMany:
            for index, read in enumerate(request.reads):
                if type(read) is ReadChildren and "/claims/" in read.path:
                    answer[index] = [claim.name for claim in claims]
        return answer

    return answered(_real_load(claims), all_stand)


def _repeat_is_fenced(*arguments: Any) -> Answers:
    """A refused repetition counts as refused: the worker's own pending record is not looked for."""

    def as_first(_request: Any, answer: Any) -> Any:
        return answer._replace(repeated=False) if type(answer) in (Refused, Applied) else answer

    return answered(_real_commit(*arguments), as_first)


def _forget_what_has_no_room(*arguments: Any) -> Answers:
    """A result that a full server refuses is forgotten, while its claim stands."""
    report = yield from _real_commit(*arguments)
    report.no_room.clear()
    return report


def _read_all_positions(plan_path: str, task: Any, _among: object = None) -> Answers:
    """A step of a wide join asks again for what an earlier step has arranged."""
    return _real_read_finished(plan_path, task)


def _mark_with_the_result(part: Part) -> Answers:
    """`delivered` stands as soon as the result does, whether anybody takes it or not."""
    step, answer, marked = _real_fix(part), None, False
    while True:
        try:
            request = step.send(answer)
        except StopIteration as stop:
            part.loaded.others += [DELIVERED] * marked
            return stop.value
        if type(request) is Multi:
            mark = Create(f"{part.loaded.claim.task_path}/{DELIVERED}")
            request, marked = Multi([*request.ops, mark]), True
        answer = yield request


def _lend_nothing(plan_path: str, tasks: Any, first: int, *_: object) -> list[Op]:
    """Added tasks wait for a task that ends in the same transaction."""
    return _real_added(plan_path, tasks, first, {})


MUTANTS = (
    Mutant("commit fenced by owner only", _fence_by_owner_only, mix=mixes.expiring),
    Mutant(
        "publish left out",
        patches=(
            (publish, "publish", _publish_nothing),
            (wide_delivery, "publish", _publish_nothing),
        ),
    ),
    Mutant("publish without compare-and-set", _no_compare_and_set),
    Mutant("no pending record", without(lambda fiber, op: "/pending-" in op.path)),
    Mutant(
        "pending record cleared without publishing",
        patches=((clearing, "still_complete", _nothing_is_complete),),
        mix=mixes.left_pending,
    ),
    Mutant(
        "claim without check of workers/ID",
        without(lambda fiber, op: type(op) is Check and op.path.startswith(_WORKERS)),
        mix=mixes.expiring_while_slow,
    ),
    Mutant(
        "claim without check of the plan's ready",
        without(lambda fiber, op: type(op) is Check and op.path.endswith("/ready")),
    ),
    Mutant("release keeps N", _release_keeps_n),
    Mutant(
        "clearer without guard",
        without(lambda fiber, op: fiber.kind == "clear" and op.path.startswith(_WORKERS)),
    ),
    Mutant(
        "load without looking for the claim afterwards",
        patches=((loading, "load", _load_without_claim),),
    ),
    Mutant("add without identity", without(lambda fiber, op: "/add-ids/" in op.path)),
    Mutant(
        "refused repetition taken as fenced", patches=((committing, "commit", _repeat_is_fenced),)
    ),
    Mutant(
        "result without room forgotten",
        patches=((committing, "commit", _forget_what_has_no_room),),
    ),
    Mutant(
        "delivery without argument",
        without(lambda fiber, op: fiber.kind == "commit" and "/arg-" in op.path),
    ),
    Mutant(
        "delivery that leaves the dep",
        without(lambda fiber, op: fiber.kind == "commit" and "/dep-" in op.path),
    ),
    Mutant("done without the version of adds", _done_without_adds),
    Mutant(
        "retry without its witness",
        without(lambda fiber, op: "/retry-" in op.path),
        mix=mixes.retried,
    ),
    Mutant(
        "wide join that settles all its positions",
        patches=((wide_join, "read_finished", _read_all_positions),),
        mix=mixes.wide_joins,
    ),
    Mutant(
        "edge on a task of the same commit", patches=((committing, "added_ops", _lend_nothing),)
    ),
    Mutant(
        "wide delivery without its mark",
        without(lambda fiber, op: op.path.endswith(f"/{DELIVERED}")),
    ),
    Mutant(
        "mark made with the result",
        patches=((wide_delivery, "_fix_result", _mark_with_the_result),),
    ),
)
OF_RUNS = only(
    lambda world: world.pure,
    Mutant("run without the fence", patches=((committing, "_Commit", broken_runs.Unfenced),)),
    Mutant(
        "run without check of the plan",
        patches=((committing, "_Commit", broken_runs.Unguarded),),
        mix=mixes.paused_meanwhile,
    ),
    Mutant(
        "run that takes new edges with it",
        patches=((committing, "_sort_out", broken_runs.new_edges_go_too),),
        mix=mixes.grown_meanwhile,
    ),
    Mutant(
        "fenced run that goes on", patches=((committing, "_sort_out", broken_runs.fenced_goes_on),)
    ),
    Mutant(
        "run that writes to the store",
        patches=((runs, "outcome_ahead", broken_runs.write_ahead),),
        needs=lambda world: world.has_store,
        mix=mixes.late_copies,
    ),
)
OF_QUEUES = only(
    lambda world: world.queues is not None,
    Mutant("queue lost in a retry", broken_queues.to_default_queue("fail", "retry")),
    Mutant("queue lost in a clearing", broken_queues.to_default_queue("clear")),
    Mutant("queue lost in a hand-back", broken_queues.to_default_queue("hand back")),
    Mutant("queue lost on an edge", broken_queues.edge_without_queue),
    Mutant(
        "dependent claimed whatever its queue",
        patches=((Allowance, "takes", broken_queues.takes_any),),
    ),
)
OF_GATES = only(
    lambda world: world.gated,
    Mutant("gate opened without a check of its znode", without(broken_gates.is_check)),
    Mutant("gate opened at any version", broken_gates.at_any_version),
    Mutant("gate opened twice", without(broken_gates.leaves_the_entry)),
    Mutant(
        "gate retried as any task",
        patches=((retry, "wait_again_ops", broken_gates.run_at_once),),
    ),
    Mutant(
        "gates made when they are missed",
        patches=(
            (gates, "made_before", broken_gates.not_before),
            (broken_gates.CHAIN, "explain", broken_gates.when_missed),
        ),
    ),
)
#: Found here alone: those of runs, of queues, of limits and of gates, and those of which real
#: processes take no harm: their scan mends what the index lacks, an entry too many costs a look, a
#: `dep-` is for people.
SIMULATION_ONLY = (
    *OF_RUNS,
    *OF_QUEUES,
    *OF_GATES,
    *broken_limits.OF_LIMITS,
    *broken_leases.OF_LEASES,
    Mutant("dep- that names another task", _dep_that_names_the_next),
    Mutant(
        "ready without its index entry",
        without(lambda fiber, op: _is_index_entry(op, Create) and fiber.kind not in _FINDS),
    ),
    Mutant(
        "end that leaves the index entry", without(lambda fiber, op: _is_index_entry(op, Delete))
    ),
    *only(
        lambda world: any(plan.loses_entry for plan in world.plans),
        Mutant(
            "index entry for what has ended",
            without(
                lambda fiber, op: fiber.kind == "index" and op.path.endswith(("/ready", "/done"))
            ),
        ),
        Mutant("index entry without a new version of ready", _index_unnoticed),
    ),
    Mutant(
        "key made after its plan", patches=((keys, "create_plan_with", broken_keys.after_the_plan),)
    ),
    Mutant("key moved without compare", broken_keys.not_compared),
    Mutant(
        "removal that leaves the key",
        without(lambda fiber, op: type(op) is Delete and op.path.startswith(f"{ROOT}/keys/")),
    ),
    Mutant("next time moved without compare", broken_keys.next_not_compared),
    Mutant(
        "removal that deletes results early",
        patches=((removal, "delete_all", broken_keys.holds_nothing),),
    ),
    Mutant("share changed without compare", _share_not_compared),
    Mutant(
        "pause that forgets the share",
        patches=((control, "share_from_bytes", lambda data: UNCHANGED),),
    ),
    *broken_keys.OF_AUTHORS,
    *broken_bounds.MUTANTS,
    Mutant("task without its key", without(lambda fiber, op: "/add-ids/key-" in op.path)),
)
