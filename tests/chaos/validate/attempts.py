"""How attempts are counted: which number and which count each claim of a task has. Pure.

The rule is that of docs/internals/adr/0011-blame-only-what-had-started.md. Every execution records
its number N and the attempts A that were used up when it was claimed. So each step from one claim
to the next can be checked: a failure uses up one, as does a result that the server refuses to
commit, a hand-back none, the loss of a worker one where the task was known to have started (N > A).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from ..traffic.workloads import attempts_of
from .evidence import PlanEvidence
from .plans import Execution
from .snapshot import DeadLetter


def attempts_are_counted_right(evidence: PlanEvidence) -> Iterator[str]:
    """S8: attempts are used up by failures and by lost workers, and until none is left."""
    # Who is retried has all again; `a_retry_gives_all_attempts` looks at those.
    retried = {
        key for each in evidence.operations if each.may_have_happened for key, _, _ in each.died
    }
    for key in sorted({*evidence.executions, *evidence.dead} - retried):
        if evidence.fate(key) != "cut":
            letter = evidence.remains.letters.get(key)
            yield from miscounted(evidence, key, {letter: float("inf")} if letter else {})


def miscounted(
    evidence: PlanEvidence, key: str, deaths: Mapping[DeadLetter, float]
) -> Iterator[str]:
    """What is wrong with the counts of a task that died at those claims, at the latest then.

    After each death but the last it was retried, with all its attempts.
    """
    item = evidence.plan.workload.items.get(key)
    runs = sorted(evidence.executions.get(key, []), key=lambda each: each.n)
    first, since = 0, evidence.plan.begun
    for letter, at in [*sorted(deaths.items()), (None, float("inf"))]:
        life = [each for each in runs if first <= each.n <= (letter.n if letter else each.n)]
        count = _Count(evidence, first, since)
        for run, following in pairwise([*life, None]):
            assert run is not None
            yield from count.to(run.n, run.a, run.began, f"{run} began with")
            most = attempts_of(item) if item is not None else None
            if most is not None and run.a >= most:
                yield f"{run} began with {run.a} attempts used up of {most}"
            until = following.began if following is not None else at
            goes_on = following is not None or (letter is not None and letter.n > run.n)
            if following is None and letter is not None and letter.a == run.a + 1:
                # A claim that only delivers the failure once more runs nothing, and counts as
                # this attempt.
                goes_on = goes_on and not evidence.gains_dependents(run)
            if (
                goes_on
                and run.raised
                and not run.handed_back
                and run.a + 1 == most
                and not evidence.may_be_lost(run, until)
            ):
                yield f"{run} failed, its last attempt, and another claim followed"
            count.after(run, until)
        if letter is None:
            return
        last = life[-1] if life and life[-1].n == letter.n else None
        yield from _died(evidence, key, letter, last)
        if last is None:
            yield from count.to(letter.n, letter.a, at, f"task {key} died after", ended=True)
        first, since = letter.n + 1, at


def _died(
    evidence: PlanEvidence, key: str, letter: DeadLetter, last: Execution | None
) -> Iterator[str]:
    """A task dies by its last attempt, or is not run any more where that one was lost."""
    most = attempts_of(evidence.plan.workload.items[key])
    if last is not None and (not last.raised or last.handed_back or letter.a != last.a + 1):
        yield f"task {key} died with {letter.a} attempts used up, after {last} with {last.a}"
    if letter.a != most:
        yield f"task {key} died with {letter.a} attempts used up of {most}, its last was {last}"


class _Count:
    """How many attempts of a task may be used up, from claim to claim of one of its lives."""

    def __init__(self, evidence: PlanEvidence, first: int, since: float) -> None:
        self._evidence, self._next, self._since = evidence, first, since
        self._used = {0}

    def to(self, n: int, a: int, at: float, what: str, ended: bool = False) -> Iterator[str]:
        """Claim `n` was made by then, with `a` used up; those in between have told nothing.

        Where it `ended` the task it has told nothing either.
        """
        evidence = self._evidence
        losses = evidence.lost_without_a_line(max(0, n - self._next), self._since, at)
        # Who lacks memory fails before it can write down that it began.
        may_fail = evidence.history.lacked_memory(self._since, at)
        # To so many used up, how many losses it takes at least.
        found = dict.fromkeys(self._used, 0)
        for claim in range(self._next, n):
            for used, lost in list(found.items()):
                # Only of a task that an earlier claim has left without an end it is known that
                # it started.
                if claim > used and lost < losses:
                    found[used + 1] = min(lost + 1, found.get(used + 1, losses))
                if may_fail:
                    found[used + 1] = min(lost, found.get(used + 1, losses))
        if ended and may_fail:
            found.update({used + 1: lost for used, lost in found.items() if used + 1 not in found})
        if a not in found:
            yield f"{what} {a} attempts used up, not {sorted(found)}"
        self._next, self._used = n, {a}

    def after(self, run: Execution, until: float) -> None:
        """That claim ended; somebody else had the task at `until`, or nobody."""
        (used,) = self._used
        marked = int(run.n > run.a)
        found = set[int]()
        if run.raised:
            # Else, or a dead letter, and no claim follows.
            found.add(0 if run.handed_back else 1)
        if self._evidence.history.lacked_memory(run.began, run.ended or until, run.pid):
            found.add(1)  # it could not write that down, or its result
        if self._evidence.was_lost(run, until):
            found.add(marked)
            # Who had lost its claim before may have noted its start too late to be counted.
            early = run.began - self._evidence.noticed_s
            if self._evidence.history.loses(run.pid, early, run.began):
                found.add(0)
        if self._evidence.was_handed_back(run):
            found.add(0)
        if self._evidence.was_refused(run):
            found.add(1)
        # Else it was repeated for nothing, which is another finding.
        self._used = {used + more for more in found or {0, marked}}
        self._next, self._since = run.n + 1, run.began
