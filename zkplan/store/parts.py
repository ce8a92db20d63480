"""Parts of histories in the store: move the oldest there, and read them back.

Each part names the one before it with its digest, and the tree names the last one. So only what was
written before it left the tree is read, once, and nothing else that lies there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..basics.text import count
from ..errors import PayloadUndecodable, PlanNotFound, StoredValueLost, StoreUnavailable
from ..protocol import failpoints, formats
from ..protocol.compaction import Cut, Oldest, let_go, oldest
from ..protocol.fields import from_json, to_json
from ..protocol.history import STORED_PART, Record, Span, gap_to_bytes, records_from_bytes
from ..protocol.requests import ReadData
from ..transport import Transport
from .blob import Bytes, digest
from .reference import HISTORY, Reference
from .values import Values

#: So many bytes of a history are read of the store, the latest parts first.
READ_BYTES_MAX = 16 * 1024 * 1024
NO_STORE = (
    "and none is configured here: give the one of its workers (connect(store=...), --store or "
    "ZKPLAN_STORE)"
)


class Part(NamedTuple):
    """One part: the data of a merged znode with so many events, and what the znode of the history
    said before."""

    span: Span
    data: bytes
    events: int
    before: Cut

    def records(self) -> list[Record]:
        """Raises PayloadUndecodable."""
        return records_from_bytes(self.span, self.data, 0)


class Earlier(NamedTuple):
    """What the store has of a history, in order. `cut` is what is missing all the same, and `why`
    says where it is, if anybody may know that."""

    parts: list[Part]
    cut: Cut
    why: str = ""


def part_of(found: Oldest) -> tuple[Reference, bytes]:
    """What is written for a znode that leaves the tree: equal bytes, whoever does it."""
    head = to_json({"events": found.events, "before": found.cut._asdict()})
    blob = b"%b%08x%b%b" % (formats.HISTORY_PART, len(head), head, found.data)
    first, last, _, _ = found.span
    key = f"{HISTORY}-{first:010d}-{last:010d}-{len(blob)}"
    return Reference(key, digest([blob]), len(blob)), blob


def parse_part(name: str) -> Reference:
    """Raises PayloadUndecodable for what is no name of a part."""
    found = STORED_PART.fullmatch(name)
    if found is None:
        raise PayloadUndecodable(f"{name!r:.100} is no part of a history")
    return Reference(found[1], bytes.fromhex(found[5]), int(found[4]))


def part_from_bytes(name: str, blob: Bytes) -> Part:
    """Raises OtherFormat, and PayloadUndecodable for bytes that `part_of` did not make."""
    found, data = STORED_PART.fullmatch(name), bytes(blob)
    formats.require_magic(data, formats.HISTORY_PART)
    try:
        end = 12 + int(data[4:12], 16)
        value = from_json(data[12:end], "the head of a part")
        before = Cut.from_bytes(to_json(value["before"]))
        if (
            not data.startswith(formats.HISTORY_PART)
            or found is None
            or type(value["events"]) is not int
        ):
            raise ValueError("no part")
    except (ValueError, TypeError, LookupError) as error:
        raise PayloadUndecodable(f"it is no part of a history: {error}") from None
    span = Span(int(found[2]), int(found[3]), name.replace(HISTORY, "merged", 1))
    return Part(span, data[end:], value["events"], before)


def chain(cut: Cut, read: Callable[[Reference], Bytes], after: int = -1) -> Earlier:
    """The parts with a number behind `after`, read from the last one on back to the first. A gap
    stands where others were let go.

    `read` raises StoredValueLost, StoreUnavailable and PayloadUndecodable: then `why` says so.
    """
    parts, left, now, size = list[Part](), cut, cut, 0
    why = ""
    while now.stored and not why and _last(now.stored) > after:
        try:
            reference = parse_part(now.stored)
            if (size := size + reference.length) > READ_BYTES_MAX:
                why = f"no more than {READ_BYTES_MAX // 1024**2} MiB of a history are read there"
                break
            part = part_from_bytes(now.stored, read(reference))
        except (StoredValueLost, StoreUnavailable) as error:
            why = str(error)
        except PayloadUndecodable as error:
            why = f"{now.stored} cannot be read: {error}"
        else:
            if now.lost > part.before.lost:
                data = gap_to_bytes(part.span.last, int(now.until * 1000))
                parts.append(Part(part.span, data, 0, now))
            parts.append(part)
            left = left._replace(events=left.events - part.events, kept=left.kept - part.events)
            now = part.before
    return Earlier(parts[::-1], left._replace(stored=now.stored), why)


def _last(name: str) -> int:
    found = STORED_PART.fullmatch(name)
    return int(found[3]) if found else -1


def earlier(values: Values, plan_path: str, cut: Cut, after: int = -1) -> Earlier:
    """What the store has, behind number `after`, of the history of a plan whose znode holds
    `cut`."""
    if _last(cut.stored) <= after:
        return Earlier([], cut)
    told = f"{count(cut.kept, 'event')} of them lie in a store"
    if values.store is None:
        return Earlier([], cut, f"{told}, {NO_STORE}")
    try:
        found = chain(cut, lambda reference: values.blob(plan_path, reference), after)
    except PlanNotFound as error:
        return Earlier([], cut, str(error))
    told = f"{count(found.cut.kept, 'event')} of them lie in the store {values.store.url}: "
    return found._replace(why=told + found.why) if found.why else found


def keep_oldest(transport: Transport, values: Values, plan_path: str) -> int:
    """Move the oldest znodes of a history into the store, until the tree has less than its bound.
    Returns how many. Raises StoreUnavailable.

    Each is written, and lasts, before it is deleted. Who dies between leaves a part that the tree
    does not name: nobody reads it, and the next one writes it once more.
    """
    store, folder, moved = values.store, values.known_folder_of(plan_path), 0
    while store is not None and folder:
        found = transport.run(oldest(plan_path))
        if found is None:
            break
        reference, blob = part_of(found)
        store.write(folder, reference.name, [blob])
        failpoints.reach("history.between")
        if not transport.run(let_go(plan_path, found, reference.name)):
            if transport.ask(ReadData(plan_path)) is None:
                store.delete_folder(folder)  # the plan was removed, and this made it anew
            break  # another one does it
        moved += 1
    return moved
