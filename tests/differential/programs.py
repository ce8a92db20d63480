"""Random programs: the same seed gives the same steps for ever."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.tools.packing import Ask
from tests.tools.values import (
    ACLS,
    BAD_PATHS,
    BEYOND_FFFF,
    DATA,
    IDENTITIES,
    NAMES,
    OPEN,
    SOUND_ACLS,
    SOUND_IDENTITIES,
    SYSTEM_PATHS,
)

from .belief import Belief
from .steps import Attach, Big, Burst, Bytes, Drop, Expire, Step, Stranger

CLIENTS = (2, 4)
STEPS = (40, 60)
#: How many of 100 programs let a session expire: each costs an eighth of a second of waiting.
EXPIRIES_IN_100 = 8

#: What the programs of a kind do more often than others do.
KINDS: dict[str, dict[str, int]] = {
    "plain": {},
    "watches": {"read": 3, "add_watch": 8, "remove_watch": 4, "rewatch": 6, "session": 3},
    "acls": {"acl": 8, "auth": 5},
    "multis": {"multi": 6, "multi_read": 3},
    "sessions": {"session": 8, "rewatch": 3},
    "sequences": {"create": 4, "delete": 3},
}
WEIGHTS = {
    "create": 26,
    "delete": 10,
    "set": 9,
    "read": 26,
    "sync": 1,
    "ping": 1,
    "acl": 5,
    "auth": 2,
    "multi": 9,
    "multi_read": 3,
    "add_watch": 3,
    "remove_watch": 3,
    "rewatch": 2,
    "session": 3,
    "ask_self": 3,
    "broken": 2,
}
_RARE_IN_1000 = {"unknown": 5, "big": 2, "bytes": 4, "close": 6}
#: Opcodes no server knows; those of a server's own (-10, -1, 20) and reconfig (16) are left out.
UNKNOWN_OPCODES = (10, 23, 99, 108, 1000, -12, 2**31 - 1)


class Author:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clients = self.random.randint(*CLIENTS)
        kind = self.random.choice(list(KINDS))
        factors = KINDS[kind]
        self.weights = {name: weight * factors.get(name, 1) for name, weight in WEIGHTS.items()}
        self.may_expire = self.random.random() * 100 < EXPIRIES_IN_100
        self.belief = Belief(self.random)
        #: Paths that some client has asked to watch.
        self.watched: list[str] = []
        self.client = 0
        #: Whether what is being written is meant to succeed, and whether it is in a multi.
        self.careful = self.in_multi = False

    def program(self) -> list[Step]:
        return [self.step() for _ in range(self.random.randint(*STEPS))]

    def step(self) -> Step:
        client = self.client = self.random.randrange(self.clients)
        chance = self.random.random() * 1000
        for name, share in _RARE_IN_1000.items():
            if chance < share:
                return self.rare(name, client)
            chance -= share
        if self.may_expire and self.random.random() < 0.04:
            self.belief.ended(client)
            return Expire(client, (client + 1) % self.clients)
        kind = self.random.choices(list(self.weights), list(self.weights.values()))[0]
        if kind == "session":
            return self.session(client)
        if kind in ("auth", "broken"):
            return Burst(client, (getattr(self, kind)(),))
        asks = [self.ask(kind)]
        # What follows an ordinary request in one go is answered in order. But not what follows a
        # setACL: whether it meets the old list still is a race in ZooKeeper.
        while asks[0].op != "set_acl" and self.random.random() < 0.15:
            asks.append(self.ask(self.pick(("create", "delete", "set", "read", "multi"))))
        return Burst(client, tuple(asks))

    def rare(self, name: str, client: int) -> Step:
        match name:
            case "unknown":
                return Burst(client, (Ask("opcode", (self.pick(UNKNOWN_OPCODES),)),))
            case "big":
                return Big(client, self.path(), self.pick((-1, 0, 0, 1, 1, 2)))
            case "bytes":
                return Bytes(client, self.pick(NO_FRAMES))
            case _:
                self.belief.ended(client)
                return Burst(client, (Ask("close"),))

    def session(self, client: int) -> Step:
        match self.random.randrange(8):
            case 0 | 1 | 2:
                return Drop(client)
            case 3:
                word = self.pick(("wrong", "short", "empty"))
                return Attach(client, password=word)
            case 4:
                return Attach(client, zxid=self.pick((-5, 0, 1, 10**6, 10**9)))
            case 5:
                session = self.pick((1, -1, 0x1234567890, -(2**63), 2**63 - 1))
                return Stranger(client, session)
            case 6:
                timeout = self.pick((20_000, 30_001, 60_000, 60_001, 2**31 - 1))
                return Attach(client, timeout_ms=timeout)
            case _:
                return Attach(client, read_only_byte=self.random.random() < 0.5)

    def ask(self, kind: str) -> Ask:
        make: Callable[[], Ask] = getattr(self, kind)
        return make()

    # -- values

    def pick(self, values: Any) -> Any:
        return self.random.choice(values)

    def path(self) -> str | bytes | None:
        path = self.any_path()
        # Permitted difference: a null path in a multi.
        return "" if path is None and self.in_multi else path

    def any_path(self) -> str | bytes | None:
        if self.careful:
            return self.belief.any_node()
        chance = self.random.random()
        if chance < 0.05:
            return self.pick(BAD_PATHS)  # type: ignore[no-any-return]
        if chance < 0.08:
            return str(self.pick(SYSTEM_PATHS))
        return self.good_path()

    def good_path(self) -> str:
        chance = self.random.random()
        if chance < 0.8:
            return self.belief.any_node()
        if chance < 0.9:
            return f"{self.belief.any_node()}/{self.pick(NAMES)}"
        depth = self.random.choices((0, 1, 2, 3), (3, 50, 30, 10))[0]
        return "~" + "".join(f"/{self.pick(NAMES)}" for _ in range(depth))

    def new_path(self) -> str | bytes | None:
        if not self.careful and self.random.random() < 0.15:
            return self.path()
        paths = [f"{self.belief.parent()}/{self.pick(NAMES)}" for _ in range(4)]
        return next((path for path in paths if path not in self.belief.owners), paths[0])

    def data(self) -> bytes | None:
        return self.pick(DATA)  # type: ignore[no-any-return]

    def version(self) -> int:
        if self.careful:
            return -1
        return int(self.random.choices((-1, 0, 1, 2, 7, -2), (60, 20, 8, 5, 4, 3))[0])

    def watch(self) -> bool:
        return self.random.random() < 0.4

    def acls(self) -> Any:
        if self.careful:
            return OPEN
        chance = 0.35 if self.weights["acl"] > WEIGHTS["acl"] else 0.06
        return self.strange_acls() if self.random.random() < chance else OPEN

    def strange_acls(self) -> Any:
        return self.pick(ACLS[:SOUND_ACLS] if self.random.random() < 0.65 else ACLS)

    # -- requests

    def create(self) -> Ask:
        op = self.random.choices(("create", "create2", "container", "ttl"), (50, 30, 8, 8))[0]
        flags = {"container": 4, "ttl": self.pick((5, 6))}.get(op, self.pick((0, 0, 0, 1, 1, 2, 3)))
        if not self.careful and self.random.random() < 0.04:
            flags = self.pick((-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 255))
        if self.in_multi and op != "ttl" and flags in (5, 6):
            flags = 4  # Permitted difference: a time to live without the time, in a multi.
        path = self.new_path()
        if flags & 2 and isinstance(path, str):
            # Never numbered at the top, where the numbers of all programs are one sequence.
            path = self.belief.parent() + self.pick(("/s-", "/q", "/", "/a"))
            self.belief.created(self.belief.numbered(path), self.client if flags & 1 else None)
        elif isinstance(path, str) and path not in BAD_PATHS:
            self.belief.created(path, self.client if flags == 1 else None)
        values: tuple[Any, ...] = (path, self.data(), self.acls(), flags)
        if op == "ttl":
            ttl = self.pick((*[10**9] * 12, 1, 2**40 - 1, 2**40, 0, -1, 1 << 50))
            if self.careful or flags not in (5, 6):
                ttl = 10**9  # A negative one with other flags ends a ZooKeeper.
            values = (*values, ttl)
        return Ask(op, values)

    def delete(self) -> Ask:
        path = self.belief.leaf() if self.careful or self.random.random() < 0.6 else self.path()
        if isinstance(path, str):
            self.belief.deleted(path)
        return Ask("delete", (path, self.version()))

    def set(self) -> Ask:
        path = self.path()
        return Ask("set", (path, self.data(), safe_version(path, self.version())))

    def read(self) -> Ask:
        op = self.pick(("exists", "get", "children", "children2"))
        path, watch = self.path(), self.watch()
        if watch and isinstance(path, str):
            self.watched.append(path)
        return Ask(op, (path, watch))

    def sync(self) -> Ask:
        path = self.path()
        # Permitted difference: the bytes of characters beyond U+FFFF.
        return Ask("sync", ("~" if path == BEYOND_FFFF else path,))

    def ping(self) -> Ask:
        return Ask("ping")

    def acl(self) -> Ask:
        path = self.path()
        if path == "~" or self.random.random() < 0.4:
            return Ask("get_acl", (path,))
        acls = self.strange_acls() if self.random.random() < 0.6 else OPEN
        return Ask("set_acl", (path, acls, safe_version(path, self.version())))

    def auth(self) -> Ask:
        sound = IDENTITIES[:SOUND_IDENTITIES]
        scheme, identity = self.pick(sound if self.random.random() < 0.65 else IDENTITIES)
        return Ask("auth", (0, scheme, identity))

    def multi(self) -> Ask:
        if self.random.random() < 0.04:
            return Ask("multi", ((),))
        before = dict(self.belief.owners)
        self.careful, self.in_multi = self.random.random() < 0.5, True
        parts = [self.part() for _ in range(self.random.choice((1, 2, 2, 3, 3, 4, 5)))]
        if not self.careful:
            # One part refused takes the others back.
            self.belief.owners = before
            if self.random.random() < 0.08:
                parts.insert(self.random.randrange(len(parts) + 1), self.multi_part_read())
        self.careful = self.in_multi = False
        return Ask("multi", (tuple(parts),))

    def part(self) -> Ask:
        chance = self.random.random()
        if chance < 0.5:
            return self.create()
        if chance < 0.6:
            return self.delete()
        if chance < 0.8:
            return self.set()
        return Ask("check", (self.path(), self.version()))

    def multi_part_read(self) -> Ask:
        return Ask(self.pick(("get", "children")), (self.path(), self.watch()))

    def multi_read(self) -> Ask:
        parts = [self.multi_part_read() for _ in range(self.random.randint(0, 4))]
        if self.random.random() < 0.05:
            parts.append(self.delete())
        return Ask("multi_read", (tuple(parts),))

    def add_watch(self) -> Ask:
        mode = self.random.choices((0, 1, 2, -1), (45, 45, 2, 2))[0]
        return Ask("add_watch", (self.watch_path(), mode))

    def remove_watch(self) -> Ask:
        op = self.pick(("check_watches", "remove_watches", "remove_watches"))
        kind = self.random.choices((1, 2, 3, 0, 4), (30, 30, 30, 2, 2))[0]
        return Ask(op, (self.watch_path(), kind))

    def watch_path(self) -> str | bytes:
        path = self.path()
        if self.watched and self.random.random() < 0.5:
            path = str(self.pick(self.watched[-10:]))
        elif isinstance(path, str):
            self.watched.append(path)
        # Permitted difference: watches of what is no absolute path.
        return path if path is not None and path[:1] in ("~", "/", b"~") else "~"

    def rewatch(self) -> Ask:
        zxid = self.pick((-1, 0, 3, 10, 20, 40, 10**6))
        op, lists = self.pick((("set_watches", 3), ("set_watches2", 5)))
        paths = tuple(
            tuple(self.good_path() for _ in range(self.random.choice((0, 0, 1, 2, 3))))
            for _ in range(lists)
        )
        return Ask(op, (zxid, *paths))

    def ask_self(self) -> Ask:
        match self.random.randrange(4):
            case 0:
                return Ask("who_am_i")
            case 1:
                return Ask("count", (self.path(),))
            case _:
                return Ask("ephemerals", (self.pick(("~", "~/a", "", "/", None, "~/none", " ")),))

    def broken(self) -> Ask:
        """A request whose end is missing."""
        whole = self.ask(self.pick(("create", "delete", "set", "read", "acl", "multi", "rewatch")))
        return whole._replace(cut=self.pick((1, 2, 4, 5, 8, 12)))


#: A negative size, one above the limit, no bytes at all, a body shorter than a header.
NO_FRAMES = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x00\x10\x00\x00",
    b"\x00\x00\x00\x00",
    b"\x00\x00\x00\x03abc",
    b"\x00\x00\x00\x04\x00\x00\x00\x01",
)


def safe_version(path: str | bytes | None, version: int) -> int:
    """One that fits no node shared by all programs: those must not be changed."""
    return 999 if path in SYSTEM_PATHS else version


def program(seed: int) -> list[Step]:
    """The steps of a seed."""
    return Author(seed).program()


def clients_of(seed: int) -> int:
    """How many clients the program of a seed has."""
    return Author(seed).clients
