"""The checks of plans that operators paused, cancelled, removed or retried. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property

from zkplan.protocol.layout import parse_task
from zkplan.stress.validate.remains import strangers

from ..actors.workloads import parent_of
from .attempts import miscounted
from .evidence import DeadLetter, PlanEvidence
from .operations import Ending, Operation
from .plan_checks import OF_EVERY_PLAN, told
from .plans import Execution
from .remains import wrongly_counted, wrongly_kept
from .snapshot import PlanSnapshot, every_edge_has_two_ends, every_task_is_in_one_place

_HEARD = {"cancel": {"PlanCancelled"}, "remove": {"PlanCancelled", "PlanNotFound"}}


@dataclass(frozen=True)
class StoppedPlan:
    """A plan that did not come to its own end: an operator ended it, or its author half defined it.

    `standing`: the keys of the tasks that were left. Those of them that are `unready` still wait
    for an edge, or for their author to define them wholly. `snapshot` is None of a removed plan, of
    which nothing is left when it is checked.
    """

    evidence: PlanEvidence
    ending: Ending
    standing: Set[str] = frozenset()
    unready: Set[str] = frozenset()
    snapshot: PlanSnapshot | None = None

    @property
    def ended(self) -> Iterator[Operation]:
        """The operations that ended it and were told so."""
        for each in self.evidence.operations:
            if each.what in ("cancel", "remove") and each.outcome == "done":
                yield each

    @cached_property
    def certain(self) -> Set[str]:
        """The tasks that were added for certain."""
        return self.evidence.certain(self.standing)


def nothing_is_claimed_afterwards(plan: StoppedPlan) -> Iterator[str]:
    """S9, promise 10: what begins after the answer began under a claim that stood before.

    A claim that is not seen any more was lost where its task has a larger number meanwhile, and
    ended where its task is gone.
    """
    for operation in plan.ended:
        seen = operation.seen
        if not seen:
            continue
        for execution in plan.evidence.everything:
            if operation.what == "cancel" and execution.began > (operation.answered or 0.0):
                yield from _unless_claimed(execution, operation)
            elif execution.began > seen["at"]:
                yield from _unless_held(plan.evidence, execution, operation)


def _unless_claimed(execution: Execution, operation: Operation) -> Iterator[str]:
    seen, key = operation.seen, execution.key
    known = max(seen["claims"].get(key, -1), seen["entries"].get(key, 0) - 1)
    if key in seen["standing"] and execution.n > known:
        yield f"{execution} was claimed after its plan was cancelled"


def _unless_held(
    evidence: PlanEvidence, execution: Execution, operation: Operation
) -> Iterator[str]:
    number = evidence.numbers.get(execution.key)
    claimed = [number, execution.n] if number else None
    before = execution.began - evidence.noticed_s
    lost = evidence.history.disturbed(execution.pid, before, execution.began)
    if claimed is not None and claimed not in operation.seen["numbers"] and not lost:
        yield f"{execution} began after its plan was removed, without a claim"


def nothing_is_committed_afterwards(plan: StoppedPlan) -> Iterator[str]:
    """S4: nobody gets a value of an execution that ended after its plan was removed."""
    removed = [each.answered for each in plan.ended if each.what == "remove" and each.answered]
    for execution in plan.evidence.everything if removed else ():
        for uid in execution.got:
            maker = plan.evidence.by_uid.get(uid)
            if maker is not None and (maker.ended or 0.0) > min(removed):
                yield f"{execution} got a value of {maker}, which ended after the removal"


def every_task_stands_or_ended(plan: StoppedPlan) -> Iterator[str]:
    """L3: an acknowledged task of a cancelled plan stands, or has finished, or has failed."""
    if plan.ending == "removed":
        return
    for key in sorted(plan.certain - plan.standing):
        runs, fate = plan.evidence.executions.get(key, ()), plan.evidence.fate(key)
        if fate == "finished" and not any(each.returned for each in runs):
            yield f"task {key} is gone and never returned ({len(runs)} executions)"
        elif fate != "finished" and key not in plan.evidence.dead:
            yield f"task {key} must be {fate}, is gone and has no dead letter"


def adds_are_whole(plan: StoppedPlan) -> Iterator[str]:
    """S4: what was refused is nowhere; an atomic add is there wholly or not at all."""
    evidence = plan.evidence
    known = {key for key in {*evidence.executions, *plan.standing} if parent_of(key) is None}
    known |= evidence.dead
    for number, batch in evidence.plan.batches.items():
        there = [key for key in batch.keys if key in known]
        known.difference_update(batch.keys)
        refused = [key for key in there if key not in batch.possible]
        if refused:
            yield f"add {number} was refused, and its task {refused[0]} is there"
        whole = plan.ending == "removed" or len(there) in (0, len(batch.keys))
        if batch.state == "begun" and batch.atomic and not whole:
            yield f"of add {number}, which is atomic, {len(there)} of {len(batch.keys)} are there"
    yield from (f"task {key} was never added" for key in known if parent_of(key) is None)


def counts_agree(plan: StoppedPlan) -> Iterator[str]:
    """S7: the tasks ever added are those that were acknowledged; an open add may count too."""
    if plan.ending == "cancelled":
        yield from wrongly_counted(plan.evidence, plan.certain)


def it_stays_cancelled(plan: StoppedPlan) -> Iterator[str]:
    """S7, S9: a cancelled plan is never done, takes no adds, and cannot be resumed."""
    if plan.ending == "cancelled":
        names = [name for name in plan.evidence.remains.plan if parse_task(name) is None]
        forbidden = [name for name in ("done", "add-count") if name in names]
        yield from (f"`{name}` stands in a cancelled plan" for name in forbidden)
        yield from strangers([name for name in names if name not in forbidden], "")
        heard = {line["state"] for line in plan.evidence.plan.waited} - {"cancelled"}
        yield from (f"a waiter heard that it is {state}" for state in sorted(heard))
    if any(each.seen.get("resumed") for each in plan.evidence.operations):
        yield "a cancelled plan was resumed"


def what_waits_has_not_run(plan: StoppedPlan) -> Iterator[str]:
    """S3: a task begins when its last edge has been delivered, and when it is wholly defined."""
    for key in sorted(plan.unready):
        for execution in plan.evidence.executions.get(key, ())[:1]:
            yield f"{execution} ran, and the task still waits for an edge or its author"


def kept_is_what_is_to_be_kept(plan: StoppedPlan) -> Iterator[str]:
    """S4: as of a plan that is done."""
    if plan.ending == "cancelled":
        yield from wrongly_kept(plan.evidence, plan.certain, plan.standing)


def it_rests_whole(plan: StoppedPlan) -> Iterator[str]:
    """S1, S2: of a cancelled plan at rest."""
    if plan.snapshot is not None:
        yield from every_task_is_in_one_place(plan.snapshot)
        yield from every_edge_has_two_ends(plan.snapshot)


OF_STOPPED: tuple[tuple[str, Callable[[StoppedPlan], Iterator[str]]], ...] = (
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


def violations_of_stopped(plan: StoppedPlan) -> list[str]:
    """Every broken promise of a plan that was cancelled or removed."""
    name = plan.evidence.name.replace(")", f", {plan.ending})")
    of_every = ((number, check, check(plan.evidence)) for number, check in OF_EVERY_PLAN)
    of_stopped = ((number, check, check(plan)) for number, check in OF_STOPPED)
    return [
        found
        for number, check, all_found in (*of_every, *of_stopped)
        for found in told(number, check.__name__, name, all_found)
    ]


# ---- of every plan that an operator has touched


def no_claim_is_late(evidence: PlanEvidence) -> Iterator[str]:
    """S9: no claim was made after the transaction that paused or cancelled the plan."""
    for operation in evidence.operations:
        when = "before the resume" if operation.what == "resume" else f"after the {operation.what}"
        for claim in operation.seen.get("late", ()):
            yield f"{claim} was made {when}, while nothing may be, by the server's own order"


def nothing_is_claimed_while_paused(evidence: PlanEvidence) -> Iterator[str]:
    """S9, promise 10: between the answer to a pause and the next resume nothing is claimed.

    Of the whole time, and also where the plan came to its end in it. A claim is younger than the
    end of what gave its task a value, or added it.
    """
    for pause in evidence.operations:
        if pause.what != "pause" or pause.outcome != "done" or pause.answered is None:
            continue
        resumes = (
            each.begun
            for each in evidence.operations
            if each.what == "resume" and (each.answered or float("inf")) > pause.begun
        )
        until = min(resumes, default=float("inf"))
        for execution in evidence.everything:
            if not pause.answered < execution.began < until:
                continue
            makers = [evidence.by_uid.get(uid) for uid in (*execution.got, execution.by)]
            late = [each for each in makers if each and (each.ended or 0.0) > pause.answered]
            if late:
                yield f"{execution} began in a paused plan, after {late[0]} had ended in it"


def waiters_hear_of_it(evidence: PlanEvidence) -> Iterator[str]:
    """Who waits for a plan that is cancelled or removed is told so.

    Unless a fault of the servers may have kept them from whoever waited.
    """
    operations = evidence.operations
    for operation in operations:
        if operation.what not in _HEARD or operation.outcome != "done" or not operation.heard:
            continue
        allowed = set(_HEARD[operation.what])
        until = operation.heard_at or operation.answered or operation.begun
        if evidence.history.disturbed(0, operation.begun - evidence.noticed_s, until):
            allowed.add("ZooKeeperUnavailable")
        if evidence.plan.workload.shape in ("failing", "held"):
            allowed.add("PlanFailed")
        if operation.what == "remove":
            allowed |= {"done", "PlanFailed"}  # it may have been done before
        if any(each.what == "remove" for each in operations):
            allowed.add("PlanNotFound")
        if operation.heard not in allowed:
            yield f"after {operation.what} a waiter heard {operation.heard}"


def a_death_is_retried_once(evidence: PlanEvidence) -> Iterator[str]:
    """S8: of several who retry one death one is told that it did, unless an answer was lost."""
    disturbed = evidence.history.disturbed
    done: defaultdict[tuple[str, int], list[Operation]] = defaultdict(list)
    for each in evidence.operations:
        if each.what == "retry" and each.outcome == "done":
            done[each.facts["key"], each.facts["n"]].append(each)
    for (key, n), several in done.items():
        lost = any(disturbed(0, each.begun, each.answered or 0.0) for each in several)
        if len(several) > 1 and not lost:
            yield f"attempt {n} of task {key}, its last, was retried {len(several)} times"


def a_retry_gives_all_attempts(evidence: PlanEvidence) -> Iterator[str]:
    """S8: between two deaths of a task it has all its attempts, as always with growing numbers."""
    deaths: defaultdict[str, dict[DeadLetter, float]] = defaultdict(dict)
    for each in evidence.operations:
        # Where failures travel, what a dead letter tells of is gone, and a retry of it is refused.
        if each.what == "retry" and each.may_have_happened:
            letter = DeadLetter(each.facts["n"], each.facts["a"])
            deaths[each.facts["key"]].setdefault(letter, each.begun)
    for key, known in deaths.items():
        last = evidence.remains.letters.get(key)
        if last is not None:
            known.setdefault(last, float("inf"))
        yield from miscounted(evidence, key, known)


OF_OPERATIONS = (
    ("S9", no_claim_is_late),
    ("S9", nothing_is_claimed_while_paused),
    ("S9", waiters_hear_of_it),
    ("S8", a_death_is_retried_once),
    ("S8", a_retry_gives_all_attempts),
)


def violations_of_operations(evidence: PlanEvidence) -> list[str]:
    """What operators were told and saw, whatever became of the plan."""
    return [
        found
        for number, check in OF_OPERATIONS
        for found in told(number, check.__name__, evidence.name, check(evidence))
    ]
