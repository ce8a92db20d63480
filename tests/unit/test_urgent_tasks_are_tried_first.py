"""Urgent tasks are tried by all workers; tasks that cannot be decoded are tried last."""

from __future__ import annotations

from zkplan.runtime.plan_view import (
    AVOID_FIRST_S,
    AVOID_MAX_S,
    REFRESH_S,
    STEAL_AFTER_S,
    URGENT_MAX,
)

from .listings import names, running, view


def test_an_urgent_task_does_not_wait_for_the_worker_whose_share_it_is_in() -> None:
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


def test_a_worker_takes_only_a_few_of_many_urgent_tasks() -> None:
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
        tried += [now] if seen.take(1) == names(11, rank="4990") else []
    assert tried == [tick * REFRESH_S for tick in range(6)]


def test_a_worker_that_takes_from_other_shares_tries_urgent_tasks() -> None:
    seen = view()
    for now in (0.0, STEAL_AFTER_S):
        seen.update(running([*names(1, 3, 5, 7), *names(11, rank="4990")]), (0, 2), now)
    assert list(seen.own) == names(11, rank="4990") + names(3, 5, 7)


def test_a_task_that_cannot_be_decoded_here_is_tried_last() -> None:
    seen = view()
    lost = "5000-0000000003.1.0"
    found = running([*names(4, 6), lost, "5000-0000000002.1.0"])
    seen.update(found, (0, 2), 0.0)
    assert seen.take(1) == ["5000-0000000002.1.0"]
    seen.avoid(0.0, "0000000002")
    seen.update(found, (0, 2), AVOID_FIRST_S)
    assert seen.take(1) == [lost]
    seen.avoid(AVOID_FIRST_S, "0000000003")
    seen.update(found, (0, 2), 3 * AVOID_FIRST_S)
    assert list(seen.own) == names(4, 6)
    seen.update(running([lost, "5000-0000000002.2.0"]), (0, 2), 9 * AVOID_FIRST_S)
    assert list(seen.own) == ["5000-0000000002.2.0"]


def test_two_workers_that_lack_different_modules_run_all_that_either_can() -> None:
    left = {f"5000-{number:010d}": 0 for number in range(100)}
    lacking = {0: "5000-0000000000", 1: "5000-0000000001"}  # by place: the first of its share
    views, now = {0: view(), 1: view()}, 0.0
    while left and now < 600.0:
        for place, seen in views.items():
            if not seen.own and now >= seen.avoid_until:
                entries = [f"{name}.{n}.0" for name, n in left.items()]
                seen.update(running(entries), (place, 2), now)
            for entry in seen.take(1):
                name = entry.partition(".")[0]
                if name not in left:
                    continue  # the other one has it
                if name == lacking[place]:
                    left[name] += 1
                    seen.avoid(now, name[5:])
                else:
                    del left[name]
        now += 0.1
    assert not left


def test_a_plan_that_was_left_alone_for_long_has_no_urgent_tasks() -> None:
    seen = view()
    seen.leave_alone(0.0)
    seen.update(running([*names(4, 6), "5000-0000000003.1.0"]), (0, 2), AVOID_MAX_S)
    assert list(seen.own) == names(4, 6)
