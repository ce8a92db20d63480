"""Valid requests of every kind, the ways to damage them, and bursts of them for one connection."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.rawsocket import framed

from . import requests as ask

BURST_REQUESTS = 250
FRAME_BYTES_MAX = 1_048_575
POOL = 4_000
PING = struct.pack(">i", 11)
# What a length, a count or a version may be replaced by.
NUMBERS = [-(2**31), -2, -1, 0, 1, 4, 255, 65_536, FRAME_BYTES_MAX, 2**31 - 1]
_HARMLESS = {
    struct.pack(">i", kind)
    for kind in (*range(1, 10), 11, 12, 14, 15, 17, 18, 19, 21, 22, 101, 103, 104, 105, 106, 107)
}


class Burst(NamedTuple):
    """What one connection sends. `xids`, of the answers it must get; None: anything may come."""

    data: bytes
    requests: int
    xids: list[int] | None

    def __repr__(self) -> str:
        return f"<{self.requests} requests, {len(self.data)} bytes, {self.data[:200]!r}>"


class Corpus:
    """An endless source of bursts, the same for the same random numbers."""

    def __init__(self, numbers: random.Random) -> None:
        self._random = numbers
        self._valid = list(self._requests())
        # Damage is made in advance: to make it for each request would take longer than to serve it.
        pool = [self._damaged() for _ in range(POOL)]
        self._deadly = [body for body in pool if _ends_a_connection(body)]
        self._pool = [body for body in pool if not _ends_a_connection(body)]

    def burst(self) -> Burst:
        """A new connection's whole output; one in four is no sequence of frames any more."""
        dice = self._random.random()
        if dice < 0.05:
            return self._garbage()
        bodies = self._bodies()
        if dice < 0.25:
            return self._cut(bodies)
        return self._judged(bodies)

    def _judged(self, bodies: list[bytes]) -> Burst:
        frames, xids = [self._hello()], []
        for number, body in enumerate(bodies, 1):
            if len(body) < 4:
                frames.append(framed(body))  # without a number: the connection is closed
                continue
            xid = (
                number
                if self._random.random() < 0.97
                else int.from_bytes(body[:4], "big", signed=True)
            )
            frames.append(framed(struct.pack(">i", xid) + body[4:]))
            xids.append(ask.PING_XID if body[4:8] == PING else xid)
        frames.append(framed(ask.numbered(len(bodies) + 1, ask.close_session())))
        return Burst(b"".join(frames), len(bodies) + 1, [*xids, len(bodies) + 1])

    def _cut(self, bodies: list[bytes]) -> Burst:
        data = bytearray(self._hello() + b"".join(map(framed, bodies)))
        self._damage(data, self._random.randint(0, 4))
        return Burst(bytes(data[: self._random.randrange(len(data) + 1)]), len(bodies), None)

    def _garbage(self) -> Burst:
        data = self._random.randbytes(self._random.randint(1, 300))
        kind = self._random.randrange(5)
        if kind == 3:
            data = (
                self._random.choice([b"ruok", b"mntr", b"dump", b"cons", b"stat", b"what"]) + data
            )
        elif kind == 4:
            stranger = self._random.choice([1, -1, self._random.getrandbits(56)])
            password = self._random.randbytes(self._random.choice([0, 16, 17, 40_000]))
            data = framed(ask.connect(session=stranger, password=password, zxid=-5)) + data
        elif kind == 0:
            data = framed(data)
        elif kind == 1:
            hello = bytearray(self._hello())
            self._damage(hello, 3)
            data = bytes(hello)
        return Burst(data, 1, None)

    def _hello(self) -> bytes:
        return framed(ask.connect(timeout_ms=self._random.choice([0, 500, 5_000])))

    def _bodies(self) -> list[bytes]:
        count = self._random.choice([1, 5, BURST_REQUESTS, BURST_REQUESTS, BURST_REQUESTS])
        bodies = self._random.choices(self._pool, k=count)
        if self._random.random() < 0.1:
            bodies = [bodies[0]] * count  # one frame, repeated
        if self._random.random() < 0.3:
            bodies[self._random.randrange(count)] = self._random.choice(self._deadly)
        return bodies

    # Damage.

    def _damaged(self) -> bytes:
        body = self._random.choice(self._valid)
        dice = self._random.random()
        if dice < 0.35:
            return body
        if dice < 0.45:
            other = self._random.choice(self._valid)
            return body[: self._random.randrange(len(body))] + other[self._random.randrange(8) :]
        if dice < 0.6:
            return body[: self._random.randrange(4, len(body) + 1)]
        changed = bytearray(body)
        self._damage(changed, self._random.randint(1, 4), first=4)
        return bytes(changed)

    def _damage(self, data: bytearray, times: int, first: int = 0) -> None:
        pick = self._random
        ways: list[Callable[[int], None]] = [
            lambda at: data.__setitem__(at, data[at] ^ (1 << pick.randrange(8))),
            lambda at: data.__setitem__(slice(at, at + 4), struct.pack(">i", pick.choice(NUMBERS))),
            lambda at: data.__delitem__(slice(at, at + pick.randint(1, 9))),
            lambda at: data.__setitem__(slice(at, at), pick.randbytes(pick.randint(1, 9))),
            lambda at: data.__setitem__(slice(at, at), data[at : at + pick.randint(1, 40)]),
        ]
        for _ in range(times):
            if len(data) > first:
                pick.choice(ways)(pick.randrange(first, len(data)))

    # What is damaged.

    def _requests(self) -> Iterator[bytes]:
        names = [
            "/a",
            "/a/b",
            "/b",
            "/c",
            "/a/b/c",
            "/e",
            "/",
            "",
            "/zookeeper",
            "/a//b",
            "/é/\0",
            "x",
        ]
        for path in names:
            for request in self._about(path):
                yield ask.numbered(7, request)
        for request in (
            ask.ping(),
            ask.who_am_i(),
            ask.auth("digest", b"ann:secret"),
            ask.auth("ip", b""),
            ask.set_watches(0, ("/a", "/b"), ("/n",), ("/a", "/")),
            ask.set_watches2(1, ("/a",), (), ("/b",), ("/c",), ("/",)),
            struct.pack(">i", 999),
            struct.pack(">i", 16) + bytes(20),
            struct.pack(">i", 102) + ask.text(b"sasl"),
        ):
            yield ask.numbered(7, request)

    def _about(self, path: str) -> Iterator[bytes]:
        lists: list[ask.Acl] = [
            ask.OPEN,
            (),
            ((1, "world", "anyone"), (31, "auth", "")),
            ((31, "ip", "127.0.0.1/8"), (31, "ip", "::1/200")),
            ((31, "digest", "ann:x"),),
        ]
        for flags in range(8):
            entries = self._random.choice(lists)
            yield ask.create(path, self._random.randbytes(20), flags, entries)
            yield ask.create2(path, b"", flags, entries)
        yield ask.create(path, bytes(self._random.choice([1_000, 100_000])))
        yield from (ask.create_container(path), ask.create_ttl(path, 300), ask.create_ttl(path, -1))
        for version in (-1, 0, 5):
            yield from (ask.delete(path, version), ask.set_data(path, b"new", version))
            yield ask.multi(
                ask.check(path, version), ask.create(path), ask.delete(path), ask.set_data("/a")
            )
        yield ask.multi(*[ask.create(f"{path}/m-", b"", ask.SEQUENCE)] * 5)
        yield ask.multi(*[ask.create(path), ask.delete(path)] * 20)
        yield ask.multi()
        for watch in (True, False):
            yield from (ask.exists(path, watch), ask.get_data(path, watch))
            yield from (ask.children(path, watch), ask.children2(path, watch))
        yield ask.multi_read(ask.get_data(path), ask.children(path), ask.get_data("/nowhere"))
        yield from (ask.get_acl(path), ask.set_acl(path, lists[2]), ask.set_acl(path, ask.OPEN))
        yield from (ask.sync(path), ask.get_ephemerals(path), ask.count_descendants(path))
        for kind in range(4):
            yield from (ask.add_watch(path, kind), ask.check_watches(path, kind))
            yield ask.remove_watches(path, kind)


def _ends_a_connection(body: bytes) -> bool:
    """Of a kind that is unknown or can end a connection: what follows is in vain."""
    return body[4:8] not in _HARMLESS
