"""Read the histories of many plans side by side, and decode of each only what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ..errors import PayloadUndecodable
from .compaction import Cut, cut_of, spans_of
from .history import Record, Span, body_of, history_path, records_from_body
from .layout import UNTOLD
from .load import read_all
from .requests import Node, ReadChildren, ReadData, Step
from .shared import REFUSALS_MAX


class StoredHistory:
    """A history as it is stored. `untold` counts transactions that could not be told.

    `damaged` are the names of znodes that could not be read: those that may not be, and those that
    make no sense, as far as they were looked at.
    """

    def __init__(
        self, nodes: Sequence[tuple[Span, Node]], cut: Cut, untold: int, damaged: list[str]
    ) -> None:
        self._nodes, self.cut, self.untold, self.damaged = nodes, cut, untold, damaged

    @cached_property
    def _unpacked(self) -> list[tuple[Span, int, bytes]]:
        found = []
        for span, node in self._nodes:
            try:
                found.append((span, node.created_ms, body_of(node.data)))
            except PayloadUndecodable:
                self.damaged.append(span.name)
        return found

    def behind(self, earlier: Sequence[tuple[Span, bytes]], cut: Cut) -> StoredHistory:
        """The same with what comes before it: the data of merged znodes that it has not any more.
        `cut` is what is missing then."""
        nodes = [(span, Node(data, 0, 0, 0, 0, 0, 0)) for span, data in earlier]
        return StoredHistory([*nodes, *self._nodes], cut, self.untold, self.damaged)

    @property
    def bodies(self) -> list[bytes]:
        """The JSON of each znode, in order: `[by, events]`, or a list of records. It is written
        without spaces, so that `["` begins an event and nothing else."""
        return [body for _, _, body in self._unpacked]

    def records(self) -> list[Record]:
        records = list[Record]()
        for span, created_ms, body in self._unpacked:
            try:
                records += records_from_body(span, body, created_ms)
            except PayloadUndecodable:
                self.damaged.append(span.name)
        return records


def read_histories(
    plan_paths: Sequence[str], since_ms: int = 0
) -> Step[list[StoredHistory | None]]:
    """The histories of these plans; None for one that keeps none, or that may not be read.

    One with nothing at `since_ms` or later may be empty here: its last znode is older, and so all
    of it. Each is as it was at one moment, but not all as they were at the same one.
    """
    found = yield from _read(plan_paths, since_ms)
    for at, plan_path in enumerate(plan_paths):
        stored = found[at]
        for _ in range(REFUSALS_MAX):
            if stored is None or not stored.damaged:
                break
            # What was merged or removed meanwhile is not listed any more. What is listed once more
            # may not be read, and hides nothing else.
            known = set(stored.damaged)
            (stored,) = yield from _read([plan_path], since_ms)
            if stored is not None and known.issuperset(stored.damaged):
                break
        found[at] = stored
    return found


def _read(plan_paths: Sequence[str], since_ms: int) -> Step[list[StoredHistory | None]]:
    paths = [history_path(path) for path in plan_paths]
    asked: list[ReadData | ReadChildren] = []
    for path in paths:
        asked += (ReadChildren(path), ReadData(path), ReadData(f"{path}/{UNTOLD}"))
    answers = yield from read_all(asked, strict=False)
    spans = [spans_of(names or ()) for names in answers[::3]]
    ends = yield from _nodes(paths, [each[-1:] for each in spans])
    for each, end in zip(spans, ends, strict=True):
        if end and end[0] is not None and end[0].created_ms < since_ms:
            each.clear()
            end.clear()
    starts = yield from _nodes(paths, [each[:-1] for each in spans])
    found: list[StoredHistory | None] = []
    for at, mine in enumerate(spans):
        names, own, untold = answers[3 * at : 3 * at + 3]
        nodes = starts[at] + ends[at]
        if names is None or own is None:
            found.append(None)
        else:
            version = untold.version if untold is not None else 0
            both = list(zip(mine, nodes, strict=True))
            lacking = [span.name for span, node in both if node is None]
            stored = [(span, node) for span, node in both if node is not None]
            found.append(StoredHistory(stored, cut_of(own), version, lacking))
    return found


def _nodes(paths: Sequence[str], wanted: Sequence[Sequence[Span]]) -> Step[list[list[Any]]]:
    """The znodes of each history that are wanted of it; None for one that is gone, or may not be
    read."""
    reads = [
        ReadData(f"{path}/{span.name}")
        for path, spans in zip(paths, wanted, strict=True)
        for span in spans
    ]
    nodes = iter((yield from read_all(reads, strict=False)) if reads else ())
    return [[next(nodes) for _ in spans] for spans in wanted]
