"""A worker claims tasks ahead if that helps, and no more than it can commit."""

from __future__ import annotations

from typing import Any

import pytest

from zkplan.errors import ServerFull
from zkplan.protocol.transactions import Claim
from zkplan.runtime.claims import (
    AHEAD_BYTES_MAX,
    AHEAD_MAX,
    STALLED_S,
    UNCOMMITTED_BYTES_MAX,
    UNCOMMITTED_MAX,
    Capacity,
    Claims,
    KeptResults,
)
from zkplan.runtime.plan_shares import Shares
from zkplan.runtime.statistics import Counters


class ThreadPool:
    """Slots that are all held; what waits for one can be taken back."""

    def __init__(self, threads: int) -> None:
        self.count = self.slots = threads
        self.put, self.running = 0, dict.fromkeys(range(threads))

    def waiting(self) -> int:
        return self.put

    def take_waiting(self) -> list[Any]:
        self.put = 0
        return []


def claims_of(threads: int) -> tuple[Claims, Any]:
    nothing: Any = None
    slots: Any = ThreadPool(threads)
    claims = Claims(
        steps=nothing,
        pool=slots,
        kept=KeptResults(),
        prefetch=nothing,
        counters=Counters(),
        shares=Shares(),
    )
    return claims, slots


def room_of_tasks(seconds: float, size: int = 0, threads: int = 8) -> Capacity:
    found = Capacity(threads)
    for _ in range(200):
        found.ended(seconds, size, 0.0)
    return found


@pytest.mark.parametrize("threads", [1, 4, 8, 16, 64])
def test_tasks_handed_back_because_of_long_tasks_are_not_claimed_again(threads: int) -> None:
    claims, slots = claims_of(threads)
    for _ in range(200):
        claims.capacity.ended(0.001, 0, 0.0)
    slots.put = ahead = claims.free()
    assert ahead > 0
    claims.hand_back_stalled(STALLED_S)
    assert slots.put == ahead  # one may still end soon
    claims.hand_back_stalled(STALLED_S + 0.01)
    assert slots.put == 0
    assert claims.free() == 0


def test_claiming_ahead_grows_again_when_short_tasks_end() -> None:
    claims, slots = claims_of(8)
    slots.put = 1
    claims.hand_back_stalled(1.0)
    assert claims.free() == 0
    for _ in range(200):
        claims.capacity.ended(0.0, 0, 1.0)
    assert claims.free() == AHEAD_MAX


def test_claims_that_wait_for_their_commit_are_bounded() -> None:
    found = room_of_tasks(0.0)
    most = found.free(0, 0, 0, plenty=True)
    assert most == 8 + AHEAD_MAX
    assert found.free(0, UNCOMMITTED_MAX, 0, plenty=True) == most
    assert found.free(0, UNCOMMITTED_MAX + 100, 0, plenty=True) == most - 100
    assert found.free(0, UNCOMMITTED_MAX + most, 0, plenty=True) == 0


def test_nothing_is_claimed_while_large_results_wait_for_their_commit() -> None:
    found = room_of_tasks(0.0)
    assert found.free(0, 1, UNCOMMITTED_BYTES_MAX - 1, plenty=True) > 0
    assert found.free(0, 1, UNCOMMITTED_BYTES_MAX, plenty=True) == 0


def test_tasks_with_large_values_are_claimed_ahead_according_to_size() -> None:
    size = 512 * 1024
    assert room_of_tasks(0.0, size).free(0, 0, 0, plenty=True) == 8 + AHEAD_BYTES_MAX // size


@pytest.mark.parametrize(("seconds", "ahead"), [(0.001, True), (0.01, False), (0.03, False)])
def test_long_tasks_of_a_narrow_plan_are_left_to_idle_workers(seconds: float, ahead: bool) -> None:
    found = room_of_tasks(seconds)
    assert found.free(0, 0, 0, plenty=True) > 8
    assert (found.free(0, 0, 0, plenty=False) > 8) is ahead


def test_one_slow_task_does_not_make_all_tasks_count_as_long() -> None:
    found = room_of_tasks(0.0005)
    found.ended(0.5, 0, 0.0)
    assert not found.are_long


def test_results_that_wait_for_room_do_not_reduce_the_claims_for_free_slots() -> None:
    claims, slots = claims_of(8)
    slots.running.clear()
    claims.jobs = dict.fromkeys(map(str, range(5000)))  # type: ignore[assignment]
    assert claims.free() <= 0
    claims._kept.keep(Claim("1", "2", "5000", 0, 0, "/c", "/p", "/p/t"), 1, ServerFull("full"))
    assert claims.free() == 8
