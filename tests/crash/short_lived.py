"""Sessions that come and go while the server crashes: their ephemeral nodes go with them."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from tests.tools import requests as ask
from tests.tools.rawclient import Answer as Frame

from .clients import Address, Client, RawSession
from .writes import ROOT

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


@dataclass
class _Session:
    """The server got its last request between `sent_s` and `answered_s`."""

    number: int
    sent_s: float
    answered_s: float = math.inf
    is_made: bool = False
    is_closed: bool = False
    asked_to_close: bool = False
    is_gone: bool = False


class ShortSessions(Client):
    """Makes session after session, each with three ephemeral nodes, and leaves or closes it."""

    def __init__(self, seed: int, address: Address) -> None:
        self._random = random.Random(seed)
        self._address = address
        self._all: list[_Session] = []
        super().__init__("short sessions")

    def __len__(self) -> int:
        return len(self._all)

    def work(self) -> None:
        while not self.pausing.wait(_REST_S):
            raw = RawSession(self._address, TIMEOUT_MS)
            with contextlib.closing(raw.connect()) as connection:
                session = _Session(len(self._all), time.monotonic())
                self._all.append(session)
                paths = [f"{ROOT}/short/{session.number:06d}-{i}" for i in range(EACH)]
                made = [ask.create(path, flags=ask.EPHEMERAL) for path in paths]
                frames = raw.ask(connection, (ask.multi(*made),))
                if not frames:
                    return
                assert isinstance(frames[0], Frame)
                assert frames[0].error == 0, frames
                session.is_made = True
                session.answered_s = time.monotonic()
                self.seen_zxid = max(self.seen_zxid, raw.seen_zxid)
                if self._random.random() < 0.5:
                    session.asked_to_close = True
                    session.is_closed = bool(raw.ask(connection, (ask.CLOSE_SESSION,)))

    def check(self, names: list[str], periods: list[Period]) -> list[str]:
        """What is wrong with these names, listed just now at the end of the last period."""
        there = Counter(int(name.partition("-")[0]) for name in names)
        faults = [f"nobody made session {number}" for number in there if number >= len(self._all)]
        for session in self._all:
            faults += _judge(session, there[session.number], periods)
        return faults


def _judge(session: _Session, count: int, periods: list[Period]) -> list[str]:
    what = f"short session {session.number} has {count} of its {EACH} nodes"
    timeout_s = TIMEOUT_MS / 1000
    longest = max(end - max(begun, session.sent_s) for begun, _, end in periods)
    surest = max(end - max(serving, session.answered_s) for _, serving, end in periods)
    if count not in (0, EACH):
        return [what]
    if count and session.is_gone:
        return [f"{what}, all of which had been gone before"]
    if count and session.is_closed:
        return [f"{what}, and it was closed"]
    if count and surest > timeout_s + _LATE_S:
        return [f"{what} {surest:.1f} s after it was last heard of"]
    if not count and session.is_made and not session.asked_to_close and longest < timeout_s:
        return [f"{what}, {longest:.3f} s after it was last heard of"]
    session.is_gone = not count
    return []
