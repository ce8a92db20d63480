"""The judge of the crashes, on trees made by hand: what it lets pass and what it does not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.differential.packing import Stat

from .audit import Answer, Found, Memory, Sent, Settled, Snapshot, settle, wrong_answers
from .writes import BAD_VERSION, FOLDERS, REGISTER, ROOT, Effect, Own, Step, Write, name_of

LEFT, RIGHT = (f"{ROOT}/{side}/{name_of('w', 0)}" for side in ("left", "right"))
OWN = f"{ROOT}/own/{name_of('w', 1)}"
NONE = dict.fromkeys(FOLDERS, (0, 0))


def create(number: int, *paths: str) -> Write:
    data = name_of("w", number).encode()
    effects = tuple(Effect(path, made=Own(data, 0, False)) for path in paths)
    return Write(number, tuple(Step("create", path, data, 0) for path in paths), effects)


def node(data: bytes, zxid: int, version: int = 0, **stat: int) -> Found:
    known = Stat(zxid, zxid, 0, 0, version, 0, 0, 0, len(data), 0, zxid)
    return Found(data, known._replace(**stat))


def tree(zxid: int, nodes: Mapping[str, Found]) -> Snapshot:
    children = [path.rpartition("/")[0] for path in nodes]
    folders = {
        path: node(b"", 1, num_children=children.count(path), cversion=children.count(path))
        for path in (f"{ROOT}/{folder}" for folder in FOLDERS)
    }
    return Snapshot(zxid, {REGISTER: node(b"", 1), **folders, **nodes})


PAIR, SECOND = create(0, LEFT, RIGHT), create(1, OWN)
LEFT_NODE = RIGHT_NODE = node(b"w-0000000", 5)
OWN_NODE = node(b"w-0000001", 6)


def judged(
    answers: tuple[Answer | None, Answer | None], nodes: Mapping[str, Found], at_least: int = -1
) -> Settled:
    sent = [Sent(write, answer) for write, answer in zip((PAIR, SECOND), answers, strict=True)]
    return settle("w", {}, sent, tree(9, nodes), at_least)


@pytest.mark.parametrize(
    ("nodes", "applied"),
    [
        ({}, 0),
        ({LEFT: LEFT_NODE, RIGHT: RIGHT_NODE}, 1),
        ({LEFT: LEFT_NODE, RIGHT: RIGHT_NODE, OWN: OWN_NODE}, 2),
    ],
)
def test_any_first_part_of_what_was_not_answered_may_be_there(
    nodes: Mapping[str, Found], applied: int
) -> None:
    settled = judged((None, None), nodes)
    assert (settled.applied, settled.faults) == (applied, [])


@pytest.mark.parametrize(
    "nodes",
    [{LEFT: LEFT_NODE}, {OWN: OWN_NODE}, {LEFT: LEFT_NODE, RIGHT: RIGHT_NODE._replace(data=b"")}],
    ids=["half a multi", "the second without the first", "other data"],
)
def test_anything_else_may_not(nodes: Mapping[str, Found]) -> None:
    assert judged((None, None), nodes).faults


def test_what_was_answered_must_be_there_with_its_zxid() -> None:
    both = {LEFT: LEFT_NODE, RIGHT: RIGHT_NODE}
    assert judged((Answer(0, 5), None), both).faults == []
    assert judged((Answer(0, 5), None), {}).faults
    assert judged((Answer(0, 4), None), both).faults


def test_what_somebody_has_seen_must_be_there() -> None:
    both = {LEFT: LEFT_NODE, RIGHT: RIGHT_NODE}
    assert judged((None, None), both, at_least=0).faults == []
    assert judged((None, None), both, at_least=1).faults


def test_an_answer_that_the_requests_before_do_not_allow_is_found() -> None:
    assert wrong_answers("w", [Sent(PAIR, Answer(0))]) == []
    assert wrong_answers("w", [Sent(PAIR, Answer(BAD_VERSION))])


def test_what_never_goes_back_may_not_go_back() -> None:
    sequential = f"{ROOT}/seq/w-0000000003"
    step = Step("create", f"{ROOT}/seq/w-", b"w-0000007", 2)
    write = Write(7, (step,))
    memory = Memory()
    first = tree(9, {sequential: node(b"w-0000003", 4)})
    assert memory.note_snapshot(first, 9, [NONE]) == []
    assert memory.note_snapshot(first, 9, [NONE]) == []
    assert memory.note_snapshot(first, 10, [NONE]), "somebody saw zxid 10"
    assert memory.note_snapshot(tree(8, first.nodes), 0, [NONE]), "the zxid went back"
    assert memory.note_answers("w", [Sent(write, Answer(0, 9))]), "that zxid was given"
    assert memory.note_answers("w", [Sent(write, Answer(0, 11, f"{ROOT}/seq/w-0000000002"))])
    assert memory.note_answers("w", [Sent(write, Answer(0, 12, f"{ROOT}/seq/w-0000000004"))]) == []
    changed = {sequential: node(b"w-0000003", 4, ctime=77)}
    assert memory.note_snapshot(tree(12, changed), 12, [NONE]), "a node changed by itself"
    assert memory.note_snapshot(tree(12, {}), 12, [NONE]), "children not counted"
