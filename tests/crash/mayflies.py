"""Sessions that come and go while the server crashes: their ephemeral nodes go with them."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from tests.differential.packing import Ask
from tests.differential.rawclient import Answer as Frame

from .clients import OPEN, Address, Client, RawSession
from .writes import EPHEMERAL, ROOT

TIMEOUT_MS = 1000
EACH = 3
#: How late an expiry may come on a busy machine, which may hold the server up for seconds.
_LATE_S = 10.0
_REST_S = 0.03


class Period(NamedTuple):
    """When a server was started, when it was seen to serve, and when it was seen ended."""

    begun_s: float
    serving_s: float
    ended_s: float


class _Mayfly:
    """`heard_s`: the server got its last request between these two times."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.heard_s = (time.monotonic(), float("inf"))
        self.is_made: bool | None = None
        self.is_closed = False
        self.asked_to_close = False
        self.is_gone = False


class Mayflies(Client):
    """Makes session after session, each with three ephemeral nodes, and leaves or closes it."""

    def __init__(self, seed: int, address: Address) -> None:
        self._random = random.Random(seed)
        self._address = address
        self._all: list[_Mayfly] = []
        super().__init__("mayflies")

    def __len__(self) -> int:
        return len(self._all)

    def work(self) -> None:
        while not self.pausing.wait(_REST_S):
            session = RawSession(self._address, TIMEOUT_MS)
            connection = session.connect()
            try:
                mayfly = _Mayfly(len(self._all))
                self._all.append(mayfly)
                paths = [f"{ROOT}/mayfly/{mayfly.number:06d}-{i}" for i in range(EACH)]
                asks = tuple(Ask("create", (path, b"", OPEN, EPHEMERAL)) for path in paths)
                frames = session.ask(connection, (Ask("multi", (asks,)),))
                if not frames:
                    return
                assert isinstance(frames[0], Frame)
                assert frames[0].error == 0, frames
                mayfly.is_made = True
                mayfly.heard_s = (mayfly.heard_s[0], time.monotonic())
                self.seen_zxid = max(self.seen_zxid, session.seen_zxid)
                if self._random.random() < 0.5:
                    mayfly.asked_to_close = True
                    mayfly.is_closed = bool(session.ask(connection, (Ask("close"),)))
            finally:
                connection.close()

    def check(self, names: list[str], periods: list[Period]) -> list[str]:
        """What is wrong with these names, listed just now at the end of the last period."""
        there: dict[int, int] = {}
        for name in names:
            number = int(name.partition("-")[0])
            there[number] = there.get(number, 0) + 1
        faults = [f"nobody made mayfly {number}" for number in there if number >= len(self._all)]
        for mayfly in self._all:
            faults += _judge(mayfly, there.get(mayfly.number, 0), periods)
        return faults


def _judge(mayfly: _Mayfly, count: int, periods: list[Period]) -> list[str]:
    what = f"mayfly {mayfly.number} has {count} of its {EACH} nodes"
    timeout_s = TIMEOUT_MS / 1000
    sent_s, answered_s = mayfly.heard_s
    longest = max(end - max(begun, sent_s) for begun, _, end in periods)
    surest = max(end - max(serving, answered_s) for _, serving, end in periods)
    if count not in (0, EACH):
        return [what]
    if count and mayfly.is_gone:
        return [f"{what}, all of which had been gone before"]
    if count and mayfly.is_closed:
        return [f"{what}, and its session was closed"]
    if count and surest > timeout_s + _LATE_S:
        return [f"{what} {surest:.1f} s after its session was last heard of"]
    if not count and mayfly.is_made and not mayfly.asked_to_close and longest < timeout_s:
        return [f"{what}, {longest:.3f} s after its session was last heard of"]
    mayfly.is_gone = not count
    return []
