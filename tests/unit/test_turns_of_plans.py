"""Which plan a worker serves next: the one whose first entry ranks highest, then in turn."""

from __future__ import annotations

from zkplan.protocol.look import PlanLook
from zkplan.runtime.candidates import Candidates


def stocked(**entries: list[str]) -> Candidates:
    """Candidates with plans of these numbers, holding these entries."""
    candidates = Candidates()
    candidates.set_plans(list(entries), lambda number: f"/zkplan/plan-{number}")
    for number, names in entries.items():
        view = candidates.views[number]
        view.begin_look(0.0)
        view.update(PlanLook("running", 1, names), (0, 1), 0.0)
        candidates.file(view)
    return candidates


def served(candidates: Candidates, count: int) -> list[str]:
    order = []
    for _ in range(count):
        view = candidates.choose(1.0)
        assert view is not None
        view.take(1)
        candidates.file(view)
        order.append(view.number)
    return order


def names(rank: str, count: int) -> list[str]:
    return [f"{rank}-{task:010d}.0.0" for task in range(count)]


def test_plans_of_one_rank_take_turns() -> None:
    assert served(stocked(a=names("5000", 2), b=names("5000", 2)), 4) == ["a", "b", "a", "b"]


def test_a_plan_of_higher_priority_goes_first() -> None:
    candidates = stocked(a=names("5000", 2), b=names("4990", 2))
    assert served(candidates, 4) == ["b", "b", "a", "a"]
    assert candidates.choose(1.0) is None


def test_the_first_entry_of_a_plan_speaks_for_it() -> None:
    candidates = stocked(a=[*names("4990", 1), "5000-0000000009.0.0"], b=names("4995", 1))
    assert served(candidates, 3) == ["a", "b", "a"]
