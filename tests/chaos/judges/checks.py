"""The checker: what zkplan promises, verified on the history of one plan and on what is left. Pure.

The numbers are those of the invariants in docs/protocol.md. Which execution of a task was committed
is not asked of ZooKeeper alone: every value names the execution that made it, and every execution
records whose values it got.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from zkplan.stress.checks import Remains

from ..actors.workloads import parent_of
from .ledger import Execution, Ledger, PlanHistory

#: No task of these workloads runs longer.
_CUT_OFF_S = 60.0
#: A commit is sent when its function has ended, and again until it is answered. A fault that begins
#: so long afterwards finds nothing of the execution any more.
COMMITTED_S = 10.0
#: What the ticks of a server add to a session (two of 250 ms, for it ends at a multiple of it),
#: and the longest wait of a client between two attempts to connect, after which it is told (1 s).
_TOLD_S = 1.5


class Kept(NamedTuple):
    """A kept result: whose it says that it is."""

    key: str
    digest: str
    uid: str


@dataclass(frozen=True)
class Left:
    """What stood in ZooKeeper when the plan was done. `dead` maps task keys to used attempts."""

    remains: Remains
    kept: list[Kept]
    dead: dict[str, int] = field(default_factory=dict)
    added: int = 0


def noticed_s(session_s: float) -> float:
    """How long a claim may be lost by a fault that is healed, until its worker knows.

    The server may have heard of the worker last when the fault ended. It ends the session one
    time-out later; until the worker is connected again, and told, it begins what it had claimed.
    What it claims from then on is another worker's claim. So nothing longer is excused.
    """
    return session_s + _TOLD_S


@dataclass(frozen=True)
class Case:
    """One plan before the checker."""

    plan: PlanHistory
    left: Left
    ledger: Ledger
    session_s: float
    #: Slots are always free: a task starts so soon after the last that it needs has ended.
    soon_s: float = float("inf")

    @cached_property
    def committed(self) -> dict[str, set[str]]:
        """The executions whose values anybody got, by task."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for execution in self.everything:
            for uid in execution.got:
                if uid in self.by_uid:
                    found[self.by_uid[uid].key].add(uid)
        for kept in self.left.kept:
            found[kept.key].add(kept.uid)
        return dict(found)

    @cached_property
    def everything(self) -> list[Execution]:
        return [each for runs in self.plan.executions.values() for each in runs]

    @cached_property
    def by_uid(self) -> dict[str, Execution]:
        return {execution.uid: execution for execution in self.everything}

    @cached_property
    def acknowledged(self) -> set[str]:
        """The tasks that have to run: told to their author, or added by a committed task."""
        batches = self.plan.batches.values()
        certain = {key for batch in batches for key in batch.certain}
        for key in self.plan.workload.items:
            parent = parent_of(key)
            if parent in certain and self.fate(str(parent)) == "finished":
                certain.add(key)
        return certain

    def disturbed(self, runs: list[Execution]) -> bool:
        """Whether a fault may have cost the task of those executions an attempt.

        After the last of them has ended it would have cost one more execution. One whose end nobody
        told was cut off some time later.
        """
        last = max((each.ended or each.began + _CUT_OFF_S for each in runs), default=0.0)
        return any(
            self.ledger.disturbed(each.pid, each.began - self.noticed_s, last) for each in runs
        )

    def lost_without_a_line(self, claims: int, begin: float, end: float) -> int:
        """How many attempts at most were used up by executions of which nobody told, in that time.

        A worker notes in ZooKeeper that a function starts, and is lost before that function has
        written its first line. `claims` is the number of those under which nothing is known to
        have begun.
        """
        return min(claims, self.ledger.losses(begin - self.noticed_s, end))

    @property
    def noticed_s(self) -> float:
        """How long after a fault a worker may begin what it claimed before, and is to lose."""
        return noticed_s(self.session_s)

    def fate(self, key: str) -> str:
        return self.plan.workload.fates.get(key, "absent")


