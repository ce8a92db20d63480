"""Read histories, merge their segments, and drop the oldest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ...errors import PayloadUndecodable
from ..core.load import read_all
from ..fields import as_seconds, as_text, as_whole, from_json, to_json
from ..layout import UNTOLD
from ..requests import (
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
from ..transactions import REFUSALS_MAX, too_busy
from .segments import (
    STORED_PART,
    Record,
    Span,
    body_of,
    history_path,
    merged_name,
    merged_to_bytes,
    parse_span,
    printed_bytes,
    records_from_body,
    records_from_bytes,
)

#: The most bytes of a plan's history in the tree: without a store, and with a store for its oldest
#: parts, which may be unreachable.
BYTES_MAX, AWAY_BYTES_MAX = 1024 * 1024, 4 * 1024 * 1024
#: How many segments one transaction merges, and how many bytes of them.
SEGMENTS_MAX, SEGMENT_BYTES_MAX = 400, 256 * 1024
#: Segments with more printed bytes, which may be small when packed, are not merged.
PRINTED_BYTES_MAX = 8 * 1024 * 1024
#: A merged znode that unpacks to more than this many times its size counts as larger.
UNPACKED_RATIO = 16
#: A smaller merged znode may be merged again with the segments after it.
FULL_BYTES = 64 * 1024


class Cut(NamedTuple):
    """What a history in the tree lacks: how many events, and until when, in seconds since 1970 by
    the clock of ZooKeeper. `imported`: all events before its import, too. `kept` of the events are
    in the store; `stored` is the last part there, which names the part before it.
    """

    events: int = 0
    until: float = 0.0
    imported: bool = False
    kept: int = 0
    stored: str = ""

    @property
    def lost(self) -> int:
        """How many of the events are not kept anywhere."""
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
    """A merged znode that must leave the tree. `cut` and `version` belong to the znode of the
    history; `events` and `until` are what this merged znode adds to the cut."""

    span: Span
    data: bytes
    cut: Cut
    version: int
    events: int
    until: float


class History(NamedTuple):
    """The records of a history, in order, and what is missing. `untold` counts transactions without
    events, because of a full server or an access list. `damaged` are the names of znodes that
    cannot be read."""

    records: list[Record]
    cut: Cut
    untold: int
    damaged: list[str]


def read_history(plan_path: str, after: int = -1, watch: bool = False) -> Step[History | None]:
    """Read the records after number `after`; None if the plan keeps no history.

    With `watch` the next record wakes the client. The records are a snapshot: if some are merged
    meanwhile, all are read again.
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
    """Merge the segments of a history, and keep it below `most` bytes, or the default. Returns how
    many were merged. `has_store`: the caller moves the oldest part to the store after this.

    If two workers merge at the same time, one is refused, as each deletes the segments it has read.
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
    """The last merged znodes to merge again with `count` new segments: small znodes with not many
    more records. So each record is rewritten only a few times, as in a log-structured merge
    tree."""
    chosen: list[Span] = []
    for span in reversed(before):
        holds = span.last - span.first + 1
        if span.size >= FULL_BYTES or holds > 2 * count:
            break
        chosen.insert(0, span)
        count += holds
    return chosen


def _merge(path: str, spans: Sequence[Span]) -> Step[int]:
    """Merge the first consecutive `spans` that can be read. Returns how many it merged."""
    nodes = yield from read_all([ReadData(f"{path}/{span.name}") for span in spans])
    chosen, records, size, printed = list[Span](), list[Record](), 0, 0
    for span, node in zip(spans, nodes, strict=True):
        found = _decoded(span, node) if node is not None else None
        more = printed_bytes(found or ())
        if found is None or printed + more > PRINTED_BYTES_MAX:
            if len(chosen) > 1:
                break
            chosen, records, size, printed = [], [], 0, 0  # a damaged one stays
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
    """Delete the oldest merged znodes, except the last, until the others take less than `most`."""
    while (found := (yield from oldest(plan_path, most))) is not None:
        if found.cut.stored and most < AWAY_BYTES_MAX:
            most = AWAY_BYTES_MAX  # workers with that store move it there
        elif not (yield from let_go(plan_path, found)):
            return  # another client does it


def oldest(plan_path: str, most: int | None = None) -> Step[Oldest | None]:
    """The merged znode that leaves the tree next; None while the history takes less than `most`
    bytes, or the default."""
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
    """Delete the oldest znode: the store has it as `stored`, or its events are lost. Returns False
    if somebody else has changed the history: then look for the oldest again."""
    path, cut = history_path(plan_path), found.cut
    cut = cut._replace(events=cut.events + found.events, until=found.until)
    if stored:
        cut = cut._replace(kept=cut.kept + found.events, stored=stored)
    record = SetData(path, cut.to_bytes(), found.version)
    return isinstance((yield Multi([record, Delete(f"{path}/{found.span.name}")])), Applied)


def spans_of(names: Sequence[str]) -> list[Span]:
    """The znodes of a history, in order, by the names of its children."""
    return sorted(span for name in names if (span := parse_span(name)) is not None)


def _decoded(span: Span, node: Node) -> list[Record] | None:
    try:
        return records_from_bytes(span, node.data, node.created_ms)
    except PayloadUndecodable:
        return None


def cut_of(own: Node) -> Cut:
    """The cut in the data of the history's znode."""
    try:
        return Cut.from_bytes(own.data)
    except PayloadUndecodable:
        return Cut()


# ---- Read the histories of many plans together, and decode them on demand.


class StoredHistory:
    """A history as it is stored. `untold` counts transactions without events. `damaged` are the
    names of znodes that cannot be read or decoded, as far as that was tried."""

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
        """This history after the `earlier` merged znodes. `cut` is what is still missing then."""
        nodes = [(span, Node(data, 0, 0, 0, 0, 0, 0)) for span, data in earlier]
        return StoredHistory([*nodes, *self._nodes], cut, self.untold, self.damaged)

    @property
    def bodies(self) -> list[bytes]:
        """The JSON of each znode, in order: `[by, events]`, or a list of records. It has no spaces,
        so `["` always begins an event."""
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
    """The histories of these plans; None for a plan without a history, or that may not be read.

    A history without records at `since_ms` or later may be empty. Each history is a
    snapshot, but not all are of the same moment.
    """
    found = yield from _read(plan_paths, since_ms)
    for at, plan_path in enumerate(plan_paths):
        stored = found[at]
        for _ in range(REFUSALS_MAX):
            if stored is None or not stored.damaged:
                break
            # Znodes that were merged or removed meanwhile are not listed any more. A znode that is
            # still listed may not be read.
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
    """These znodes of each history; None for one that is gone or may not be read."""
    reads = [
        ReadData(f"{path}/{span.name}")
        for path, spans in zip(paths, wanted, strict=True)
        for span in spans
    ]
    nodes = iter((yield from read_all(reads, strict=False)) if reads else ())
    return [[next(nodes) for _ in spans] for spans in wanted]
