"""How attempts are counted: which number and which count each claim of a task has. Pure.

The rule is that of docs/adr/0011-blame-only-what-had-started.md. Every execution records its
number N and the attempts A that were used up when it was claimed, so each step from one claim to
the next is judged: a failure uses up one, a hand-back none, the loss of a worker one where the task
was known to have started (N > A).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

from ..actors.workloads import attempts_of
from .case import COMMITTED_S, Case, Letter
from .histories import Execution

#: A function that ended so shortly before the grace was over may be handed back all the same.
_RACE_S = 1.0


def attempts_are_unique(case: Case) -> Iterator[str]:
    """S8: no two executions of a task have the same attempt number."""
    for key, runs in case.plan.executions.items():
        for n, count in Counter(each.n for each in runs).items():
            if count > 1:
                yield f"task {key} was executed {count} times as attempt {n}"


def only_losses_and_failures_repeat(case: Case) -> Iterator[str]:
    """S8: again only after a failure, a lost worker, or one that was told to stop."""
    for runs in case.plan.executions.values():
        for first, second in pairwise(sorted(runs, key=lambda each: each.n)):
            if not first.raised and not _may_be_lost(case, first, second.began):
                yield f"{second} repeats {first}, which nothing had disturbed"


def attempts_are_counted_right(case: Case) -> Iterator[str]:
    """S8: attempts are used up by failures and by lost workers, and until none is left."""
    operations = case.ledger.operations.of_plan.get(case.plan.workload.name, ())
    # Who is retried has all again; `a_retry_gives_all_attempts` looks at those.
    retried = {
        each.facts["key"] for each in operations if each.what == "retry" and each.may_have_happened
    }
    for key in sorted({*case.plan.executions, *case.left.dead} - retried):
        if case.fate(key) != "cut":
            letter = case.left.dead.get(key)
            yield from miscounted(case, key, {letter: float("inf")} if letter else {})


def miscounted(case: Case, key: str, deaths: Mapping[Letter, float]) -> Iterator[str]:
    """What is wrong with the counts of a task that died at those claims, at the latest then.

    After each death but the last it was retried, with all its attempts.
    """
    item = case.plan.workload.items.get(key)
    runs = sorted(case.plan.executions.get(key, []), key=lambda each: each.n)
    first, since = 0, case.plan.begun
    for letter, at in [*sorted(deaths.items()), (None, float("inf"))]:
        life = [each for each in runs if first <= each.n <= (letter.n if letter else each.n)]
        count = _Count(case, first, since)
        for run, following in pairwise([*life, None]):
            assert run is not None
            yield from count.to(run.n, run.a, run.began, f"{run} began with")
            most = attempts_of(item) if item is not None else None
            if most is not None and run.a >= most:
                yield f"{run} began with {run.a} attempts used up of {most}"
            until = following.began if following is not None else at
            goes_on = following is not None or (letter is not None and letter.n > run.n)
            if goes_on and run.raised and run.a + 1 == most and not _may_be_lost(case, run, until):
                yield f"{run} failed, its last attempt, and another claim followed"
            count.after(run, until)
        if letter is None:
            return
        last = life[-1] if life and life[-1].n == letter.n else None
        yield from _died(case, key, letter, last)
        if last is None:
            yield from count.to(letter.n, letter.a, at, f"task {key} died after", ended=True)
        first, since = letter.n + 1, at


def _died(case: Case, key: str, letter: Letter, last: Execution | None) -> Iterator[str]:
    """A task dies by its last attempt, or is not run any more where that one was lost."""
    most = attempts_of(case.plan.workload.items[key])
    if last is not None and (not last.raised or letter.a != last.a + 1):
        yield f"task {key} died with {letter.a} attempts used up, after {last} with {last.a}"
    if letter.a != most:
        yield f"task {key} died with {letter.a} attempts used up of {most}, its last was {last}"


class _Count:
    """How many attempts of a task may be used up, from claim to claim of one of its lives."""

    def __init__(self, case: Case, first: int, since: float) -> None:
        self._case, self._next, self._since = case, first, since
        self._used = {0}

    def to(self, n: int, a: int, at: float, what: str, ended: bool = False) -> Iterator[str]:
        """Claim `n` was made by then, with `a` used up; those in between have told nothing.

        Where it `ended` the task it has told nothing either.
        """
        case = self._case
        losses = case.lost_without_a_line(max(0, n - self._next), self._since, at)
        # Who lacks memory fails before it can write down that it began.
        may_fail = case.ledger.lacked_memory(self._since, at)
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
            found.add(1)  # or a dead letter, and no claim follows
        if self._case.ledger.lacked_memory(run.began, run.ended or until, run.pid):
            found.add(1)  # it could not write that down, or its result
        if _lost(self._case, run, until):
            found.add(marked)
            # Who had lost its claim before may have noted its start too late to be counted.
            early = run.began - self._case.noticed_s
            if self._case.ledger.loses(run.pid, early, run.began):
                found.add(0)
        if _handed_back(self._case, run):
            found.add(0)
        # Else it was repeated for nothing, which is another finding.
        self._used = {used + more for more in found or {0, marked}}
        self._next, self._since = run.n + 1, run.began


def _may_be_lost(case: Case, run: Execution, until: float) -> bool:
    return _lost(case, run, until) or _handed_back(case, run)


def _lost(case: Case, run: Execution, until: float) -> bool:
    """Whether a fault may have cost that execution its claim, by then."""
    if run.ended is not None:
        until = min(until, run.ended + COMMITTED_S)
    return case.ledger.loses(run.pid, run.began - case.noticed_s, until)


def _handed_back(case: Case, run: Execution) -> bool:
    """Whether its worker was told to stop, and did not wait for its end."""
    until = float("inf") if run.ended is None else run.ended + _RACE_S
    return case.ledger.stopped(run.pid, run.began, until)
