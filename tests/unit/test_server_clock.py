"""The clock of the server is estimated from brackets around the times that it wrote."""

from __future__ import annotations

import time

from zkplan.protocol.requests import Node, ReadData
from zkplan.transport.server_clock import ServerClock

SERVER_MS = 1_000_000_000


def behind(clock: ServerClock) -> float:
    """How far the known time is behind a server that showed SERVER_MS at monotonic 0."""
    return SERVER_MS / 1000 + time.monotonic() - clock.now()


def test_before_any_measurement_the_local_clock_counts() -> None:
    clock = ServerClock()
    assert not clock.is_known
    assert abs(clock.now() - time.time()) < 1


def test_the_clock_is_never_ahead_and_narrower_brackets_make_it_more_exact() -> None:
    clock = ServerClock()
    clock.learn(SERVER_MS, -3.0, 2.0)
    assert 1.9 < behind(clock) < 2.1
    clock.learn(SERVER_MS + 5000, 4.9, 5.4)
    assert 0.3 < behind(clock) < 0.5
    clock.learn(SERVER_MS + 9000, 8.0, 10.0)  # says nothing new
    assert 0.3 < behind(clock) < 0.5


def test_a_bracket_that_contradicts_earlier_ones_replaces_them() -> None:
    clock = ServerClock()
    clock.learn(SERVER_MS, -0.1, 0.1)
    clock.learn(SERVER_MS + 3_600_000, -0.5, 0.5)  # another server leads
    assert -3600 < behind(clock) < -3599


def test_a_registration_is_read_once_and_only_on_request() -> None:
    clock = ServerClock()
    assert list(clock.measure()) == []
    clock.registered("/workers/a", 1.0, 2.0)
    step = clock.measure()
    assert next(step) == ReadData("/workers/a")
    try:
        step.send(Node(b"", 0, 0, 0, SERVER_MS, SERVER_MS, 1))
    except StopIteration:
        pass
    assert 1.9 < behind(clock) < 2.1
    assert list(clock.measure()) == []