def results_are_fixed_once(case: Case) -> Iterator[str]:
    """S4: all who got a task's value got that of one and the same execution."""
    for key, uids in case.committed.items():
        if len(uids) > 1:
            found = ", ".join(str(case.by_uid.get(uid, uid)) for uid in sorted(uids))
            yield f"task {key} was committed {len(uids)} times: {found}"


def values_come_from_executions(case: Case) -> Iterator[str]:
    """S4: a value that somebody got was returned by an execution of that task."""
    for execution in case.everything:
        for uid in execution.got:
            if uid not in case.by_uid:
                yield f"{execution} got a value of {uid}, which nobody made"
            elif not case.by_uid[uid].returned:
                yield f"{execution} got a value of {case.by_uid[uid]}, which never returned"
            elif case.by_uid[uid].ended > execution.began:  # type: ignore[operator]
                yield f"{execution} began before {case.by_uid[uid]} had ended"
    for kept in case.left.kept:
        maker = case.by_uid.get(kept.uid)
        if maker is None or maker.key != kept.key or not maker.returned:
            yield f"the kept result of {kept.key} is of {kept.uid}, which is {maker}"


def the_last_claim_commits(case: Case) -> Iterator[str]:
    """S5: no execution has a larger attempt number than the one that was committed."""
    for key, uids in case.committed.items():
        for uid in uids & case.by_uid.keys():
            winner = case.by_uid[uid]
            for other in case.plan.executions[key]:
                if other.n > winner.n:
                    yield f"{winner} was committed, though {other} had a later claim"


def attempts_are_unique(case: Case) -> Iterator[str]:
    """S8: no two executions of a task have the same attempt number."""
    for key, runs in case.plan.executions.items():
        for n, count in Counter(each.n for each in runs).items():
            if count > 1:
                yield f"task {key} was executed {count} times as attempt {n}"


def arguments_are_exact(case: Case) -> Iterator[str]:
    """S3: every execution, whatever became of it, had all its arguments, and the right ones."""
    for execution in case.everything:
        item = case.plan.workload.items.get(execution.key)
        if item is None:
            yield f"{execution} is of no task of the plan"
        elif execution.keys != len(item.needs) or len(execution.got) != len(item.needs):
            yield f"{execution} had {len(execution.got)} of {len(item.needs)} arguments"
        elif execution.digest != case.plan.workload.digests[execution.key]:
            yield f"{execution} had other arguments than the oracle"
        elif execution.damaged:
            yield f"{execution} got damaged bytes from {execution.damaged}"


def results_are_the_oracles(case: Case) -> Iterator[str]:
    """S4: a kept result is the oracle's."""
    for kept in case.left.kept:
        if case.plan.workload.digests.get(kept.key) != kept.digest:
            yield f"the kept result of {kept.key} differs from the oracle"


def nothing_acknowledged_is_lost(case: Case) -> Iterator[str]:
    """L3: every task that was acknowledged came to the end that the oracle knows."""
    for key in sorted(case.acknowledged):
        runs, fate = case.plan.executions.get(key, []), case.fate(key)
        if fate == "finished" and not any(each.returned for each in runs):
            yield f"task {key} was acknowledged and never returned ({len(runs)} executions)"
        elif fate != "finished" and key not in case.left.dead:
            yield f"task {key} must be {fate} and has no dead letter"
        elif fate == "cut" and runs:
            yield f"{runs[0]} ran, though a task it needs has failed"


def only_the_added_runs(case: Case) -> Iterator[str]:
    """S4: what was refused or never sent does not run; an atomic add runs wholly or not at all."""
    by_authors = [key for key in case.plan.executions if parent_of(key) is None]
    allowed = {key for batch in case.plan.batches.values() for key in batch.possible}
    yield from (f"task {key} ran and was never added" for key in by_authors if key not in allowed)
    for number, batch in case.plan.batches.items():
        wanted = [key for key in batch.keys if case.fate(key) != "cut"]
        ran = [key for key in wanted if key in case.plan.executions]
        if batch.state == "begun" and batch.atomic and 0 < len(ran) < len(wanted):
            yield f"of add {number}, which is atomic, {len(ran)} of {len(wanted)} tasks ran"


