"""Plans share the slots of a worker by their weights, and no plan starves another."""

from __future__ import annotations

import heapq
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkplan.errors import ZkplanError
from zkplan.protocol.core.plans_and_queues import PlanLook
from zkplan.protocol.records import PlanRecord, Share
from zkplan.protocol.task_options import TaskOptions
from zkplan.runtime.plan_candidates import GLANCE_S, Candidates
from zkplan.runtime.plan_shares import CATCH_UP_S, QUANTUM_S, Policy, Shares, check_policy

from .listings import ALONE, names, plans

A, B, C = (f"{number:010d}" for number in (1, 2, 3))


class Slots:
    """The slots of one worker in simulated time. Every plan has work without end."""

    def __init__(self, slots: int, policy: Policy = "weighted") -> None:
        self.free, self.now, self._claims = slots, 0.0, 0
        self._running: list[tuple[float, str, str, float]] = []
        self.had: Counter[str] = Counter()
        self.shares = Shares(
            policy, slots, lambda: [(plan, began) for _, _, plan, began in self._running]
        )

    def run(self, seconds: float, weights: dict[str, int], lengths: dict[str, float]) -> None:
        end = self.now + seconds
        while self.now < end:
            while self.free:
                found = self.shares.next(list(weights.items()), list(weights), self.now)
                assert found is not None
                plan, most = found
                for _ in range(min(self.free, most or self.free)):
                    self._claims += 1
                    claim = f"claim-{self._claims}"
                    self.shares.opened(claim, plan)
                    began = max(self.now, 1e-9)  # 0 says that it has not begun
                    ends = self.now + lengths[plan]
                    heapq.heappush(self._running, (ends, claim, plan, began))
                    self.free -= 1
            self.now, claim, plan, began = heapq.heappop(self._running)
            self.free += 1
            self.had[plan] += self.now - began  # type: ignore[assignment]
            self.shares.ended(claim, plan, self.now - began)

    def come(self, *plans: str) -> None:
        for plan in plans:
            self.shares.came(plan, self.now)


@settings(deadline=None, max_examples=20)
@given(
    st.integers(1, 16),
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from((0.02, 0.2, 1.0))),
        min_size=2,
        max_size=4,
    ),
)
@pytest.mark.slow
def test_plans_get_slot_seconds_by_their_weights(
    slots: int, drawn: list[tuple[int, float]]
) -> None:
    weights = {f"{number:010d}": weight for number, (weight, _) in enumerate(drawn)}
    lengths = {f"{number:010d}": length for number, (_, length) in enumerate(drawn)}
    worker = Slots(slots)
    worker.come(*weights)
    worker.run(10.0 * sum(weights.values()) * max(lengths.values()), weights, lengths)
    # Besides a tenth: the tasks that run, and what may be claimed in one go.
    slack = slots * max(lengths.values()) + slots * QUANTUM_S
    for plan, weight in weights.items():
        fair = sum(worker.had.values()) * weight / sum(weights.values())
        assert abs(worker.had[plan] - fair) <= 0.1 * fair + slack


def test_a_changed_weight_counts_from_then_on() -> None:
    worker = Slots(4)
    worker.come(A, B)
    lengths = {A: 0.02, B: 0.02}
    worker.run(20.0, {A: 3, B: 1}, lengths)
    assert worker.had[A] / worker.had[B] == pytest.approx(3, rel=0.1)
    worker.had.clear()
    worker.run(2.0, {A: 1, B: 3}, lengths)
    assert worker.had[B] / worker.had[A] == pytest.approx(3, rel=0.2)


def test_a_new_plan_is_served_next_without_credit_for_earlier_time() -> None:
    worker = Slots(4)
    worker.come(A)
    lengths = {A: 0.1, B: 0.1}
    worker.run(100.0, {A: 1}, lengths)
    worker.come(B)
    assert worker.shares.next([(A, 1), (B, 1)], [A, B], worker.now) == (B, 2)
    worker.run(4.0, {A: 1, B: 1}, lengths)
    assert worker.had[B] == pytest.approx(8.0, rel=0.1)


def test_a_plan_that_comes_back_catches_up_for_a_moment_only() -> None:
    worker = Slots(4)
    worker.come(A, B)
    lengths = {A: 0.1, B: 0.1}
    worker.run(2.0, {A: 1, B: 1}, lengths)
    worker.run(1000.0, {A: 1}, lengths)
    worker.come(B)
    worker.had.clear()
    worker.run(4.0, {A: 1, B: 1}, lengths)
    most = 8.0 + CATCH_UP_S * 4 / 2 + 4 * (0.1 + QUANTUM_S)
    assert 8.0 <= worker.had[B] <= most


def test_long_tasks_leave_an_equal_share_to_a_plan_of_short_tasks() -> None:
    worker = Slots(1)
    worker.come(A, B)
    worker.run(50_000.0, {A: 1, B: 1}, {A: 3600.0, B: 1.0})
    assert worker.had[B] / worker.had[A] == pytest.approx(1, rel=0.1)


