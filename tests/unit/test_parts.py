"""Parts of a history in a store: any bytes are decoded or refused, and reads are bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkplan.errors import PayloadUndecodable, StoredValueLost
from zkplan.protocol.formats import HISTORY_PART as MAGIC
from zkplan.protocol.history.compaction import Cut, Oldest
from zkplan.protocol.history.segments import GAP, Record, Span, merged_name, merged_to_bytes
from zkplan.values import store_maintenance as parts
from zkplan.values.blobs import Reference
from zkplan.values.store_maintenance import Earlier, chain, parse_part, part_from_bytes, part_of

from .hostile_bytes import BODIES, NAMES

NAME = f"history-0000000007-0000000009-99-{'0' * 32}"


class Stored:
    """Four parts of a history, of two events each; `lost` events were let go behind the second."""

    def __init__(self, lost: int = 0) -> None:
        self.blobs: dict[str, bytes] = {}
        self.cut = Cut()
        for first in range(4):
            if first == 2:
                self.cut = self.cut._replace(events=self.cut.events + lost, until=1.5)
            data = merged_to_bytes([Record(first, 1000 + first, "w", [["D"], ["D"]])])
            span = Span(first, first, merged_name(first, first, 9), 9)
            part, blob = part_of(Oldest(span, data, self.cut, 3, 2, first + 1.0))
            self.blobs[part.name] = blob
            self.cut = self.cut._replace(
                events=self.cut.events + 2, kept=self.cut.kept + 2, stored=part.name
            )

    def read(self, part: Reference) -> bytes:
        if part.name not in self.blobs:
            raise StoredValueLost(f"{part.name} is gone")
        return self.blobs[part.name]

    def chain(self, after: int = -1) -> Earlier:
        return chain(self.cut, self.read, after)


def told(found: Earlier) -> list[tuple[int, str]]:
    return [(each.number, each.events[0][0]) for part in found.parts for each in part.records()]


def test_parts_are_read_in_order_with_a_gap_for_dropped_parts() -> None:
    assert told(Stored().chain()) == [(0, "D"), (1, "D"), (2, "D"), (3, "D")]
    found = Stored(lost=5).chain()
    assert told(found) == [(0, "D"), (1, "D"), (1, GAP), (2, "D"), (3, "D")]
    assert (found.cut.events, found.cut.kept, found.why) == (5, 0, "")
    assert told(Stored().chain(after=1)) == [(2, "D"), (3, "D")]


def test_reading_stops_at_a_missing_part_or_at_the_size_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = Stored()
    gone = list(stored.blobs)[1]
    good = stored.blobs.pop(gone)
    found = stored.chain()
    assert told(found) == [(2, "D"), (3, "D")]
    assert (found.cut.events, found.cut.kept, found.why) == (4, 4, f"{gone} is gone")
    stored.blobs[gone] = b"else" + good[4:]
    assert "is not a part of a history" in stored.chain().why
    stored.blobs[gone] = good
    monkeypatch.setattr(parts, "READ_BYTES_MAX", 2 * len(good) + 40)
    found = stored.chain()
    assert told(found) == [(2, "D"), (3, "D")]
    assert "MiB of a history are read" in found.why


@given(st.sampled_from((b"", MAGIC, MAGIC + b"00000007", MAGIC + b"-0000001")), BODIES)
def test_any_bytes_are_read_as_a_part_or_refused(head: bytes, body: bytes) -> None:
    try:
        part_from_bytes(NAME, head + body)
    except PayloadUndecodable:
        return


@given(NAMES)
def test_any_text_is_read_as_the_name_of_a_part_or_refused(name: str) -> None:
    try:
        assert parse_part(name).name == name
    except PayloadUndecodable:
        return