def an_attempt_adds_with_its_commit(case: Case) -> Iterator[str]:
    """Promise 8: a task added by a task was added by the execution that was committed."""
    for execution in case.everything:
        parent = parent_of(execution.key)
        if parent is None:
            continue
        winners = case.committed.get(parent)
        maker = case.by_uid.get(execution.by)
        if maker is None or maker.key != parent or not maker.returned:
            yield f"{execution} was added by {execution.by}, which is {maker}"
        elif winners is not None and execution.by not in winners:
            yield f"{execution} was added by {maker}, which was not committed"


def kept_is_what_is_to_be_kept(case: Case) -> Iterator[str]:
    """S4: the results of tasks without dependents stand; all do where the plan keeps them."""
    workload = case.plan.workload
    kept = {each.key for each in case.left.kept}
    needed = {key for item in workload.items.values() for key in item.needs}
    for key in case.acknowledged:
        is_sink = key not in needed
        if case.fate(key) == "finished" and (is_sink or workload.growing) and key not in kept:
            yield f"the result of {key} is not kept"


def nothing_is_left(case: Case) -> Iterator[str]:
    """S6, S7: of a done plan nothing is left but outcomes and dead letters."""
    left = case.left.remains
    yield from (f"{name} is left" for name in left.plan if name.startswith("task-"))
    if "done" not in left.plan:
        yield "`done` is missing"
    if "adds" in left.plan:
        yield "`adds` stands beside `done`"
    for kind in ("runnable", "later", "claims"):
        yield from (f"{kind}: {name} is left" for name in getattr(left, kind))
    for key in case.left.dead:
        if case.fate(key) not in ("dead", "cut"):
            yield f"task {key} has a dead letter, the oracle says: {case.fate(key)}"


def counts_agree(case: Case) -> Iterator[str]:
    """S7: as many tasks were ever added as were acknowledged; an open add may count too."""
    batches = case.plan.batches.values()
    most = len(case.acknowledged) + sum(
        len(case.plan.workload.items) for batch in batches if batch.state == "begun"
    )
    if not len(case.acknowledged) <= case.left.added <= most:
        counted = len(case.acknowledged)
        yield f"{case.left.added} tasks were added, {counted} were acknowledged, {most} at most"


def adds_are_refused_rightly(plan: PlanHistory) -> Iterator[str]:
    """S4: in every workload each result that an add depends on is to come, or is kept."""
    for number, batch in plan.batches.items():
        if batch.state == "refused" and batch.error.startswith("ResultNotKept"):
            yield f"add {number} was refused, though every result can be had: {batch.error}"


def tasks_start_soon(case: Case) -> Iterator[str]:
    """L2: what is complete is published and claimed at once, not when some check finds it."""
    for runs in case.plan.executions.values():
        first = min(runs, key=lambda each: each.began, default=None)
        if first is None or not first.got:
            continue
        needed = [case.by_uid[uid].ended or 0.0 for uid in first.got if uid in case.by_uid]
        late_s = first.began - max(needed, default=first.began)
        if late_s > case.soon_s:
            yield f"{first} began {late_s:.1f} s after the last that it needs had ended"


