"""Valid requests of every kind, the ways to damage them, and bursts of them for one connection."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.tools.packing import PING_XID, REQUESTS, Ask, hello, request
from tests.tools.rawsocket import framed
from tests.tools.requests import OPEN, Acl

BURST_REQUESTS = 250
FRAME_BYTES_MAX = 1_048_575
POOL = 4_000
PING = struct.pack(">i", 11)
# What a length, a count or a version may be replaced by.
NUMBERS = [-(2**31), -2, -1, 0, 1, 4, 255, 65_536, FRAME_BYTES_MAX, 2**31 - 1]
GOOD_NAMES = ("/a", "/a", "/a/b", "/b", "/c", "/a/b/c", "/e")
NAMES = (*GOOD_NAMES, "/", "", "/zookeeper", "/a//b", "/é/\0", "x")
WRITES = ("create", "create", "create2", "delete", "set", "check")
LISTS: tuple[Acl, ...] = (
    OPEN,
    OPEN,
    (),
    ((1, "world", "anyone"), (31, "auth", "")),
    ((31, "ip", "127.0.0.1/8"), (31, "ip", "::1/200")),
    ((31, "digest", "ann:x"),),
)
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
            xids.append(PING_XID if body[4:8] == PING else xid)
        frames.append(framed(request(Ask("close"), len(bodies) + 1)))
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
            data = framed(hello(session=stranger, password=password, zxid=-5)) + data
        elif kind == 0:
            data = framed(data)
        elif kind == 1:
            damaged = bytearray(self._hello())
            self._damage(damaged, 3)
            data = bytes(damaged)
        return Burst(data, 1, None)

    def _hello(self) -> bytes:
        return framed(hello(timeout_ms=self._random.choice([0, 500, 5_000])))

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
        """Requests of every kind with values of all sorts, and some that no server knows."""
        for op in REQUESTS:
            for _ in range(60):
                yield request(self._ask(op), 7)
        yield request(Ask("auth", (0, "digest", b"ann:secret")), 7)
        yield request(Ask("auth", (0, "ip", b"")), 7)
        for opcode in (16, 102, 999):
            yield struct.pack(">ii", 7, opcode) + bytes(20)

    def _ask(self, op: str) -> Ask:
        return Ask(op, tuple(self._value(op, kind) for kind in REQUESTS[op][1].split()))

    def _value(self, op: str, kind: str) -> Any:
        pick = self._random.choice
        match kind:
            case "path":
                return pick(NAMES)
            case "paths":
                return tuple(pick(NAMES) for _ in range(pick((0, 1, 3))))
            case "data":
                return pick((b"", self._random.randbytes(20), bytes(1_000), bytes(100_000)))
            case "acls":
                return pick(LISTS)
            case "bool":
                return pick((True, False))
            case "zxid" | "long":
                return pick((-1, 0, 1, 300))
            case "asks":
                ops = ("get", "children") if op == "multi_read" else WRITES
                return tuple(self._ask(pick(ops)) for _ in range(pick((0, 1, 3, 5, 40))))
            case _:  # flags, a version, a kind of watches: what is sound for one is not for another
                return pick((-1, -1, 0, 0, *range(8)))


def _ends_a_connection(body: bytes) -> bool:
    """Of a kind that is unknown or can end a connection: what follows is in vain."""
    return body[4:8] not in _HARMLESS
