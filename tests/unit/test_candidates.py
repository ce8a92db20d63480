"""A worker prefers its share of a plan, takes others' late, and comes back to what changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zkplan.protocol.look import PlanLook
from zkplan.working.candidates import Candidates
from zkplan.working.plan_view import (
    AVOID_FIRST_S,
    AVOID_MAX_S,
    CANDIDATES_MAX,
    LISTING_NAMES,
    NEARLY_EMPTY,
    PRESSING_MAX,
    REFRESH_MAX_S,
    REFRESH_NAMES_PER_S,
    REFRESH_PARTS,
    REFRESH_S,
    STEAL_AFTER_S,
    PlanView,
)

ALONE = (0, 1)


def names(*numbers: int, rank: str = "5000") -> list[str]:
    return [f"{rank}-{number:010d}.0.0" for number in numbers]


def running(found: list[str], version: int = 0) -> PlanLook:
    return PlanLook("running", version, found)


def view() -> PlanView:
    return PlanView("0000000001", "/r/plan-0000000001")


def plans(*numbers: str) -> Candidates:
    candidates = Candidates()
    candidates.set_plans(list(numbers), "/r/plan-{}".format)
    return candidates


@given(st.lists(st.integers(0, 500), unique=True, max_size=60), st.integers(1, 5))
def test_the_shares_of_all_workers_are_the_whole_and_do_not_overlap(
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
    assert seen.take(2) == names(9, rank="4990") + names(3)
    assert seen.take(5) == names(7)
    assert seen.take(1) == []


def test_a_worker_takes_from_others_only_after_a_moment() -> None:
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


def test_news_do_not_put_stealing_off_for_ever() -> None:
    seen = view()
    seen.update(running(names(1)), (0, 2), now=10.0)
    seen.begin_look(0.0)
    seen.update(running(names(1, 3)), (0, 2), now=10.0 + STEAL_AFTER_S / 2)
    assert seen.steal_at == 10.0 + STEAL_AFTER_S


def test_nothing_is_kept_of_a_plan_that_does_not_run() -> None:
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


def test_a_short_listing_is_watched_and_a_long_one_is_listed_again() -> None:
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


FIRST = "0000000001"


def listed(
    candidates: Candidates,
    *numbers: int,
    workers: int = 1,
    number: str = FIRST,
    watch: bool = False,
    took: float = 0.0,
) -> PlanView:
    """A plan that was listed at 0.0, and something taken of what was found."""
    seen = candidates.views[number]
    seen.watch = watch
    seen.begin_look(-took)
    seen.update(running(names(*numbers)), (0, workers), 0.0)
    seen.take(1)
    candidates.file(seen)
    return seen


def looks(candidates: Candidates, now: float) -> list[str]:
    """What is listed again before something is claimed."""
    candidates.grow_old(now)
    return [view.number for view in candidates.to_look(now, 9, hungry=True)]


def test_what_is_left_of_a_listing_grows_old() -> None:
    candidates = plans(FIRST)
    seen = listed(candidates, 1, 2, 3)
    assert looks(candidates, REFRESH_S - 0.01) == []
    assert candidates.choose(REFRESH_S - 0.01) is seen
    assert looks(candidates, REFRESH_S) == [FIRST]
    seen.begin_look(REFRESH_S)
    assert looks(candidates, REFRESH_S) == []
    assert candidates.choose(REFRESH_S) is None  # what it has may be gone
    seen.update(running(names(3, 0)), ALONE, REFRESH_S)
    candidates.file(seen)
    assert candidates.choose(REFRESH_S) is seen
    assert seen.take(9) == names(0, 3)


def test_something_is_claimed_from_each_listing() -> None:
    candidates = plans(FIRST)
    seen = listed(candidates, 1, 2, 3)
    assert looks(candidates, 10.0) == [FIRST]
    seen.watch = False
    seen.begin_look(10.0)
    seen.update(running(names(2, 3)), ALONE, 11.0)
    candidates.file(seen)
    # Its worker comes to claim so late that this listing is old as well.
    assert looks(candidates, 30.0) == []
    assert candidates.choose(30.0) is seen
    seen.take(1)
    candidates.file(seen)
    assert looks(candidates, 30.0) == [FIRST]


def test_a_watched_listing_grows_old_only_when_something_was_told() -> None:
    candidates = plans(FIRST)
    listed(candidates, 1, 2, 3, watch=True)
    assert looks(candidates, 100.0) == []
    candidates.touched(FIRST, control=False)
    assert looks(candidates, 100.0) == [FIRST]


def test_long_listings_many_workers_and_many_plans_are_listed_again_less_often() -> None:
    wait_s = 2 * REFRESH_S
    each = int(wait_s * REFRESH_NAMES_PER_S)
    for length, workers, others in (
        (each - LISTING_NAMES, 1, 0),
        (each // 10 - LISTING_NAMES, 10, 0),
        (each // 10 - LISTING_NAMES, 1, 9),
    ):
        numbers = [f"{number:010d}" for number in range(1, others + 2)]
        candidates = plans(*numbers)
        for number in numbers:
            listed(candidates, *range(length), workers=workers, number=number)
        assert looks(candidates, wait_s - 0.01) == []
        assert sorted(looks(candidates, wait_s))[:1] == [FIRST]


def test_plans_that_need_no_listing_make_nobody_wait() -> None:
    numbers = [f"{number:010d}" for number in range(1, 1000)]
    candidates = plans(*numbers)
    for number in numbers[1:]:
        listed(candidates, 1, 2, number=number, watch=True)
    listed(candidates, 1, 2)
    assert looks(candidates, REFRESH_S) == [FIRST]


def test_what_takes_long_to_list_is_listed_again_later() -> None:
    candidates = plans(FIRST)
    listed(candidates, 1, 2, took=0.5)
    assert looks(candidates, 0.5 * REFRESH_PARTS - 0.01) == []
    assert looks(candidates, 0.5 * REFRESH_PARTS) == [FIRST]


def test_at_last_even_the_longest_listing_is_too_old() -> None:
    candidates = plans(FIRST)
    listed(candidates, *range(CANDIDATES_MAX), workers=10_000, took=100.0)
    assert looks(candidates, REFRESH_MAX_S - 0.01) == []
    assert looks(candidates, REFRESH_MAX_S) == [FIRST]


def test_only_plans_of_the_highest_rank_are_claimed_from_also_while_one_is_listed() -> None:
    candidates = plans(FIRST, "0000000002", "0000000003")
    lower, higher, as_high = candidates.views.values()
    lower.update(running(names(1)), ALONE, 0.0)
    for seen in (higher, as_high):
        seen.update(running(names(2, rank="4990")), ALONE, 0.0)
    for seen in (lower, higher, as_high):
        candidates.file(seen)
    higher.begin_look(0.0)
    assert candidates.choose(0.0) is as_high
    assert candidates.choose(0.0) is as_high
    as_high.begin_look(0.0)
    assert candidates.choose(0.0) is None
    for seen in (higher, as_high):
        seen.update(running([]), ALONE, 0.0)
        candidates.file(seen)
    assert candidates.choose(0.0) is lower


def test_what_presses_does_not_wait_for_the_worker_whose_share_it_is() -> None:
    seen = view()
    urgent, lost = names(10, rank="4990"), ["5000-0000000004.1.0"]
    found = running([*names(5, 6, 7), *lost, *urgent, "0-strange", "5000-0000000002.x"])
    seen.update(found, (1, 2), 0.0)
    assert list(seen.own) == urgent + lost + names(5, 7)
    # Workers that list again and again would collide each time.
    seen.update(found, (1, 2), REFRESH_S - 0.01)
    assert list(seen.own) == names(5, 7)


def test_what_is_left_to_the_worker_whose_share_it_is() -> None:
    # Those of one's own that are older or rank higher go first, and so do all that never ran.
    seen = view()
    lost = ["5000-0000000007.1.0", "5010-0000000001.2.1"]
    seen.update(running([*names(4, 5, 6), *lost]), (0, 2), 0.0)
    assert list(seen.own) == names(4, 6)
    # With nothing of its own it waits a moment, as for everything else.
    seen.update(running([*names(5), "5000-0000000003.1.0"]), (0, 2), REFRESH_S)
    assert list(seen.own) == []


def test_a_worker_takes_few_of_many_that_press() -> None:
    seen = view()
    lost = [f"5000-{number:010d}.1.0" for number in range(1, 99, 2)]
    seen.update(running([*names(100), *lost]), (0, 2), 0.0)
    assert list(seen.own) == lost[:PRESSING_MAX] + names(100)


def test_a_task_that_cannot_be_decoded_here_does_not_press_here() -> None:
    seen = view()
    found = running([*names(4, 6), "5000-0000000003.1.0"])
    seen.update(found, (0, 2), 0.0)
    assert seen.take(1) == ["5000-0000000003.1.0"]
    seen.avoid(0.0)
    seen.update(found, (0, 2), AVOID_FIRST_S)
    assert list(seen.own) == names(4, 6)


def test_what_is_stolen_is_gone_on_with() -> None:
    seen = view()
    seen.update(running(names(1, 3, 5, 7)), (0, 2), 0.0)
    seen.update(running(names(1, 3, 5, 7)), (0, 2), STEAL_AFTER_S)
    assert seen.take(1) == names(5)
    seen.update(running(names(3, 7, 9, 11)), (0, 2), 5.0)
    assert list(seen.own) == names(9, 11)
    # What was used up waits a moment again: others may list as well.
    seen.take(2)
    seen.update(running(names(3, 7)), (0, 2), 6.0)
    assert list(seen.own) == []


def test_a_long_listing_is_not_watched_again_when_its_first_watch_fires() -> None:
    candidates = plans(FIRST)
    seen = candidates.views[FIRST]
    assert seen.begin_look(0.0) is True
    seen.update(running(names(*range(NEARLY_EMPTY))), ALONE, 0.0)
    candidates.touched(FIRST, control=False)
    assert seen.begin_look(0.0) is False
    seen.update(running(names(*range(NEARLY_EMPTY))), ALONE, 0.0)
    # The watch on `ready` is renewed when it has fired, and all of them with the connection.
    candidates.touched(FIRST, control=True)
    assert seen.begin_look(0.0) is True
    seen.update(running(names(*range(NEARLY_EMPTY))), ALONE, 0.0)
    candidates.touched(None, control=True)
    assert seen.begin_look(0.0) is True


def test_news_during_a_listing_are_not_lost() -> None:
    candidates = plans("0000000001")
    seen = candidates.views["0000000001"]
    seen.begin_look(0.0)
    candidates.touched("0000000001", control=False)
    seen.update(running([]), ALONE, 0.0)
    assert seen.wants_look(0.0)


def test_a_huge_listing_is_cut_to_the_first() -> None:
    seen = view()
    seen.update(running(names(*range(CANDIDATES_MAX + 100, 0, -1))), ALONE, 0.0)
    assert len(seen.own) == CANDIDATES_MAX
    assert seen.take(1) == names(1)


def test_a_plan_that_could_not_be_decoded_is_left_alone_longer_each_time() -> None:
    seen = view()
    now, waits = 0.0, []
    for _ in range(9):
        seen.update(running(names(1)), ALONE, now)
        seen.avoid(now)
        seen.avoid(now)  # a second task of the same claim
        waits.append(seen.avoid_until - now)
        assert not seen.wants_look(now)
        assert not seen.own
        now = seen.avoid_until
        assert seen.wants_look(now)
    assert waits[:4] == [AVOID_FIRST_S, 2 * AVOID_FIRST_S, 4 * AVOID_FIRST_S, 8 * AVOID_FIRST_S]
    assert waits[-1] == AVOID_MAX_S


def test_plans_are_served_in_turn() -> None:
    candidates = plans("0000000001", "0000000002", "0000000003")
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


def test_removed_plans_are_forgotten_and_new_ones_looked_at() -> None:
    candidates = plans("0000000001", "0000000002")
    kept = candidates.views["0000000002"]
    kept.update(running(names(1)), ALONE, 0.0)
    candidates.set_plans(["0000000002", "0000000003"], "/r/plan-{}".format)
    assert candidates.views["0000000002"] is kept
    assert set(candidates.views) == {"0000000002", "0000000003"}
    assert "0000000003" in [v.number for v in candidates.to_look(0.0, 9, hungry=True)]


def test_a_worker_without_a_free_slot_looks_only_at_what_changed() -> None:
    candidates = plans("0000000001", "0000000002")
    for seen in candidates.views.values():
        seen.begin_look(0.0)
        seen.update(running([]), ALONE, 0.0)
        candidates.file(seen)
    candidates.touched("0000000001", control=False)
    assert candidates.to_look(0.0, 9, hungry=False) == []
    candidates.touched("0000000002", control=True)
    (found,) = candidates.to_look(0.0, 9, hungry=False)
    assert found.number == "0000000002"
    assert len(candidates.to_look(0.0, 9, hungry=True)) == 2
    assert len(candidates.to_look(0.0, 1, hungry=True)) == 1
