"""How many tasks a worker claims ahead: many short ones, none where long ones hold its slots."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zkplan.working.claims import PREFETCH_MAX, STALLED_S, Claims


class Slots:
    """Slots that are all held; what waits for one can be taken back."""

    def __init__(self, threads: int) -> None:
        self.waiting, self.running = 0, dict.fromkeys(range(threads))

    def take_waiting(self) -> list[Any]:
        self.waiting = 0
        return []


def claims_of(threads: int) -> tuple[Claims, Slots]:
    slots = Slots(threads)
    engine: Any = SimpleNamespace(
        threads=threads, slots=slots, seeker=SimpleNamespace(claiming=0), ahead=None
    )
    return Claims(engine), slots


@pytest.mark.parametrize("threads", [1, 4, 8, 16, 64])
def test_what_long_tasks_made_go_back_is_not_claimed_again(threads: int) -> None:
    claims, slots = claims_of(threads)
    for _ in range(200):
        claims.ended(0.001, 0.0)
    slots.waiting = ahead = claims.free
    assert ahead > 0

    claims.give_back_stalled(STALLED_S)
    assert slots.waiting == ahead  # one may still end soon
    claims.give_back_stalled(STALLED_S + 0.01)

    assert slots.waiting == 0
    assert claims.free == 0


def test_more_is_claimed_ahead_again_when_short_tasks_end() -> None:
    claims, slots = claims_of(8)
    slots.waiting = 1
    claims.give_back_stalled(1.0)
    assert claims.free == 0

    for _ in range(200):
        claims.ended(0.0, 1.0)

    assert claims.free == PREFETCH_MAX
