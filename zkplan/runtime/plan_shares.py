"""Share the slots of a worker between plans, by stride scheduling.

Pure: time is an argument. After Waldspurger (1995): each plan has a *pass*, the seconds that its
tasks have had on slots, divided by its weight; the plan with the least pass goes next. The seconds
of a task are known only when it has ended. Until then it counts as the mean of its plan, or as the
seconds that it has run already, if these are more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from ..errors import ZkplanError

Policy = Literal["greedy", "balanced", "weighted"]
#: How far one plan may be ahead of another, in seconds for each slot. A smaller value would mean
#: smaller claims, which cost as much as large ones.
QUANTUM_S = 0.05
#: How much a plan that had nothing to claim for a while may catch up, in seconds for each slot.
#: With a larger value, a plan that waited for an hour would then hold all slots for an hour; with
#: 0, a plan would lose to others at each new listing.
CATCH_UP_S = 0.5
#: The seconds that a task counts as before any task has ended here. Later, tasks of a plan without
#: an ended task count as the mean of all plans.
UNKNOWN_S = 1.0
#: The seconds that a task costs a worker at least, however short its function is.
LEAST_S = 0.0002
#: The weight of the newest task in the mean.
_NEWEST = 0.1


def check_policy(policy: str) -> Policy:
    """Return `policy`. Raises ZkplanError if there is no such policy."""
    if policy in get_args(Policy):
        return cast("Policy", policy)
    raise ZkplanError(f'share must be "greedy", "balanced" or "weighted", not {policy!r:.50}')


@dataclass(slots=True)
class _Account:
    """The use that one plan has made of this worker."""

    passed: float
    weight: float = 1.0
    #: The mean seconds of its tasks; 0.0: none has ended.
    mean_s: float = 0.0
    #: The number of its claims that have not ended.
    open: int = 0
    #: When it was chosen last, as the number of the choice.
    chosen: int = 0


class Shares:
    """The accounts of all plans that this worker serves.

    `running()` returns the plan of each running task, and when the task started (monotonic).
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
        #: By the path of an open claim: the account of its plan.
        self._open: dict[str, _Account] = {}
        #: The highest pass of a chosen plan: a new plan begins there.
        self._virtual = 0.0
        self._choices = 0
        self._mean_s = UNKNOWN_S

    # ---- the use of each plan

    def opened(self, claim: str, plan: str) -> None:
        """Note that the worker holds the claim. Repeating this does no harm."""
        account = self._accounts.get(plan)
        if account is not None and claim not in self._open:
            self._open[claim] = account
            account.open += 1

    def closed(self, claim: str) -> None:
        """Note that the claim or its function has ended. Repeating this does no harm."""
        account = self._open.pop(claim, None)
        if account is not None:
            account.open -= 1

    def ended(self, claim: str, plan: str, seconds: float) -> None:
        """Note that the task of the claim held a slot for `seconds`."""
        self.closed(claim)
        account, seconds = self._accounts.get(plan), max(seconds, LEAST_S)
        if account is None:
            return  # this worker has forgotten the plan
        account.passed += seconds / account.weight
        account.mean_s += (_NEWEST if account.mean_s else 1.0) * (seconds - account.mean_s)
        self._mean_s += _NEWEST * (seconds - self._mean_s)

    def forget(self, plan: str) -> None:
        self._accounts.pop(plan, None)

    def came(self, plan: str, now: float) -> None:
        """Note that the plan has something to claim again, and let it catch up a little."""
        account = self._accounts.get(plan)
        if account is None:
            self._account(plan).passed = self._here(plan, now)
        elif len(self._accounts) > 1:
            least = self._here(plan, now) - CATCH_UP_S * self._slots / account.weight
            account.passed = max(account.passed, least)

    def holds_some(self, plan: str) -> bool:
        """Whether a claim of the plan is open here."""
        account = self._accounts.get(plan)
        return account is not None and account.open > 0

    def new_room(self, plan: str) -> int | None:
        """How many tasks may be claimed of a plan whose tasks have not ended here yet; None: any
        number, as some have.

        Their duration is unknown. If they counted like the tasks of other plans, a plan of long
        tasks could fill a worker that has just run many short tasks, and all other plans would
        wait.
        """
        account = self._accounts.get(plan)
        if account is not None and account.mean_s:
            return None
        return max(0, self._slots - (account.open if account is not None else 0))

    # ---- who is next

    def next(
        self, plans: Sequence[tuple[str, int]], ready: Sequence[str], now: float
    ) -> tuple[str, int | None] | None:
        """Choose the next of the `ready` plans, and how many of its tasks may be claimed in one go
        (None: as many as there is room for).

        `plans` are all plans of the same priority with something to claim, each with its weight. A
        plan that is not ready waits for a new listing. If the greedy policy wants such a plan,
        returns None.
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
        """Whether one of `others`, of the same priority, has had so much less that `plan` must not
        go on with tasks that it has just made runnable."""
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
        """The pass of each plan, with the estimated time of its open claims."""
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
        """The pass at which a plan begins: the least of the other plans that have slots now, but
        at least `_virtual`."""
        had: dict[str, float] = {}
        for number, started in self._running():
            if number != plan and started and number in self._accounts:
                had[number] = had.get(number, 0.0) + now - started
        found = [
            self._accounts[number].passed + seconds / self._accounts[number].weight
            for number, seconds in had.items()
        ]
        return max(self._virtual, min(found)) if found else self._virtual
