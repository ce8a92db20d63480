"""Tidy a history up: put many segments into one znode, and let go of the oldest beyond a bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import PayloadUndecodable
from .fields import as_seconds, as_text, as_whole, from_json, to_json
from .history import (
    STORED_PART,
    Record,
    Span,
    history_path,
    merged_name,
    merged_to_bytes,
    parse_span,
    printed_bytes,
    records_from_bytes,
)
from .layout import UNTOLD
from .load import read_all
from .requests import (
    Applied,
    Create,
    Delete,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    SetData,
    Step,
)
from .shared import REFUSALS_MAX, too_busy

#: The most that a plan's history takes, as its znodes hold it; and where its oldest parts go to a
#: store, which may be away.
BYTES_MAX, AWAY_BYTES_MAX = 1024 * 1024, 4 * 1024 * 1024
#: How many segments one transaction merges, and how many bytes of them.
SEGMENTS_MAX, SEGMENT_BYTES_MAX = 400, 256 * 1024
#: With more bytes of what tasks have printed nothing is merged: it may be small when it is packed.
PRINTED_BYTES_MAX = 8 * 1024 * 1024
#: So many times its size a merged znode may unpack to; else it counts as larger than it is.
UNPACKED_RATIO = 16
#: A merged znode that is smaller may be merged once more with what follows.
FULL_BYTES = 64 * 1024


class Cut(NamedTuple):
    """What a bounded history does not hold any more: how many events, and until when, in seconds
    since 1970 by the clock of ZooKeeper. `imported`: nor what happened before it was imported.

    `kept` of these events lie in the store. `stored` is the name of the last part there, which
    names the one before it.
    """

    events: int = 0
    until: float = 0.0
    imported: bool = False
    kept: int = 0
    stored: str = ""

    @property
    def lost(self) -> int:
        """How many of the events are nowhere any more."""
        return self.events - self.kept

    def to_bytes(self) -> bytes:
        return to_json(self._asdict())

    @classmethod
    def from_bytes(cls, data: bytes) -> Cut:
        """Raises PayloadUndecodable."""
        what = "a cut of a history"
        value = from_json(data, what) if data else {}
        events, until = value.get("events", 0), value.get("until", 0.0)
        imported, kept = value.get("imported") is True, as_whole(value.get("kept", 0), what)
        stored = as_text(value.get("stored", ""))
        if (stored and not STORED_PART.fullmatch(stored)) or kept > as_whole(events, what):
            raise PayloadUndecodable(f"{what} is damaged")
        return cls(as_whole(events, what), as_seconds(until, what), imported, kept, stored)


class Oldest(NamedTuple):
    """A merged znode that is to leave the tree. `cut` and `version` are what the znode of the
    history holds now, `events` and `until` what this one adds to that."""

    span: Span
    data: bytes
    cut: Cut
    version: int
    events: int
    until: float


class History(NamedTuple):
    """What is read of a history: `records` in order, and what is missing.

    `untold` counts transactions that a full server or an access list left untold. `damaged` are the
    names of znodes that cannot be read.
    """

    records: list[Record]
    cut: Cut
    untold: int
    damaged: list[str]


def read_history(plan_path: str, after: int = -1, watch: bool = False) -> Step[History | None]:
    """Read the records behind number `after`; None where the plan keeps no history.

    With `watch` the next one wakes the client. It shows the history as it was at one moment: what
    is merged meanwhile is read again.
    """
    path = history_path(plan_path)
    for _ in range(REFUSALS_MAX):
        names = yield ReadChildren(path, watch)
        if names is None:
            return None
        spans = [span for span in spans_of(names) if span.last > after]
        reads = [ReadData(f"{path}/{span.name}") for span in spans]
        own, untold = yield ReadMany([ReadData(path), ReadData(f"{path}/{UNTOLD}")])
        nodes = yield from read_all(reads)
        if own is None or any(node is None for node in nodes):
            continue
        records, damaged = list[Record](), list[str]()
        for span, node in zip(spans, nodes, strict=True):
            found = _decoded(span, node)
            if found is None:
                damaged.append(span.name)
            else:
                records += [record for record in found if record.number > after]
        return History(records, cut_of(own), untold.version if untold is not None else 0, damaged)
    raise too_busy(f"reading {path}")


def compact(plan_path: str, most: int | None = None, has_store: bool = False) -> Step[int]:
    """Merge the segments of a history, and keep it below `most` bytes, or below what is usual.
    Returns how many were merged. With `has_store` somebody moves the oldest to the store next.

    Whoever else does so at the same time is refused: each deletes what it has read.
    """
    if most is None:
        most = AWAY_BYTES_MAX if has_store else BYTES_MAX
    path = history_path(plan_path)
    merged = 0
    for _ in range(REFUSALS_MAX):
        spans = spans_of((yield ReadChildren(path)) or ())
        if sum(span.size for span in spans) > most:
            yield from _bound(plan_path, most)
        segments = [span for span in spans if not span.is_merged][:SEGMENTS_MAX]
        if len(segments) < 2:
            return merged
        before = [span for span in spans if span.is_merged and span.last < segments[0].first]
        took = yield from _merge(path, [*_worth_merging(before, len(segments)), *segments])
        if not took:
            return merged
        merged += took
    return merged


def _worth_merging(before: list[Span], count: int) -> list[Span]:
    """The last merged znodes that are merged once more with `count` new segments: small ones that
    hold not much more. So each record is read and written a few times, not at each merge: a
    log-structured merge tree does the same."""
    chosen: list[Span] = []
    for span in reversed(before):
        holds = span.last - span.first + 1
        if span.size >= FULL_BYTES or holds > 2 * count:
            break
        chosen.insert(0, span)
        count += holds
    return chosen


def _merge(path: str, spans: Sequence[Span]) -> Step[int]:
    """Merge the first of `spans` that can be read, one behind the other. Returns how many."""
    nodes = yield from read_all([ReadData(f"{path}/{span.name}") for span in spans])
    chosen, records, size, printed = list[Span](), list[Record](), 0, 0
    for span, node in zip(spans, nodes, strict=True):
        found = _decoded(span, node) if node is not None else None
        more = printed_bytes(found or ())
        if found is None or printed + more > PRINTED_BYTES_MAX:
            if len(chosen) > 1:
                break
            chosen, records, size, printed = [], [], 0, 0  # a damaged one stays where it is
            if found is None or more > PRINTED_BYTES_MAX:
                continue
        if len(chosen) > 1 and size + len(node.data) > SEGMENT_BYTES_MAX:
            break
        chosen.append(span)
        records += found
        size += len(node.data)
        printed += more
    if len(chosen) < 2:
        return 0
    data = merged_to_bytes(records)
    counted = max(len(data), printed // UNPACKED_RATIO)
    name = merged_name(chosen[0].first, chosen[-1].last, counted)
    ops: list[Op] = [Create(f"{path}/{name}", data)]
    ops += [Delete(f"{path}/{span.name}") for span in chosen]
    answer = yield Multi(ops)
    return len(chosen) if isinstance(answer, Applied) else 0


def _bound(plan_path: str, most: int) -> Step[None]:
    """Delete the oldest merged znodes, but the last, until the others take less than `most`."""
    while (found := (yield from oldest(plan_path, most))) is not None:
        if found.cut.stored and most < AWAY_BYTES_MAX:
            most = AWAY_BYTES_MAX  # it is kept elsewhere, by those who have that store
        elif not (yield from let_go(plan_path, found)):
            return  # another one does it


def oldest(plan_path: str, most: int | None = None) -> Step[Oldest | None]:
    """The merged znode that leaves the tree next; None while the history takes less than `most`
    bytes, or than what is usual."""
    path = history_path(plan_path)
    most = BYTES_MAX if most is None else most
    for _ in range(REFUSALS_MAX):
        spans = spans_of((yield ReadChildren(path)) or ())
        merged = [span for span in spans if span.is_merged]
        if len(merged) < 2 or sum(span.size for span in merged) <= most:
            return None
        span = merged[0]
        own, node = yield ReadMany([ReadData(path), ReadData(f"{path}/{span.name}")])
        if own is not None and node is not None:
            records, cut = _decoded(span, node) or [], cut_of(own)
            events = sum(len(record.events) for record in records)
            until = max([cut.until, *(record.ms / 1000 for record in records)])
            return Oldest(span, node.data, cut, own.version, events, until)
    return None


def let_go(plan_path: str, found: Oldest, stored: str = "") -> Step[bool]:
    """Delete that znode, which lies in the store as `stored`, or nowhere else. Returns False if
    somebody else has changed the history meanwhile: then look for the oldest again."""
    path, cut = history_path(plan_path), found.cut
    cut = cut._replace(events=cut.events + found.events, until=found.until)
    if stored:
        cut = cut._replace(kept=cut.kept + found.events, stored=stored)
    told = SetData(path, cut.to_bytes(), found.version)
    return isinstance((yield Multi([told, Delete(f"{path}/{found.span.name}")])), Applied)


def spans_of(names: Sequence[str]) -> list[Span]:
    """The znodes of a history, in order, by the names of its children."""
    return sorted(span for name in names if (span := parse_span(name)) is not None)


def _decoded(span: Span, node: Node) -> list[Record] | None:
    try:
        return records_from_bytes(span, node.data, node.created_ms)
    except PayloadUndecodable:
        return None


def cut_of(own: Node) -> Cut:
    """What the znode of the history itself says is gone."""
    try:
        return Cut.from_bytes(own.data)
    except PayloadUndecodable:
        return Cut()
