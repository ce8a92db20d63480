"""What a writer sends, and what its own nodes look like after it: planned, never asked for."""

from __future__ import annotations

import random
import re
from collections import deque
from typing import NamedTuple

from tests.tools import requests as ask
from tests.tools.packing import Ask

ROOT = "/crash"
FOLDERS = ("own", "left", "right", "seq", "eph", "short")
REGISTER = f"{ROOT}/register"
OK, NO_NODE, BAD_VERSION, NODE_EXISTS = 0, -101, -103, -110

#: Seven digits: the ten of a sequential node are no index.
_ORIGIN = re.compile(r"(\w+)-(\d{7})(?!\d)")
_NODES_MAX = 60
_LARGE_BYTES = 20_000
_KINDS = (
    *(["create"] * 5 + ["large"] + ["sequential"] * 4 + ["set"] * 6 + ["delete"] * 4),
    *(["pair"] * 4 + ["set pair"] * 2 + ["delete pair"] * 2 + ["ephemeral"] * 2),
    *(["refused pair"] * 2 + ["create again", "wrong version", "delete nothing"]),
    *(["register"] * 2),
)


class Own(NamedTuple):
    """What a writer knows of one of its nodes; None: not known yet."""

    data: bytes
    version: int
    is_ephemeral: bool
    czxid: int | None = None
    mzxid: int | None = None


class Effect(NamedTuple):
    """`key` comes to be (`made`), gets new data (`changed`) or goes (neither)."""

    key: str
    made: Own | None = None
    changed: Own | None = None


class Write(NamedTuple):
    """One request: several steps are a multi. `expected` has the codes that may answer it."""

    number: int
    steps: tuple[Ask, ...]
    effects: tuple[Effect, ...] = ()
    expected: tuple[int, ...] = (OK,)


Owned = dict[str, Own]


def name_of(writer: str, index: int) -> str:
    """Every name and all data say which request made them."""
    return f"{writer}-{index:07d}"


def origin_of(text: str) -> tuple[str, int]:
    """The writer and the index of the request behind a name or data. Raises ValueError."""
    match = _ORIGIN.match(text)
    if match is None:
        raise ValueError(f"{text!r} names no request")
    return match[1], int(match[2])


def apply(effects: tuple[Effect, ...], owned: Owned, zxid: int | None) -> None:
    """Bring `owned` to after these effects, made by the transaction `zxid` (None: unknown)."""
    for key, made, changed in effects:
        if made is not None:
            owned[key] = made._replace(czxid=zxid, mzxid=zxid)
        elif changed is not None:
            owned[key] = changed._replace(czxid=owned[key].czxid, mzxid=zxid)
        else:
            del owned[key]


class Planner:
    """Makes up requests of one writer, as if all earlier ones had been applied."""

    def __init__(self, writer: str, seed: int) -> None:
        self.writer = writer
        self.owned: Owned = {}
        #: What was found by the last check.
        self.owned_before: Owned = {}
        #: Real paths of sequential nodes, by key; only acknowledged ones are known.
        self.sequential: dict[str, str] = {}
        #: What was sent last, for others to look at.
        self.recent: deque[str] = deque([REGISTER], maxlen=40)
        self.register_version = 0
        self.next_index = 0
        self._random = random.Random(seed)

    def next(self) -> Write:
        """The next request; `owned` is what it leads to."""
        kind = self._random.choice(_KINDS)
        if len(self.owned) > _NODES_MAX and kind not in ("delete pair", "refused pair"):
            kind = "delete"
        index, self.next_index = self.next_index, self.next_index + 1
        write = self._make(kind, index)
        apply(write.effects, self.owned, None)
        self.recent.extend(step.path for step in write.steps)
        return write

    def go_on(self, owned: Owned, sequential: dict[str, str]) -> None:
        """After a crash: plan from what was found."""
        self.owned, self.owned_before = dict(owned), owned
        self.sequential = sequential

    def _make(self, kind: str, index: int) -> Write:
        name = name_of(self.writer, index)
        data = name.encode()
        own, left, right = (f"{ROOT}/{folder}/{name}" for folder in ("own", "left", "right"))
        match kind:
            case "large":
                return _create(index, own, data + b"." * _LARGE_BYTES)
            case "sequential":
                key = f"seq#{name}"
                step = ask.create(f"{ROOT}/seq/{self.writer}-", data, ask.SEQUENCE)
                return Write(index, (step,), (Effect(key, made=Own(data, 0, False)),))
            case "ephemeral":
                path = f"{ROOT}/eph/{name}"
                effect = Effect(path, made=Own(data, 0, True))
                return Write(index, (ask.create(path, data, ask.EPHEMERAL),), (effect,))
            case "pair":
                effects = tuple(Effect(path, made=Own(data, 0, False)) for path in (left, right))
                return Write(index, tuple(ask.create(e.key, data) for e in effects), effects)
            case "refused pair":
                check = ask.check(ROOT, 99)
                steps = (ask.create(left, data), ask.create(right, data))
                at = self._random.randint(0, 2)
                return Write(index, (*steps[:at], check, *steps[at:]), (), (BAD_VERSION,))
            case "delete nothing":
                return Write(index, (ask.delete(own),), (), (NO_NODE,))
            case "register":
                version = self._random.choice([-1, self.register_version])
                step = ask.set_data(REGISTER, data, version)
                return Write(index, (step,), (), (OK, BAD_VERSION))
            case _:
                return self._change(kind, index, data) or _create(index, own, data)

    def _change(self, kind: str, index: int, data: bytes) -> Write | None:
        """A request about a node that is there; None where there is none of that sort."""
        folder = "left" if kind.endswith("pair") else "seq" if index % 3 == 0 else "own"
        paths = [path for path in map(self._path, self.owned) if path and f"/{folder}/" in path]
        if folder == "seq" and kind != "delete":
            paths = []
        if not paths:
            paths = [key for key in self.owned if key.startswith(f"{ROOT}/own/")]
            kind = kind.removesuffix(" pair")
        if not paths:
            return None
        path = self._random.choice(paths)
        key = self._key(path)
        before = self.owned[key]
        version = self._random.choice([-1, before.version])
        changed = before._replace(data=data, version=before.version + 1)
        other = path.replace("/left/", "/right/")
        match kind:
            case "set":
                effects: tuple[Effect, ...] = (Effect(key, changed=changed),)
                return Write(index, (ask.set_data(path, data, version),), effects)
            case "delete":
                if "/left/" in path or "/right/" in path:
                    return None
                return Write(index, (ask.delete(path, version),), (Effect(key),))
            case "set pair":
                effects = tuple(Effect(each, changed=changed) for each in (path, other))
                steps = tuple(ask.set_data(e.key, data, version) for e in effects)
                return Write(index, steps, effects)
            case "delete pair":
                steps = tuple(ask.delete(each, version) for each in (path, other))
                return Write(index, steps, (Effect(path), Effect(other)))
            case "create again":
                return Write(index, (ask.create(path, data),), (), (NODE_EXISTS,))
            case "wrong version":
                step = ask.set_data(path, data, before.version + 1)
                return Write(index, (step,), (), (BAD_VERSION,))
        return None

    def _path(self, key: str) -> str | None:
        return self.sequential.get(key) if key.startswith("seq#") else key

    def _key(self, path: str) -> str:
        if "/seq/" not in path:
            return path
        return next(key for key, known in self.sequential.items() if known == path)


def _create(index: int, path: str, data: bytes) -> Write:
    return Write(index, (ask.create(path, data),), (Effect(path, made=Own(data, 0, False)),))
