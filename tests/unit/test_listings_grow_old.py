"""A listing is repeated when it is old, and any worker tries its urgent tasks first."""

from __future__ import annotations

import pytest

from zkplan.runtime.plan_candidates import Candidates
from zkplan.runtime.plan_entries import CANDIDATES_MAX, NEARLY_EMPTY, URGENT_MAX
from zkplan.runtime.plan_view import (
    LISTING_NAMES,
    REFRESH_MAX_S,
    REFRESH_NAMES_PER_S,
    REFRESH_PARTS,
    REFRESH_S,
    STEAL_AFTER_S,
    PlanView,
)

from .listings import ALONE, FIRST, names, numbered, plans, running, view


def listed(
    candidates: Candidates,
    *numbers: int,
    workers: int = 1,
    number: str = FIRST,
    watch: bool = False,
    took: float = 0.0,
) -> PlanView:
    """A plan that was listed at 0.0, and from which something could be claimed."""
    seen = candidates.views[number]
    seen.watch = watch
    seen.begin_look(-took)
    seen.update(running(names(*numbers)), (0, workers), 0.0)
    candidates.file(seen)
    candidates.choose(0.0)
    return seen


def looks(candidates: Candidates, now: float) -> list[str]:
    """What is listed again before something is claimed."""
    candidates.grow_old(now)
    return [view.number for view in candidates.to_look(now, 9, hungry=True)]


def test_the_rest_of_a_listing_grows_old() -> None:
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
    assert seen.take(9).names == names(0, 3)


def test_entries_can_be_claimed_from_a_listing_before_it_is_repeated() -> None:
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
    assert looks(candidates, 30.0) == [FIRST]


def test_a_plan_that_is_not_in_turn_is_also_listed_again() -> None:
    candidates = plans(FIRST, "0000000002")
    lower, higher = candidates.views.values()
    for seen, rank in ((lower, "5000"), (higher, "4990")):
        seen.watch = False
        seen.begin_look(0.0)
        seen.update(running(names(1, 2, rank=rank)), ALONE, 0.0)
        candidates.file(seen)
    assert candidates.choose(0.0) is higher
    assert sorted(looks(candidates, REFRESH_S)) == [FIRST, "0000000002"]


def test_a_watched_listing_grows_old_only_after_an_event() -> None:
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
        numbers = numbered(others + 1)
        candidates = plans(*numbers)
        for number in numbers:
            listed(candidates, *range(length), workers=workers, number=number)
        assert looks(candidates, wait_s - 0.01) == []
        assert looks(candidates, wait_s) == numbers[:9]


def test_plans_that_need_no_listing_do_not_delay_other_listings() -> None:
    numbers = numbered(999)
    candidates = plans(*numbers)
    for number in numbers[1:]:
        listed(candidates, 1, 2, number=number, watch=True)
    listed(candidates, 1, 2)
    assert looks(candidates, REFRESH_S) == [FIRST]


@pytest.mark.parametrize(
    ("length", "workers", "took", "again"),
    [(2, 1, 0.5, 0.5 * REFRESH_PARTS), (CANDIDATES_MAX, 10_000, 100.0, REFRESH_MAX_S)],
)
def test_a_slow_listing_is_repeated_later_but_within_a_bound(
    length: int, workers: int, took: float, again: float
) -> None:
    candidates = plans(FIRST)
    listed(candidates, *range(length), workers=workers, took=took)
    assert looks(candidates, again - 0.01) == []
    assert looks(candidates, again) == [FIRST]


def test_only_plans_of_the_highest_rank_are_claimed_from_even_during_a_listing() -> None:
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


def test_nothing_is_claimed_from_a_plan_that_waits_to_be_listed_again() -> None:
    numbers = numbered(3)
    candidates = plans(*numbers)
    for number in numbers:
        listed(candidates, 1, 2, number=number)
    candidates.grow_old(REFRESH_S)
    for seen in candidates.to_look(REFRESH_S, 2, hungry=True):
        seen.begin_look(REFRESH_S)
    # The third waits for one of the two.
    assert candidates.choose(REFRESH_S) is None


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


def test_an_event_during_a_long_listing_sets_the_watch_again() -> None:
    candidates = plans(FIRST)
    seen = candidates.views[FIRST]
    seen.watch = False
    for number in (FIRST, None):
        assert seen.begin_look(0.0) is False
        candidates.touched(number, control=True)
        seen.update(running(names(*range(NEARLY_EMPTY))), ALONE, 0.0)
        assert seen.begin_look(0.0) is True
        seen.update(running(names(*range(NEARLY_EMPTY))), ALONE, 0.0)


def test_an_urgent_task_does_not_wait_for_the_worker_of_its_share() -> None:
    seen = view()
    urgent, lost = names(10, rank="4990"), ["5000-0000000004.1.0"]
    found = running([*names(5, 6, 7), *lost, *urgent, "0-strange", "5000-0000000002.x"])
    seen.update(found, (1, 2), 0.0)
    assert list(seen.own) == urgent + lost + names(5, 7)
    # Workers that list again and again would collide each time.
    seen.update(found, (1, 2), REFRESH_S - 0.01)
    assert list(seen.own) == names(5, 7)


def test_lost_tasks_of_ordinary_urgency_are_left_to_the_worker_of_their_share() -> None:
    # Those of one's own that are older or rank higher go first, and so do all that never ran.
    seen = view()
    lost = ["5000-0000000007.1.0", "5010-0000000001.2.1"]
    seen.update(running([*names(4, 5, 6), *lost]), (0, 2), 0.0)
    assert list(seen.own) == names(4, 6)
    # With nothing of its own it waits a moment, as for everything else.
    seen.update(running([*names(5), "5000-0000000003.1.0"]), (0, 2), REFRESH_S)
    assert list(seen.own) == []


def test_a_worker_takes_few_of_many_urgent_tasks() -> None:
    seen = view()
    lost = [f"5000-{number:010d}.1.0" for number in range(1, 99, 2)]
    seen.update(running([*names(100), *lost]), (0, 2), 0.0)
    assert list(seen.own) == lost[:URGENT_MAX] + names(100)


def test_a_worker_that_lists_often_tries_urgent_tasks_once_a_second() -> None:
    seen = view()
    found = running([*names(4, 6), *names(11, rank="4990")])
    tried = []
    for tick in range(11):
        now = tick * REFRESH_S / 2
        seen.update(found, (0, 2), now)
        tried += [now] if seen.take(1).names == names(11, rank="4990") else []
    assert tried == [tick * REFRESH_S for tick in range(6)]


def test_a_worker_that_steals_tries_urgent_tasks() -> None:
    seen = view()
    for now in (0.0, STEAL_AFTER_S):
        seen.update(running([*names(1, 3, 5, 7), *names(11, rank="4990")]), (0, 2), now)
    assert list(seen.own) == names(11, rank="4990") + names(3, 5, 7)


def test_a_task_that_this_worker_cannot_decode_is_tried_last() -> None:
    seen = view()
    lost = "5000-0000000003.1.0"
    found = running([*names(4, 6), lost, "5000-0000000002.1.0"])
    seen.update(found, (0, 2), 0.0)
    assert seen.take(1).names == ["5000-0000000002.1.0"]
    seen.leave(0.0, "0000000002")
    seen.update(found, (0, 2), 2 * REFRESH_S)
    assert seen.take(1).names == [lost]
    seen.leave(2 * REFRESH_S, "0000000003")
    seen.update(found, (0, 2), 4 * REFRESH_S)
    assert list(seen.own) == names(4, 6)
