"""Seal anew, with the key that seals now, what stands under a root sealed with an older one.

Plans go on meanwhile. A znode that changes between the read and the write is left to the next
round: whoever changed it has sealed it, with the new key if he has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol.layout import Paths
from ..protocol.load import read_all
from ..protocol.requests import (
    Applied,
    Multi,
    Node,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    SetData,
    Step,
)
from ..protocol.shared import GROUP_BYTES_MAX, READS_PER_REQUEST, rejected
from ..protocol.unproven import Unproven
from .guard import Guard

#: After so many rounds what is still sealed with an older key is counted as left.
ROUNDS_MAX = 5
#: Znodes that one transaction seals anew.
WRITES_MAX = 100
_PASSES = (Reason.NO_NODE, Reason.BAD_VERSION)


class Resealed(NamedTuple):
    """How many znodes were sealed anew, how many are left, and why others cannot be opened."""

    resealed: int
    left: int
    refused: list[PayloadUndecodable]


def reseal(guard: Guard, paths: Paths) -> Step[Resealed]:
    """Seal anew all that stands. Raises AccessDenied, TransactionRejected."""
    done = 0
    refused: list[PayloadUndecodable] = []
    for _ in range(ROUNDS_MAX):
        refused, left = [], 0
        waiting = [paths.root]
        while waiting:
            batch, waiting = waiting[-READS_PER_REQUEST:], waiting[:-READS_PER_REQUEST]
            listed = yield ReadMany([ReadChildren(path) for path in batch])
            found = [
                f"{path}/{name}"
                for path, names in zip(batch, listed, strict=True)
                for name in names or ()
            ]
            wrote, missed = yield from _reseal(guard, list(filter(guard.covers, found)), refused)
            done, left = done + wrote, left + missed
            waiting += [path for path in found if path.count("/") <= paths.root.count("/") + 2]
        if not left:
            break
    return Resealed(done, left, refused)


def _reseal(
    guard: Guard, paths: Sequence[str], refused: list[PayloadUndecodable]
) -> Step[tuple[int, int]]:
    """How many of these were sealed anew, and how many were changed meanwhile."""
    guard.older = []
    try:
        nodes = yield from read_all([ReadData(path) for path in paths])
        older = set(guard.older)
    finally:
        guard.older = None
    found: list[tuple[str, Node]] = []
    for path, node in zip(paths, nodes, strict=True):
        if node is not None and isinstance(node.data, Unproven):
            refused.append(node.data.error)
        elif node is not None and path in older:
            found.append((path, node))
    missed = 0
    for group in _groups(found):
        while group:
            writes = [SetData(path, node.data, node.version) for path, node in group]
            answer = yield Multi(writes)
            if isinstance(answer, Applied) or answer.repeated:
                break
            if answer.reason not in _PASSES:
                raise rejected("sealing anew", answer)
            missed += answer.reason is Reason.BAD_VERSION
            del group[answer.at]
    return len(found) - missed, missed


def _groups(found: Sequence[tuple[str, Node]]) -> Iterator[list[tuple[str, Node]]]:
    group: list[tuple[str, Node]] = []
    size = 0
    for path, node in found:
        if group and (len(group) == WRITES_MAX or size + len(node.data) > GROUP_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append((path, node))
        size += len(node.data)
    if group:
        yield group
