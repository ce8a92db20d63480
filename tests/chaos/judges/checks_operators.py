"""The checker for plans that operators paused, cancelled, removed or retried. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from zkplan.protocol.layout import parse_task

from ..actors.workloads import parent_of
from .attempts import (
    attempts_are_counted_right,
    attempts_are_unique,
    miscounted,
    only_losses_and_failures_repeat,
)
from .case import Case, Letter
from .checks import (
    all_is_under_its_own_number,
    an_attempt_adds_with_its_commit,
    arguments_are_exact,
    nothing_runs_before_it_is_ready,
    results_are_fixed_once,
    results_are_the_oracles,
    the_last_claim_commits,
    values_come_from_executions,
)
from .histories import Execution
from .left import strangers, wrongly_counted, wrongly_kept
from .operations import Ending, Operation
from .rest import Rest, every_edge_has_two_ends, every_task_is_in_one_place

_HEARD = {"cancel": {"PlanCancelled"}, "remove": {"PlanCancelled", "PlanNotFound"}}


@dataclass(frozen=True)
class Stopped:
    """A plan that did not come to its own end: an operator ended it, or its author half defined it.

    `standing`: the keys of the tasks that were left.

    `rest` is None of a removed plan, of which nothing is left when it is judged.
    """

    case: Case
    ending: Ending
    operations: list[Operation]
    standing: set[str] = field(default_factory=set)
    #: Those of them that still wait for an edge, or for their author to define them wholly.
    unready: set[str] = field(default_factory=set)
    rest: Rest | None = None

    @property
    def ended(self) -> Iterator[Operation]:
        """The operations that ended it and were told so."""
        for each in self.operations:
            if each.what in ("cancel", "remove") and each.outcome == "done":
                yield each

    @cached_property
    def certain(self) -> set[str]:
        """The tasks that were added for certain."""
        return self.case.certain(self.standing)


def nothing_is_claimed_afterwards(stopped: Stopped) -> Iterator[str]:
    """S9, promise 10: what begins after the answer began under a claim that stood before.

    A claim that is not seen any more was lost where its task has a larger number meanwhile, and
    ended where its task is gone.
    """
    for operation in stopped.ended:
        seen = operation.seen
        if not seen:
            continue
        for execution in stopped.case.everything:
            if operation.what == "cancel" and execution.began > (operation.answered or 0.0):
                yield from _unless_claimed(execution, operation)
            elif execution.began > seen["at"]:
                yield from _unless_held(stopped.case, execution, operation)


def _unless_claimed(execution: Execution, operation: Operation) -> Iterator[str]:
    seen, key = operation.seen, execution.key
    known = max(seen["claims"].get(key, -1), seen["entries"].get(key, 0) - 1)
    if key in seen["standing"] and execution.n > known:
        yield f"{execution} was claimed after its plan was cancelled"


def _unless_held(case: Case, execution: Execution, operation: Operation) -> Iterator[str]:
    number = case.numbers.get(execution.key)
    claimed = [number, execution.n] if number else None
    lost = case.ledger.disturbed(execution.pid, execution.began - case.noticed_s, execution.began)
    if claimed is not None and claimed not in operation.seen["numbers"] and not lost:
        yield f"{execution} began after its plan was removed, without a claim"


def nothing_is_committed_afterwards(stopped: Stopped) -> Iterator[str]:
    """S4: nobody gets a value of an execution that ended after its plan was removed."""
    removed = [each.answered for each in stopped.ended if each.what == "remove" and each.answered]
    if not removed:
        return
    for execution in stopped.case.everything:
        for uid in execution.got:
            maker = stopped.case.by_uid.get(uid)
            if maker is not None and (maker.ended or 0.0) > min(removed):
                yield f"{execution} got a value of {maker}, which ended after the removal"


def every_task_stands_or_ended(stopped: Stopped) -> Iterator[str]:
    """L3: an acknowledged task of a cancelled plan stands, or has finished, or has failed."""
    if stopped.ending == "removed":
        return
    for key in sorted(stopped.certain - stopped.standing):
        runs, fate = stopped.case.plan.executions.get(key, []), stopped.case.fate(key)
        if fate == "finished" and not any(each.returned for each in runs):
            yield f"task {key} is gone and never returned ({len(runs)} executions)"
        elif fate != "finished" and key not in stopped.case.left.dead:
            yield f"task {key} must be {fate}, is gone and has no dead letter"


def adds_are_whole(stopped: Stopped) -> Iterator[str]:
    """S4: what was refused is nowhere; an atomic add is there wholly or not at all."""
    known = {key for key in stopped.case.plan.executions if parent_of(key) is None}
    known |= {key for key in stopped.standing if parent_of(key) is None}
    known |= stopped.case.left.dead.keys()
    for number, batch in stopped.case.plan.batches.items():
        there = [key for key in batch.keys if key in known]
        known.difference_update(batch.keys)
        refused = [key for key in there if key not in batch.possible]
        if refused:
            yield f"add {number} was refused, and its task {refused[0]} is there"
        whole = stopped.ending == "removed" or len(there) in (0, len(batch.keys))
        if batch.state == "begun" and batch.atomic and not whole:
            yield f"of add {number}, which is atomic, {len(there)} of {len(batch.keys)} are there"
    yield from (f"task {key} was never added" for key in known if parent_of(key) is None)


def counts_agree(stopped: Stopped) -> Iterator[str]:
    """S7: the tasks ever added are those that were acknowledged; an open add may count too."""
    if stopped.ending == "cancelled":
        yield from wrongly_counted(stopped.case, stopped.certain)


def it_stays_cancelled(stopped: Stopped) -> Iterator[str]:
    """S7, S9: a cancelled plan is never done, takes no adds, and cannot be resumed."""
    names = stopped.case.left.remains.plan
    if stopped.ending == "cancelled":
        yield from (
            f"`{name}` stands in a cancelled plan"
            for name in ("done", "add-count")
            if name in names
        )
        others = [name for name in names if parse_task(name) is None]
        yield from strangers([name for name in others if name not in ("done", "add-count")], "")
        heard = {line["state"] for line in stopped.case.plan.waited} - {"cancelled"}
        yield from (f"a waiter heard that it is {state}" for state in sorted(heard))
    if any(each.seen.get("resumed") for each in stopped.operations):
        yield "a cancelled plan was resumed"


def what_waits_has_not_run(stopped: Stopped) -> Iterator[str]:
    """S3: a task begins when its last edge has been delivered, and when it is wholly defined."""
    for key in sorted(stopped.unready):
        for execution in stopped.case.plan.executions.get(key, ())[:1]:
            yield f"{execution} ran, and the task still waits for an edge or its author"


def kept_is_what_is_to_be_kept(stopped: Stopped) -> Iterator[str]:
    """S4: as of a plan that is done."""
    if stopped.ending == "cancelled":
        yield from wrongly_kept(stopped.case, stopped.certain, stopped.standing)


def it_rests_whole(stopped: Stopped) -> Iterator[str]:
    """S1, S2: of a cancelled plan at rest."""
    if stopped.rest is not None:
        yield from every_task_is_in_one_place(stopped.rest)
        yield from every_edge_has_two_ends(stopped.rest)


SHARED: tuple[tuple[str, Callable[[Case], Iterator[str]]], ...] = (
    ("S4", results_are_fixed_once),
    ("S4", values_come_from_executions),
    ("S5", the_last_claim_commits),
    ("S8", attempts_are_unique),
    ("S3", arguments_are_exact),
    ("S4", all_is_under_its_own_number),
    ("S4", results_are_the_oracles),
    ("S4", an_attempt_adds_with_its_commit),
    ("S8", only_losses_and_failures_repeat),
    ("S8", attempts_are_counted_right),
    ("S9", nothing_runs_before_it_is_ready),
)
OWN: tuple[tuple[str, Callable[[Stopped], Iterator[str]]], ...] = (
    ("S9", nothing_is_claimed_afterwards),
    ("S4", nothing_is_committed_afterwards),
    ("L3", every_task_stands_or_ended),
    ("S4", adds_are_whole),
    ("S7", counts_agree),
    ("S9", it_stays_cancelled),
    ("S3", what_waits_has_not_run),
    ("S4", kept_is_what_is_to_be_kept),
    ("S1, S2", it_rests_whole),
)


def violations_of_stopped(stopped: Stopped) -> list[str]:
    """Every broken promise of a plan that was cancelled or removed."""
    workload = stopped.case.plan.workload
    name = f"{workload.name} ({workload.shape}, {stopped.ending})"
    shared = [(number, check.__name__, check(stopped.case)) for number, check in SHARED]
    own = [(number, check.__name__, check(stopped)) for number, check in OWN]
    return [
        f"{number} {check.replace('_', ' ')}: {name}: {found}"
        for number, check, all_found in [*shared, *own]
        for found in all_found
    ]


# ---- of every plan that an operator has touched


def violations_of_operations(case: Case, operations: list[Operation]) -> list[str]:
    """What operators were told and saw, whatever became of the plan."""
    name = f"{case.plan.workload.name} ({case.plan.workload.shape})"
    return [
        f"{number} {check.__name__.replace('_', ' ')}: {name}: {found}"
        for number, check in (
            ("S9", no_claim_is_late),
            ("S9", nothing_is_claimed_while_paused),
            ("S9", waiters_hear_of_it),
            ("S8", a_death_is_retried_once),
            ("S8", a_retry_gives_all_attempts),
        )
        for found in check(case, operations)
    ]


def no_claim_is_late(case: Case, operations: list[Operation]) -> Iterator[str]:
    """S9: no claim was made after the transaction that paused or cancelled the plan."""
    for operation in operations:
        when = "before the resume" if operation.what == "resume" else f"after the {operation.what}"
        for claim in operation.seen.get("late", ()):
            yield f"{claim} was made {when}, while nothing may be, by the server's own order"


def nothing_is_claimed_while_paused(case: Case, operations: list[Operation]) -> Iterator[str]:
    """S9, promise 10: between the answer to a pause and the next resume nothing is claimed.

    Of the whole time, and also where the plan came to its end in it. A claim is younger than the
    end of what gave its task a value, or added it.
    """
    for pause in operations:
        if pause.what != "pause" or pause.outcome != "done" or pause.answered is None:
            continue
        resumes = (
            each.begun
            for each in operations
            if each.what == "resume" and (each.answered or float("inf")) > pause.begun
        )
        until = min(resumes, default=float("inf"))
        for execution in case.everything:
            if not pause.answered < execution.began < until:
                continue
            makers = [case.by_uid.get(uid) for uid in (*execution.got, execution.by)]
            late = [each for each in makers if each and (each.ended or 0.0) > pause.answered]
            if late:
                yield f"{execution} began in a paused plan, after {late[0]} had ended in it"


def waiters_hear_of_it(case: Case, operations: list[Operation]) -> Iterator[str]:
    """Who waits for a plan that is cancelled or removed is told so."""
    for operation in operations:
        if operation.what not in _HEARD or operation.outcome != "done" or not operation.heard:
            continue
        allowed = set(_HEARD[operation.what])
        if _had_no_server(case, operation):
            allowed.add("ZooKeeperUnavailable")
        if case.plan.workload.shape in ("failing", "held"):
            allowed.add("PlanFailed")
        if operation.what == "remove":
            allowed |= {"done", "PlanFailed"}  # it may have been done before
        if any(each.what == "remove" for each in operations):
            allowed.add("PlanNotFound")
        if operation.heard not in allowed:
            yield f"after {operation.what} a waiter heard {operation.heard}"


def _had_no_server(case: Case, operation: Operation) -> bool:
    """Whether a fault of the servers may have kept them from whoever waited meanwhile."""
    until = operation.heard_at or operation.answered or operation.begun
    return case.ledger.disturbed(0, operation.begun - case.noticed_s, until)


def a_death_is_retried_once(case: Case, operations: list[Operation]) -> Iterator[str]:
    """S8: of several who retry one death one is told that it did, unless an answer was lost."""
    done: defaultdict[tuple[str, int], list[Operation]] = defaultdict(list)
    for each in operations:
        if each.what == "retry" and each.outcome == "done":
            done[each.facts["key"], each.facts["n"]].append(each)
    for (key, n), several in done.items():
        lost = any(case.ledger.disturbed(0, each.begun, each.answered or 0.0) for each in several)
        if len(several) > 1 and not lost:
            yield f"attempt {n} of task {key}, its last, was retried {len(several)} times"


def a_retry_gives_all_attempts(case: Case, operations: list[Operation]) -> Iterator[str]:
    """S8: between two deaths of a task it has all its attempts, as always with growing numbers."""
    deaths: defaultdict[str, dict[Letter, float]] = defaultdict(dict)
    for each in operations:
        # Where failures travel, what a dead letter tells of is gone, and a retry of it is refused.
        if each.what == "retry" and each.may_have_happened:
            letter = Letter(each.facts["n"], each.facts["a"])
            deaths[each.facts["key"]].setdefault(letter, each.begun)
    for key, known in deaths.items():
        last = case.left.dead.get(key)
        if last is not None:
            known.setdefault(last, float("inf"))
        yield from miscounted(case, key, known)