def test_balanced_ignores_weights_and_greedy_serves_only_the_oldest_plan() -> None:
    for policy, share in (("balanced", 0.5), ("greedy", 1.0)):
        worker = Slots(4, check_policy(policy))
        worker.come(A, B)
        worker.run(20.0, {A: 1, B: 7}, {A: 0.01, B: 0.03})
        assert worker.had[A] / worker.had.total() == pytest.approx(share, abs=0.02)
    # Greedy waits for the new listing of the oldest plan.
    assert worker.shares.next([(B, 1), (A, 1)], [B], worker.now) is None
    with pytest.raises(ZkplanError, match="not 'fair'"):
        check_policy("fair")


def stocked(policy: Policy, *shares: Share, ranks: tuple[str, ...] = ()) -> Candidates:
    """Plans with 100 entries each, all seen running."""
    candidates = plans(*(f"{number:010d}" for number in range(1, 1 + len(shares))))
    candidates.shares = Shares(policy, 2)
    for index, (view, share) in enumerate(zip(candidates.views.values(), shares, strict=True)):
        view.record = PlanRecord("", "", 0.0, TaskOptions(priority=5))
        found = names(*range(100), rank=ranks[index] if ranks else "4995")
        view.begin_look(0.0)
        view.update(PlanLook("running", 0, found, share=share), ALONE, 0.0)
        candidates.file(view)
    return candidates


def chosen(candidates: Candidates) -> str:
    view = candidates.choose(0.0)
    assert view is not None
    return view.number


def test_the_priority_of_a_plan_applies_to_all_its_tasks() -> None:
    assert chosen(stocked("greedy", Share(), Share(priority=6))) == B
    assert chosen(stocked("greedy", Share(priority=4), Share())) == B
    # By the difference, also those with a priority of their own.
    lower = stocked("greedy", Share(priority=-20), Share(), ranks=("4980", "4995"))
    assert chosen(lower) == B
    higher = stocked("greedy", Share(priority=-5), Share(), ranks=("4980", "4995"))
    assert chosen(higher) == A


def test_a_plan_of_chains_yields_to_a_plan_that_has_had_less() -> None:
    candidates = stocked("weighted", Share(), Share())
    assert not candidates.must_yield({A}, 0.0)
    candidates.shares.ended("claim", A, 1.0)
    assert candidates.must_yield({A}, 0.0)
    assert not candidates.must_yield({B}, 0.0)
    candidates.views[B].own.clear()
    assert not candidates.must_yield({A}, 0.0)
    urgent = stocked("balanced", Share(), Share(priority=6))
    assert urgent.must_yield({A}, 0.0)
    assert stocked("greedy", Share(), Share()).must_yield({B}, 0.0)


def test_a_full_worker_looks_now_and_then_at_a_plan_it_holds_no_claim_of() -> None:
    candidates = plans(A, B, C)
    candidates.shares.came(A, 0.0)
    candidates.shares.opened("claim", A)
    assert [view.number for view in candidates.to_look(1.0, 9, hungry=False)] == [B]
    assert candidates.to_look(1.0 + GLANCE_S / 2, 9, hungry=False) == []
    assert [view.number for view in candidates.to_look(1.1 + GLANCE_S, 9, hungry=False)] == [C]


def test_a_plan_of_unknown_tasks_does_not_fill_a_worker_used_to_short_tasks() -> None:
    """After such a burst a worker claims far ahead. The first plan to be listed would take it
    all."""
    found = plans(A, B)
    shares = found.shares = Shares(slots=4)
    for number in range(100):
        shares.came(f"{number + 10:010d}", 0.0)
        shares.ended("", f"{number + 10:010d}", 0.0002)
    for view, weight in zip(found.views.values(), (3, 1), strict=True):
        view.record = PlanRecord("", "", 0.0, weight=weight)
    claimed: Counter[str] = Counter()

    def claim(room: int) -> bool:
        view = found.choose(0.0)
        if view is None:
            return False
        for name in view.take(room).names:
            shares.opened(f"{view.number} {name}", view.number)
            claimed[view.number] += 1
        return True

    found.views[A].update(PlanLook("running", 0, names(*range(100))), ALONE, 0.0)
    found.file(found.views[A])
    while claim(80):
        pass
    assert claimed == {A: 4}
    found.views[B].update(PlanLook("running", 0, names(*range(100))), ALONE, 0.0)
    found.file(found.views[B])
    while claim(80):
        pass
    assert claimed == {A: 4, B: 4}
    for plan in (A, B):
        shares.ended(f"{plan} {names(0)[0]}", plan, 0.02)
    while sum(claimed.values()) < 80:
        assert claim(80 - sum(claimed.values()))
    assert claimed[A] == pytest.approx(3 * claimed[B], rel=0.2)
