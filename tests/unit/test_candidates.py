"""A worker prefers its share of a plan, steals from other shares late, and returns on changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zkplan.protocol.core.plans_and_queues import PlanLook
from zkplan.runtime.plan_candidates import Candidates
from zkplan.runtime.plan_entries import (
    AVOID_FIRST_S,
    AVOID_MAX_S,
    CANDIDATES_MAX,
    IN_VAIN_MAX,
    NEARLY_EMPTY,
)
from zkplan.runtime.plan_view import STEAL_AFTER_S

from .listings import ALONE, FIRST, names, numbered, plans, running, standing_still, view


@given(st.lists(st.integers(0, 500), unique=True, max_size=60), st.integers(1, 5))
def test_the_shares_of_all_workers_cover_everything_without_overlap(
    numbers: list[int], count: int
) -> None:
    shares = []
    for place in range(count):
        seen = view()
        seen.update(running(names(*numbers)), (place, count), 0.0)
        shares += list(seen.own)
    assert sorted(shares) == sorted(names(*numbers))


def test_entries_are_taken_in_order_of_priority_and_age() -> None:
    seen = view()
    seen.update(running(names(7, 3) + names(9, rank="4990")), ALONE, 0.0)
    assert seen.take(2).names == names(9, rank="4990") + names(3)
    assert seen.take(5).names == names(7)
    assert seen.take(1).names == []


def test_a_worker_steals_from_other_shares_only_after_a_moment() -> None:
    seen = view()
    seen.begin_look(0.0)
    seen.update(running(names(1, 3, 5, 7)), (0, 2), now=10.0)
    assert not seen.own
    assert not seen.must_look
    assert not seen.wants_look(10.0)
    assert seen.wants_look(10.0 + STEAL_AFTER_S)
    seen.begin_look(0.0)
    seen.update(running(names(1, 3, 5, 7)), (0, 2), 10.0 + STEAL_AFTER_S)
    # The tail, where the worker whose share it is comes last.
    assert list(seen.own) == names(5, 7)


def test_changes_in_a_plan_do_not_delay_stealing_for_ever() -> None:
    seen = view()
    seen.update(running(names(1)), (0, 2), now=10.0)
    seen.begin_look(0.0)
    seen.update(running(names(1, 3)), (0, 2), now=10.0 + STEAL_AFTER_S / 2)
    assert seen.steal_at == 10.0 + STEAL_AFTER_S


def test_candidates_of_a_plan_that_is_not_running_are_dropped() -> None:
    for look in (
        PlanLook("paused", 3, names(1)),
        PlanLook("cancelled", 3, names(1)),
        PlanLook(None, -1, None),
    ):
        seen = view()
        seen.update(running(names(1)), ALONE, 0.0)
        seen.update(look, ALONE, 0.0)
        assert not seen.own
        assert not seen.running


def test_a_short_listing_is_watched_and_a_long_one_is_repeated() -> None:
    seen = view()
    assert seen.begin_look(0.0) is True
    seen.update(running(names(*range(NEARLY_EMPTY))), ALONE, 0.0)
    assert not seen.watch
    assert not seen.must_look  # its first listing was watched
    seen.must_look = True
    assert seen.begin_look(0.0) is False
    seen.update(running(names(*range(NEARLY_EMPTY))), ALONE, 0.0)
    assert seen.must_look
    assert not seen.wants_look(0.0)  # what it has comes first
    seen.take(NEARLY_EMPTY)
    assert seen.wants_look(0.0)


def test_a_worker_that_has_stolen_goes_on_with_new_entries_of_other_shares() -> None:
    seen = view()
    seen.update(running(names(1, 3, 5, 7)), (0, 2), 0.0)
    seen.update(running(names(1, 3, 5, 7)), (0, 2), STEAL_AFTER_S)
    assert seen.take(1).names == names(5)
    seen.update(running(names(3, 7, 9, 11)), (0, 2), 5.0)
    assert list(seen.own) == names(9, 11)
    # After its entries are used up the worker waits again: others may list as well.
    seen.take(2)
    seen.update(running(names(3, 7)), (0, 2), 6.0)
    assert list(seen.own) == []


def test_changes_during_a_listing_are_not_lost() -> None:
    candidates = plans("0000000001")
    seen = candidates.views["0000000001"]
    seen.begin_look(0.0)
    candidates.touched("0000000001", control=False)
    seen.update(running([]), ALONE, 0.0)
    assert seen.wants_look(0.0)


def test_a_huge_listing_is_cut_to_its_first_entries() -> None:
    seen = view()
    seen.update(running(names(*range(CANDIDATES_MAX + 100, 0, -1))), ALONE, 0.0)
    assert len(seen.own) == CANDIDATES_MAX
    assert seen.take(1).names == names(1)


def test_tasks_that_cannot_run_here_rest_longer_each_time_without_blocking_others() -> None:
    candidates = plans(FIRST)
    seen, now, waits = candidates.views[FIRST], 0.0, []
    for turn in range(9):
        seen.begin_look(now)
        seen.update(running(names(1, 2)), ALONE, now)
        for name in seen.take(2).names:
            seen.leave(now, name[5:15])
        good = names(10 + turn)
        seen.update(running(names(1, 2) + good), ALONE, now)
        assert seen.take(3).names == good, "it came later, and does not rest with them"
        seen.update(running(names(1, 2)), ALONE, now)
        candidates.file(seen)
        assert not seen.own
        assert not candidates.to_look(now, 1, hungry=True)
        waits.append(candidates.next_event() - now)
        now += waits[-1]
        assert candidates.to_look(now, 1, hungry=True) == [seen]
    assert waits[:4] == [AVOID_FIRST_S, 2 * AVOID_FIRST_S, 4 * AVOID_FIRST_S, 8 * AVOID_FIRST_S]
    assert waits[-1] == AVOID_MAX_S


def test_a_plan_rests_only_after_many_tasks_in_a_row_that_cannot_run_here() -> None:
    candidates = plans(FIRST)
    seen = candidates.views[FIRST]

    def leave(*tasks: int) -> bool:
        seen.update(running(names(*tasks)), ALONE, 0.0)
        for name in seen.take(len(tasks)).names:
            seen.leave(0.0, name[5:15])
        return seen.avoid_until > 0.0

    assert not leave(*range(IN_VAIN_MAX - 1))
    candidates.has_run(FIRST)
    assert not leave(*range(IN_VAIN_MAX, 2 * IN_VAIN_MAX - 1))
    assert leave(2 * IN_VAIN_MAX)
    assert not seen.wants_look(AVOID_FIRST_S / 2)


def test_plans_are_served_in_turn() -> None:
    candidates = plans(*numbered(3))
    for number in ("0000000001", "0000000003"):
        candidates.views[number].update(running(names(1, 2, 3)), ALONE, 0.0)
        candidates.file(candidates.views[number])
    chosen = []
    for _ in range(4):
        found = candidates.choose(0.0)
        assert found is not None
        found.take(1)
        chosen.append(found.number[-1])
    assert chosen == ["1", "3", "1", "3"]


def test_plans_that_change_constantly_do_not_hide_other_plans() -> None:
    numbers = numbered(10)
    candidates = plans(*numbers)
    looked_at = []
    for _ in range(6):
        for seen in candidates.to_look(0.0, 4, hungry=True):
            seen.begin_look(0.0)
            looked_at.append(seen.number)
            candidates.touched(seen.number, control=False)
            seen.update(running([]), ALONE, 0.0)
            candidates.file(seen)
    assert looked_at == [*numbers, *numbers, *numbers[:4]]


def checks(candidates: Candidates, seconds: range, *busy: str) -> dict[str, list[int]]:
    """When each plan is checked, one a second; `busy` are those of which each finds something."""
    made: dict[str, list[int]] = {}
    for now in seconds:
        seen = candidates.to_check(now, ALONE, 2.0)
        if seen is not None:
            made.setdefault(seen.number, []).append(now)
            seen.check_s = 2.0 if seen.number in busy else min(60.0, 2 * seen.check_s)
            seen.check_at = now + seen.check_s
    return made


def test_idle_plans_are_checked_in_turn_however_many_there_are() -> None:
    numbers, candidates = numbered(300), standing_still(300)
    made = checks(candidates, range(1000))
    assert sorted(made) == numbers
    assert {len(found) for found in made.values()} <= {3, 4}
    # One that stands still since just now does not wait for all the others.
    candidates.set_plans([*numbers, "0000000999"], "/r/plan-{}".format)
    candidates.views["0000000999"].update(running([]), ALONE, 0.0)
    made = checks(candidates, range(1000, 1200))
    assert made["0000000999"][0] < 1000 + len(numbers) / 4
    assert len(made) > 150


def test_a_plan_whose_checks_find_something_does_not_delay_other_checks() -> None:
    numbers, candidates = numbered(10), standing_still(10)
    made = checks(candidates, range(1000), *numbers[:3])
    assert sorted(made) == numbers
    assert min(len(found) for found in made.values()) >= 10


def test_a_plan_with_something_to_claim_is_not_checked() -> None:
    candidates = plans(*numbered(4))
    looks = (
        running(names(1)),
        PlanLook("paused", 0, []),
        PlanLook("running", 0, None),
        running([]),
    )
    for seen, look in zip(candidates.views.values(), looks, strict=True):
        seen.update(look, ALONE, 0.0)
    # Somebody has deleted the `runnable` of the third: it has no listing.
    assert sorted(checks(candidates, range(10))) == ["0000000003", "0000000004"]
    candidates.views["0000000004"].finished = True
    assert candidates.to_check(1000.0, (1, 2), 2.0) is candidates.views["0000000003"]
    assert candidates.to_check(1000.0, (0, 2), 2.0) is None


def test_removed_plans_are_forgotten_and_new_plans_are_looked_at() -> None:
    candidates = plans(*numbered(2))
    kept = candidates.views["0000000002"]
    kept.update(running(names(1)), ALONE, 0.0)
    candidates.set_plans(["0000000002", "0000000003"], "/r/plan-{}".format)
    assert candidates.views["0000000002"] is kept
    assert set(candidates.views) == {"0000000002", "0000000003"}
    assert "0000000003" in [v.number for v in candidates.to_look(0.0, 9, hungry=True)]


def test_a_worker_without_a_free_slot_looks_only_at_changed_plans() -> None:
    candidates = plans(*numbered(2))
    for seen in candidates.views.values():
        seen.begin_look(0.0)
        seen.update(running([]), ALONE, 0.0)
        candidates.file(seen)
        candidates.shares.came(seen.number, 0.0)
        candidates.shares.opened("its claim", seen.number)
    candidates.shares.opened("another", "0000000002")
    candidates.touched("0000000001", control=False)
    assert candidates.to_look(0.0, 9, hungry=False) == []
    candidates.touched("0000000002", control=True)
    (found,) = candidates.to_look(0.0, 9, hungry=False)
    assert found.number == "0000000002"
    assert len(candidates.to_look(0.0, 9, hungry=True)) == 2
    assert len(candidates.to_look(0.0, 1, hungry=True)) == 1


def test_only_idle_slots_take_the_last_entries_of_other_shares_at_once() -> None:
    seen = view()
    seen.update(running(names(10, 11, 12, 13)), (0, 2), 0.0, spare=3)
    assert seen.take(9).names == names(10, 12, 13)
    seen.update(running(names(11, 13)), (0, 2), 0.0, spare=1)
    assert seen.take(9).names == names(13)
    seen = view()
    seen.update(running(names(10, 11, 12, 13)), (0, 2), 0.0, spare=2)
    assert seen.take(9).names == names(10, 12)


def test_with_a_full_server_the_newest_entries_are_tried_first() -> None:
    seen = view()
    seen.update(running(names(10, 11, 12)), ALONE, 0.0, newest_first=True)
    assert seen.take(9).names == names(12, 11, 10)


def test_a_plan_ranks_by_its_first_entry() -> None:
    candidates = plans(*numbered(2))
    first, second = candidates.views.values()
    first.update(running(names(1, rank="4990") + names(9)), ALONE, 0.0)
    second.update(running(names(1, rank="4995")), ALONE, 0.0)
    for seen in (first, second):
        candidates.file(seen)
    for expected in (first, second, first, None):
        found = candidates.choose(1.0)
        assert found is expected
        if found is not None:
            found.take(1)
            candidates.file(found)
