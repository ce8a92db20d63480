"""The judge of crash tests, on trees made by hand: which states it accepts and which it refuses."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.tools import requests as ask
from tests.tools.packing import Stat

from .audit import Answer, Found, Memory, Sent, Snapshot, settle, wrong_answers
from .writes import BAD_VERSION, FOLDERS, REGISTER, ROOT, Effect, Own, Write, name_of

LEFT, RIGHT = (f"{ROOT}/{side}/{name_of('w', 0)}" for side in ("left", "right"))
OWN = f"{ROOT}/own/{name_of('w', 1)}"
SEQUENTIAL = f"{ROOT}/seq/w-000000000"
NONE = dict.fromkeys(FOLDERS, (0, 0))


def create(number: int, *paths: str) -> Write:
    data = name_of("w", number).encode()
    effects = tuple(Effect(path, made=Own(data, 0, False)) for path in paths)
    return Write(number, tuple(ask.create(path, data) for path in paths), effects)


def node(data: bytes, zxid: int, **stat: int) -> Found:
    return Found(data, Stat(zxid, zxid, 0, 0, 0, 0, 0, 0, len(data), 0, zxid)._replace(**stat))


def tree(zxid: int, nodes: Mapping[str, Found]) -> Snapshot:
    children = [path.rpartition("/")[0] for path in nodes]
    folders = {
        path: node(b"", 1, num_children=children.count(path), cversion=children.count(path))
        for path in (f"{ROOT}/{folder}" for folder in FOLDERS)
    }
    return Snapshot(zxid, {REGISTER: node(b"", 1), **folders, **nodes})


PAIR, SECOND = create(0, LEFT, RIGHT), create(1, OWN)
MADE = node(b"w-0000000", 5)
BOTH = {LEFT: MADE, RIGHT: MADE}
ALL = {**BOTH, OWN: node(b"w-0000001", 6)}


@pytest.mark.parametrize(
    ("answers", "nodes", "seen", "applied"),
    [
        # Any first part of what was not answered may be there.
        ((None, None), {}, -1, 0),
        ((None, None), BOTH, -1, 1),
        ((None, None), ALL, -1, 2),
        # Half a multi, the second without the first, other data: nothing leads there.
        ((None, None), {LEFT: MADE}, -1, None),
        ((None, None), {OWN: ALL[OWN]}, -1, None),
        ((None, None), {LEFT: MADE, RIGHT: MADE._replace(data=b"")}, -1, None),
        # Answered writes must be there with their zxid, and so must all that a client has seen.
        ((Answer(0, 5), None), BOTH, -1, 1),
        ((Answer(0, 5), None), {}, -1, None),
        ((Answer(0, 4), None), BOTH, -1, None),
        ((None, None), BOTH, 0, 1),
        ((None, None), BOTH, 1, None),
    ],
)
def test_the_judge_accepts_only_states_that_the_requests_could_have_left(
    answers: tuple[Answer | None, ...],
    nodes: Mapping[str, Found],
    seen: int,
    applied: int | None,
) -> None:
    sent = [Sent(write, answer) for write, answer in zip((PAIR, SECOND), answers, strict=True)]
    settled = settle("w", {}, sent, tree(9, nodes), seen)
    assert settled.applied == applied if applied is not None else settled.faults
    assert bool(settled.faults) == (applied is None)


def test_the_judge_finds_a_tree_that_went_back_or_changed_by_itself() -> None:
    assert wrong_answers("w", [Sent(PAIR, Answer(0, 5))]) == []
    assert wrong_answers("w", [Sent(PAIR, Answer(BAD_VERSION, 5))])
    write = Write(7, (ask.create(f"{ROOT}/seq/w-", b"w-0000007", ask.SEQUENCE),))
    memory = Memory()
    first = tree(9, {f"{SEQUENTIAL}3": node(b"w-0000003", 4)})
    assert memory.note_snapshot(first, 9, [NONE]) == []
    assert memory.note_snapshot(first, 9, [NONE]) == []
    assert memory.note_snapshot(first, 10, [NONE]), "somebody saw zxid 10"
    assert memory.note_snapshot(tree(8, first.nodes), 0, [NONE]), "the zxid went back"
    assert memory.note_answers("w", [Sent(write, Answer(0, 9))]), "that zxid was given"
    assert memory.note_answers("w", [Sent(write, Answer(0, 11, f"{SEQUENTIAL}2"))])
    assert memory.note_answers("w", [Sent(write, Answer(0, 12, f"{SEQUENTIAL}4"))]) == []
    changed = {f"{SEQUENTIAL}3": node(b"w-0000003", 4, ctime=77)}
    assert memory.note_snapshot(tree(12, changed), 12, [NONE]), "a node changed by itself"
    assert memory.note_snapshot(tree(12, {}), 12, [NONE]), "children not counted"
