"""Share the slots of a worker between plans, by stride scheduling.

Pure: time is an argument. After Waldspurger (1995): each plan has a *pass*, the seconds that its
tasks have had on slots, divided by its weight; the plan with the least goes next. The seconds of a
task are known only when it has ended. Until then it counts as the mean of its plan, or as what it
has had already, if that is more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from ..errors import ZkplanError

Policy = Literal["greedy", "balanced", "weighted"]
#: Among plans of different weights that are served in turn, one may be so far ahead of another, in
#: seconds for each slot. Less would mean smaller claims, which cost as much as large ones.
QUANTUM_S = 0.05
#: A plan that had nothing to claim for a while may catch up so much, in seconds for each slot. With
#: more, a plan that waited for an hour would then have all slots for as long; with none, each new
#: listing would cost a plan what others get meanwhile.
CATCH_UP_S = 0.5
#: What a task counts before any has ended here. Of a plan of which none has ended it counts as the
#: mean of all.
UNKNOWN_S = 1.0
#: A task costs a worker so much, however short its function is.
LEAST_S = 0.0002
#: The weight of the newest task in the mean.
_NEWEST = 0.1


def check_policy(policy: str) -> Policy:
    """Raises ZkplanError."""
    if policy in get_args(Policy):
        return cast("Policy", policy)
    raise ZkplanError(f'share is "greedy", "balanced" or "weighted", not {policy!r:.50}')


@dataclass(slots=True)
class _Account:
    """What one plan has had of this worker."""

    passed: float
    weight: float = 1.0
    #: The mean of its tasks, in seconds; 0.0: none has ended.
    mean_s: float = 0.0
    #: Its claims that have not ended.
    open: int = 0
    #: When it was chosen last, by the number of choices until then.
    chosen: int = 0


class Shares:
    """The accounts of all plans that this worker serves.

    `running` says which tasks run now: the plan of each, and when it started (monotonic).
    """

    def __init__(
        self,
        policy: Policy = "weighted",
        slots: int = 1,
        running: Callable[[], Iterable[tuple[str, float]]] = tuple,
    ) -> None:
        self.policy = policy
        self._slots, self._running = slots, running
        self._accounts: dict[str, _Account] = {}
        #: By the path of its claim: whose account an open claim is in.
        self._open: dict[str, _Account] = {}
        #: The pass of the plan that was chosen last: where a new plan begins.
        self._virtual = 0.0
        self._choices = 0
        self._mean_s = UNKNOWN_S

    # ---- what a plan has had

    def opened(self, claim: str, plan: str) -> None:
        """The worker holds that claim. Repeating it does no harm."""
        account = self._accounts.get(plan)
        if account is not None and claim not in self._open:
            self._open[claim] = account
            account.open += 1

    def closed(self, claim: str) -> None:
        """The claim has ended, or its function has. Repeating it does no harm."""
        account = self._open.pop(claim, None)
        if account is not None:
            account.open -= 1

    def ended(self, claim: str, plan: str, seconds: float) -> None:
        """A task was on a slot for so long."""
        self.closed(claim)
        account, seconds = self._accounts.get(plan), max(seconds, LEAST_S)
        if account is None:
            return  # the plan is gone
        account.passed += seconds / account.weight
        account.mean_s += (_NEWEST if account.mean_s else 1.0) * (seconds - account.mean_s)
        self._mean_s += _NEWEST * (seconds - self._mean_s)

    def forget(self, plan: str) -> None:
        self._accounts.pop(plan, None)

    def came(self, plan: str, now: float) -> None:
        """The plan had nothing to claim, and has now: what it did not ask for is not kept for
        it."""
        account = self._accounts.get(plan)
        if account is None:
            self._account(plan).passed = self._here(plan, now)
        elif len(self._accounts) > 1:
            least = self._here(plan, now) - CATCH_UP_S * self._slots / account.weight
            account.passed = max(account.passed, least)

    def holds_some(self, plan: str) -> bool:
        """Whether a claim of that plan is open here."""
        account = self._accounts.get(plan)
        return account is not None and account.open > 0

    def new_room(self, plan: str) -> int | None:
        """How many tasks may be claimed of a plan of which none has ended here; None: any number.

        Nobody knows how long they take. If they counted as the tasks of other plans, a plan of long
        tasks would fill a worker that has just run many short ones, and all others would wait.
        """
        account = self._accounts.get(plan)
        if account is not None and account.mean_s:
            return None
        return max(0, self._slots - (account.open if account is not None else 0))

    # ---- who is next

    def next(
        self, plans: Sequence[tuple[str, int]], ready: Sequence[str], now: float
    ) -> tuple[str, int | None] | None:
        """Which of the `ready` plans is next, and how many of its tasks may be claimed in one go;
        None: as many as there is room for.

        `plans` has all of the same priority that have something to claim, each with its weight; of
        those that are not ready, a new listing is on its way. Greedy waits for it: then there is no
        answer.
        """
        if self.policy == "greedy":
            oldest = min(plans)[0]
            return (oldest, None) if oldest in ready else None
        if len(plans) == 1:
            number = plans[0][0]
            self._chosen(self._account(number))
            return number, None
        passed = self._passed(plans, now)
        _, _, number = min((passed[each], self._account(each).chosen, each) for each in ready)
        account = self._account(number)
        self._chosen(account)
        gap = min(behind for other, behind in passed.items() if other != number) - passed[number]
        most_s = max(gap, 0.0) * account.weight + QUANTUM_S * self._slots
        return number, max(1, int(most_s / (account.mean_s or self._mean_s)))

    def is_ahead(
        self, plan: tuple[str, int], others: Sequence[tuple[str, int]], now: float
    ) -> bool:
        """Whether one of the others, of the same priority, has had so much less that this plan must
        not go on with tasks that it has just made runnable."""
        if self.policy == "greedy":
            return min(others)[0] < plan[0]
        passed = self._passed([plan, *others], now)
        ahead = passed[plan[0]] - min(passed[number] for number, _ in others)
        return ahead > QUANTUM_S * self._slots / self._account(plan[0]).weight

    def _account(self, plan: str) -> _Account:
        account = self._accounts.get(plan)
        if account is None:
            account = self._accounts[plan] = _Account(self._virtual)
        return account

    def _chosen(self, account: _Account) -> None:
        self._choices += 1
        account.chosen = self._choices
        self._virtual = max(self._virtual, account.passed)

    def _passed(self, plans: Sequence[tuple[str, int]], now: float) -> dict[str, float]:
        """The pass of each plan, with what its open claims will add to it, as far as one knows."""
        open_s: dict[str, float] = {}
        for number, weight in plans:
            account = self._account(number)
            account.weight = float(weight) if self.policy == "weighted" else 1.0
            open_s[number] = account.open * (account.mean_s or self._mean_s)
        for number, started in self._running():
            if number in open_s and started:
                mean_s = self._accounts[number].mean_s or self._mean_s
                open_s[number] += max(0.0, now - started - mean_s)
        return {
            number: account.passed + seconds / account.weight
            for number, seconds in open_s.items()
            if (account := self._accounts[number])
        }

    def _here(self, plan: str, now: float) -> float:
        """The least pass of another plan that has slots now, or where the last choice was."""
        had: dict[str, float] = {}
        for number, started in self._running():
            if number != plan and started and number in self._accounts:
                had[number] = had.get(number, 0.0) + now - started
        found = [
            self._accounts[number].passed + seconds / self._accounts[number].weight
            for number, seconds in had.items()
        ]
        return max(self._virtual, min(found)) if found else self._virtual