def attempts_are_counted_right(case: Case) -> Iterator[str]:
    """S8: attempts are used up by failures and by lost workers; again only after one of those."""
    plan = case.plan
    last = max((each.ended or each.began + _CUT_OFF_S for each in case.everything), default=0.0)
    losses = case.ledger.losses(plan.begun - case.noticed_s, last)
    # Who is retried has all attempts again; `a_retry_gives_all_attempts` counts those.
    operations = case.ledger.operations.of_plan.get(plan.workload.name, ())
    retried = {each.facts["key"] for each in operations if each.what == "retry"}
    for key, used in case.left.dead.items():
        runs = case.plan.executions.get(key, [])
        planned = [each for each in runs if each.planned]
        if case.fate(key) == "dead" and used > len(runs) + losses:
            yield f"task {key} used up {used} attempts in {len(runs)} executions"
        if case.fate(key) == "dead" and key not in retried and not case.disturbed(runs):
            numbers = {each.n for each in runs}
            # Where the last attempt was lost, the next claim runs nothing and counts itself too.
            untold = max(numbers, default=-1) + 1 - len(numbers) + (used > 3)
            if not 0 <= 3 - len(planned) <= case.lost_without_a_line(untold, plan.begun, last):
                yield f"task {key} has 3 attempts, failed {len(planned)} times and nobody was lost"
    for runs in case.plan.executions.values():
        ordered = sorted(runs, key=lambda each: each.n)
        for first, second in pairwise(ordered):
            begin, end = first.began - case.noticed_s, second.began
            if first.ended is not None:
                end = min(end, first.ended + COMMITTED_S)
            if not first.raised and not case.ledger.disturbed(first.pid, begin, end):
                yield f"{second} repeats {first}, which nothing had disturbed"


def waiters_hear_the_truth(case: Case) -> Iterator[str]:
    """S7: a waiter that was told `done` was told it after the last commit."""
    last = max(
        (
            case.by_uid[uid].ended or 0.0
            for uids in case.committed.values()
            for uid in uids & case.by_uid.keys()
        ),
        default=0.0,
    )
    for line in case.plan.waited:
        if line["state"] == "done" and line["at"] < last:
            yield f"a waiter heard `done` {last - line['at']:.3f} s before the last commit"
        doomed = bool(case.left.dead)
        if line["state"] == "done" and line["failed"] != doomed:
            yield f"a waiter heard failed={line['failed']}, dead letters: {len(case.left.dead)}"


CHECKS: tuple[tuple[str, Callable[[Case], Iterator[str]]], ...] = (
    ("S4", results_are_fixed_once),
    ("S4", values_come_from_executions),
    ("S5", the_last_claim_commits),
    ("S8", attempts_are_unique),
    ("S3", arguments_are_exact),
    ("S4", results_are_the_oracles),
    ("L3", nothing_acknowledged_is_lost),
    ("S4", only_the_added_runs),
    ("S4", an_attempt_adds_with_its_commit),
    ("S4", kept_is_what_is_to_be_kept),
    ("S7", nothing_is_left),
    ("S7", counts_agree),
    ("S8", attempts_are_counted_right),
    ("L2", tasks_start_soon),
    ("S7", waiters_hear_the_truth),
)


def violations(case: Case) -> list[str]:
    """Every broken promise of that plan, with the number of the invariant."""
    name = f"{case.plan.workload.name} ({case.plan.workload.shape})"
    return [
        f"{number} {check.__name__.replace('_', ' ')}: {name}: {found}"
        for number, check in CHECKS
        for found in check(case)
    ]


def committed_numbers(case: Case) -> dict[str, int]:
    """The attempt number under which each task was committed, as far as anybody saw it."""
    return {
        key: max(case.by_uid[uid].n for uid in uids & case.by_uid.keys())
        for key, uids in case.committed.items()
        if uids & case.by_uid.keys()
    }


def late_executions(ledger: Ledger) -> Iterator[str]:
    """S4: what begins after its plan was done began under a claim that was lost before."""
    while ledger.late:
        name, execution = ledger.late.pop()
        committed = ledger.plans[name].committed or {}
        n = committed.get(execution.key)
        if n is not None and execution.n >= n:
            yield f"S4: {name}: {execution} began after attempt {n} was committed"


def wrong_refusals(ledger: Ledger) -> list[str]:
    """S4: of plans that may never be done because of it."""
    return [
        f"S4 adds are refused rightly: {name}: {found}"
        for name, plan in list(ledger.plans.items())
        for found in adds_are_refused_rightly(plan)
    ]
