"""A process with a broken protocol: python -m tests.chaos.traffic.mutated NAME PROGRAM [OPTIONS].

NAME is a mutant of the simulation (tests/sim/mutants.py), which here changes what a real process
sends; or one of ALTERED; or several names joined by `+`. PROGRAM is worker, author or task.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

from kazoo.exceptions import KazooException

from tests.sim.broken_store import OF_STORE
from tests.sim.mutant import Mutant
from tests.sim.mutants import MUTANTS, OF_RUNS
from tests.sim.world import ROOT
from zkplan.cli import main as zkplan_main
from zkplan.protocol import failpoints
from zkplan.protocol.core import claim as running
from zkplan.protocol.core import end_claims as clearing
from zkplan.protocol.core.commit import Committed
from zkplan.protocol.history import compaction
from zkplan.protocol.layout import Paths, parse_claim
from zkplan.protocol.requests import (
    Check,
    Create,
    Delete,
    Multi,
    Op,
    ReadChildren,
    Reason,
    Refused,
    Step,
)
from zkplan.runtime import ahead as run_ahead
from zkplan.runtime import retention as tidying
from zkplan.runtime.attempt_end import Settler
from zkplan.runtime.job import Job
from zkplan.runtime.maintenance import PlanCheck
from zkplan.runtime.runner import Runner
from zkplan.transport import Transport
from zkplan.values import codec
from zkplan.values import store_maintenance as parts
from zkplan.values.check_blobs import names_in
from zkplan.values.plan_values import Values
from zkplan.values.store import Store

from . import author

#: Whose processes a mutant breaks, where it is not the workers.
BROKEN = {
    "add without identity": "author",
    "wide join that settles all its positions": "author",
    "retry without its witness": "operator",
    "check of blobs without the claims": "operator",
}
#: Longer than from a commit to the next step of its worker.
_LATE_S = 10.0
FENCE = "commit fenced by owner only"
KNOWN = (*MUTANTS, *OF_STORE, *OF_RUNS)
NAMES = tuple(mutant.name for mutant in KNOWN)


def kind_of(ops: Sequence[Op]) -> str:
    """The step of the simulation that a transaction belongs to, as far as its mutants ask."""
    first = ops[0]
    if type(first) is Create and first.path.startswith(f"{ROOT}/workers/"):
        return "clear" if len(ops) > 1 and type(ops[1]) is Delete else "register"
    paths = [op.path for op in ops]
    if any("/arg-" in path and "/add-ids/" not in paths[0] for path in paths):
        return "commit"
    if any(type(op) is Delete and parse_claim(op.path.rpartition("/")[2]) for op in ops):
        made = [op.path for op in ops if type(op) is Create]
        if any("/runnable/" in path for path in made) and not any("/log-" in p for p in made):
            return "hand back"
        return "commit"
    return ""


def break_protocol(mutant: Mutant) -> None:
    """From now on this process sends what the mutant sends."""
    for module, name, instead in mutant.patches:
        _replace(module, name, instead)
    if mutant.name == FENCE:
        _rewrite(_claim_that_stands)
    elif mutant.rewrite is not None:
        rewrite = mutant.rewrite
        world: Any = SimpleNamespace()

        def change(transport: Transport, ops: Sequence[Op]) -> list[Op]:
            fiber: Any = SimpleNamespace(kind=kind_of(ops))
            return [rewrite(world, fiber, op) for op in ops]

        _rewrite(change)


def _never_check() -> None:
    """No background check, which repairs what it finds; correctness must not depend on it."""
    setattr(PlanCheck, "_check", lambda self, now: None)  # noqa: B010 - mypy refuses the assignment


def _never_mark() -> None:
    """Functions start without `started-N`, whatever happened to earlier claims."""

    def unmarked(claim: object) -> Step[bool]:
        yield from ()
        return True

    _replace(running, "mark_started", unmarked)


def _list_claims_nodes(*, first: bool) -> None:
    """The order of the two readings, with a point between them; the protocol lists claims nodes
    first.

    Listed last, a worker that registers in between seems to be gone. That stands for a server that
    lags behind in the second reading, as after a reconnect.
    """

    def orphaned_claims(paths: Paths, watch: bool = False) -> Step[clearing.ClaimsNodes]:
        names: dict[str, set[str]] = {}
        for path in (paths.claims, paths.workers) if first else (paths.workers, paths.claims):
            if names:
                failpoints.reach("vacant.between")
            names[path] = set((yield ReadChildren(path, watch)) or ())
        workers, claims_nodes = names[paths.workers], names[paths.claims]
        living, vacant = sorted(workers & claims_nodes), sorted(claims_nodes - workers)
        return clearing.ClaimsNodes(living, vacant, [])

    _replace(clearing, "orphaned_claims", orphaned_claims)


def _reverse_arguments() -> None:
    """Each function gets its arguments in the wrong order. The simulation has no payloads."""
    real = codec.load

    def load(blob: bytes, values: Sequence[Any] = (), buffers: Sequence[Any] = ()) -> Any:
        return real(blob, values[::-1], buffers)

    _replace(codec, "load", load)


def _full_at_first() -> None:
    """The first transaction with a result is refused, as by a server that is full for a moment."""
    real = Transport.submit
    refused: list[Multi] = []

    def submit(self: Transport, request: Any, done: Any) -> Any:
        if refused or type(request) is not Multi or kind_of(request.ops) != "commit":
            return real(self, request, done)
        refused.append(request)
        answer = Refused(0, Reason.FULL, request.ops[0].path)
        return real(self, Multi([Check(ROOT)]), lambda _, error: done(answer, error))

    Transport.submit = submit  # type: ignore[method-assign]


def _write_late() -> None:
    """What refers to a blob is sent first; the blob follows, if the process lives so long."""
    real = Store.write

    def write(self: Store, folder: str, name: str, chunks: Iterable[Any]) -> None:
        late = threading.Timer(_LATE_S, real, (self, folder, name, [*map(bytes, chunks)]))
        late.daemon = True
        late.start()

    Store.write = write  # type: ignore[method-assign]


def _delete_with_the_first_consumer() -> None:
    """Whoever commits a task deletes the blobs of its arguments."""
    real, store = Settler.committed, Path(os.environ["ZKPLAN_STORE"].removeprefix("file://"))

    def committed(self: Settler, report: Committed) -> None:
        real(self, report)
        for loaded in [part.loaded for part in report.done]:
            for name in [name for sealed in loaded.arguments for name in names_in(sealed)]:
                for blob in store.glob(f"plan-{loaded.claim.plan}-*/{name}"):
                    blob.unlink(missing_ok=True)

    Settler.committed = committed  # type: ignore[method-assign]


def _delete_before_writing() -> None:
    """The znode of a part is deleted first; the part follows, if the process lives so long."""

    def keep_oldest(transport: Transport, values: Values, plan_path: str) -> int:
        store, folder, moved = values.store, values.known_folder_of(plan_path), 0
        while store is not None and (found := transport.run(compaction.oldest(plan_path))):
            reference, blob = parts.part_of(found)
            if not transport.run(compaction.let_go(plan_path, found, reference.name)):
                break
            failpoints.reach("history.between")
            store.write(folder, reference.name, [blob])
            moved += 1
        return moved

    _replace(parts, "keep_oldest", keep_oldest)


def _keep_little_in_the_tree() -> None:
    """The tree holds one merged znode of a history, and workers see to that all the time."""
    compaction.FULL_BYTES, compaction.SEGMENTS_MAX, compaction.BYTES_MAX = 1, 4, 1
    tidying.SEGMENTS, tidying.TIDYING_PERIOD_S, tidying.QUIET_S = 4, 0.02, 0.2


def _write_to_the_store_in_runs() -> None:
    """A task that runs ahead writes its result to the store before anything claims the task."""

    def key(self: Runner, job: Job) -> str:
        return f"{job.claim.task}.{job.claim.n}"

    Runner._key = key  # type: ignore[method-assign]
    _replace(run_ahead, "_is_large", lambda _: False)


def _hold_back_for_long() -> None:
    """Pure tasks run ahead also on a machine that is slow at the moment."""
    run_ahead.HELD_S = run_ahead.HELD_MAX_S = 10.0


#: Mutants of the simulation whose patches change its own store.
OF_REAL_STORE: dict[str, Callable[[], None]] = {
    "reference before its blob": _write_late,
    "blob deleted with its first consumer": _delete_with_the_first_consumer,
    "part of a history deleted before it is written": _delete_before_writing,
    "run that writes to the store": _write_to_the_store_in_runs,
}
#: Changes that are no mutants of the simulation: a second line of defence taken away, a worse
#: server, or a break outside of the protocol.
ALTERED: dict[str, Callable[[], None]] = {
    "no check": _never_check,
    "no mark": _never_mark,
    "claims nodes listed last": partial(_list_claims_nodes, first=False),
    "claims nodes listed first": partial(_list_claims_nodes, first=True),
    "full at first": _full_at_first,
    "arguments in another order": _reverse_arguments,
    "short histories": _keep_little_in_the_tree,
    "patient runs": _hold_back_for_long,
}


def _rewrite(change: Callable[[Transport, Sequence[Op]], list[Op]]) -> None:
    real = Transport.submit

    def submit(self: Transport, request: Any, done: Any) -> Any:
        if type(request) is Multi:
            request = Multi(change(self, request.ops))
        return real(self, request, done)

    Transport.submit = submit  # type: ignore[method-assign]


def _claim_that_stands(transport: Transport, ops: Sequence[Op]) -> list[Op]:
    """A commit deletes the claim of its task that stands now, not the one it was made under."""
    if kind_of(ops) != "commit":
        return list(ops)
    changed: list[Op] = []
    for op in ops:
        claim = parse_claim(op.path.rpartition("/")[2]) if type(op) is Delete else None
        if claim is not None:
            op = Delete(_standing(transport, claim.plan, claim.task, op.path))
        changed.append(op)
    return changed


def _standing(transport: Transport, plan: str, task: str, own: str) -> str:
    claims_nodes, client = f"{ROOT}/claims", transport.client
    while True:
        try:
            if client.exists(own) is not None:
                return own
            for claims_node in client.get_children(claims_nodes):
                for name in client.get_children(f"{claims_nodes}/{claims_node}"):
                    claim = parse_claim(name)
                    if claim is not None and (claim.plan, claim.task) == (plan, task):
                        return f"{claims_nodes}/{claims_node}/{name}"
            return own
        except KazooException:
            continue  # a claims node was cleared, or the session was lost: look again


def _replace(module: ModuleType | type, name: str, instead: object) -> None:
    """Replace it in that module; if the module defines it, everywhere in zkplan."""
    original = getattr(module, name)
    setattr(module, name, instead)
    if getattr(original, "__module__", "") != module.__name__:
        return  # it is defined elsewhere, or a constant
    for known, other in list(sys.modules.items()):
        if known == "zkplan" or known.startswith("zkplan."):
            for attribute, value in list(vars(other).items()):
                if value is original:
                    setattr(other, attribute, instead)


def main(arguments: list[str]) -> NoReturn:
    name, role, *rest = arguments
    for each in name.split("+"):
        if each in ALTERED or each in OF_REAL_STORE:
            (ALTERED | OF_REAL_STORE)[each]()
        else:
            break_protocol(next(mutant for mutant in KNOWN if mutant.name == each))
    if role == "author":
        sys.exit(author.main(rest))
    zkplan_main([role, *rest])


if __name__ == "__main__":
    main(sys.argv[1:])
