"""The timeout of attempts to connect is short at first and grows to that of kazoo."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Connect

from zkplan.transport.kazoo_repairs import ATTEMPT_S, Attempts, bound_attempts, repair

SESSION_S = MOST_S = 10.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Over(BaseException):
    """As gevent's time-out."""


@pytest.mark.parametrize("error", [OSError, Over])
def test_each_attempt_that_times_out_doubles_the_timeout_of_the_next(
    error: type[BaseException],
) -> None:
    clock = Clock()
    given: list[float] = []

    def hang(within_s: float) -> None:
        given.append(within_s)
        clock.now += within_s
        raise error

    made = Attempts(SESSION_S, clock)
    for _ in range(5):
        with pytest.raises(error):
            made.make(MOST_S, hang)
    assert given == [ATTEMPT_S, 2 * ATTEMPT_S, 4 * ATTEMPT_S, MOST_S, MOST_S]


def test_an_attempt_that_needed_long_lengthens_the_next_one() -> None:
    clock = Clock()

    def answer(seconds: float) -> None:
        clock.now += seconds

    made = Attempts(SESSION_S, clock)
    made.make(MOST_S, lambda within_s: answer(1.5))
    assert made.within_s == 3.0
    made.make(MOST_S, lambda within_s: answer(0.1))
    assert made.within_s == ATTEMPT_S


def test_an_attempt_that_fails_at_once_changes_nothing() -> None:
    def refuse(within_s: float) -> None:
        raise OSError("refused")

    made = Attempts(SESSION_S, Clock())
    for _ in range(3):
        with pytest.raises(OSError, match="refused"):
            made.make(MOST_S, refuse)
    assert made.within_s == ATTEMPT_S


def test_a_short_session_has_short_attempts_and_kazoo_may_shorten_them() -> None:
    given: list[float] = []
    made = Attempts(1.0, Clock())
    made.make(MOST_S, given.append)
    made.make(0.1, given.append)
    assert given == [0.2, 0.1]


@pytest.fixture
def asked() -> list[Any]:
    """What time kazoo's own steps were given by a client that is not started."""
    found: list[Any] = []
    client = KazooClient("127.0.0.1:1", timeout=SESSION_S)
    client._connection._invoke = lambda timeout, request: found.append(timeout)
    client.handler.create_connection = lambda address, timeout=None: found.append(timeout)
    bound_attempts(client)
    client.handler.create_connection(("127.0.0.1", 1), timeout=SESSION_S)
    client.handler.create_connection(("127.0.0.1", 1))
    for session_id in (7, 0):
        request = Connect(0, 0, 10_000, session_id, b"", False)
        client._connection._invoke(SESSION_S, request)
    client._connection._invoke(SESSION_S, "an authentication")
    client.close()
    return found


def test_only_connections_and_handshakes_of_a_session_are_bounded(
    asked: list[Any],
) -> None:
    assert asked == [ATTEMPT_S, None, ATTEMPT_S, SESSION_S, SESSION_S]


def test_a_client_given_twice_is_repaired_once() -> None:
    client = KazooClient("127.0.0.1:1")
    repair(client)
    once = vars(client._connection) | {"create": client.handler.create_connection}
    repair(client)
    assert once == vars(client._connection) | {"create": client.handler.create_connection}
    client.close()
