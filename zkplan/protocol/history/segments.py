"""Write history: each transaction adds one segment with its events.

A transaction that changes a plan creates one `seg-` with its events. Maintenance merges many into
one `merged-FIRST-LAST.BYTES`. They are ordered by numbers that ZooKeeper gives.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from ...errors import PayloadUndecodable
from .. import formats
from ..fields import require_proven
from ..interference import leaf_cleared, skip_number
from ..layout import HISTORY, MERGED, SEGMENT, UNTOLD, number_of
from ..requests import (
    Applied,
    Await,
    Create,
    Multi,
    Op,
    ReadMany,
    Reason,
    Refused,
    Send,
    SetData,
    Step,
    Ticket,
)
from .events import EventDeriver, RawEvent

#: The start of each segment, before `j` for JSON or `z` for JSON in zlib.
MAGIC = formats.HISTORY
#: Shorter segments are not compressed.
COMPRESSED_FROM = 200
#: The most bytes of a segment when it is unpacked: it may be damaged or malicious.
UNPACKED_MAX = 32 * 1024 * 1024
#: The most bytes of one character in JSON.
ESCAPED_MAX = 6
#: The most digits of a number: a time in ms, with some to spare.
DIGITS_MAX = 14
#: Maps digits to 0, so that one search finds long numbers.
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * (DIGITS_MAX + 1)
_SEGMENT = re.compile(f"{SEGMENT}([0-9]{{10}})")
_MERGED = re.compile(rf"{MERGED}([0-9]{{10}})-([0-9]{{10}})\.([0-9]{{1,8}})")
#: The name of a part in the store: history-FIRST-LAST-BYTES, and the digest of its bytes.
STORED_PART = re.compile("(history-([0-9]{10})-([0-9]{10})-([0-9]{1,9}))-([0-9a-f]{32})")
#: The event in place of dropped events, if earlier ones are kept.
GAP = "G"
#: The event with output of an attempt.
PRINTED = "p"


class Record(NamedTuple):
    """The events of one transaction. `number` is its place in the order, `ms` the server's time.
    `by` is its author: the ID of a worker, or a person, a machine and a command."""

    number: int
    ms: int
    by: str
    events: Sequence[RawEvent]


def history_path(plan_path: str) -> str:
    return f"{plan_path}/{HISTORY}"


class Span(NamedTuple):
    """A znode of the history by its name: the first and the last number in it, and the approximate
    size of a merged one."""

    first: int
    last: int
    name: str
    size: int = 0

    @property
    def is_merged(self) -> bool:
        return self.name.startswith(MERGED)


def parse_span(name: str) -> Span | None:
    """
    >>> parse_span("seg-0000000007"), parse_span("untold")
    (Span(first=7, last=7, name='seg-0000000007', size=0), None)
    """
    if found := _SEGMENT.fullmatch(name):
        return Span(int(found[1]), int(found[1]), name)
    if found := _MERGED.fullmatch(name):
        return Span(int(found[1]), int(found[2]), name, int(found[3]))
    return None


def merged_name(first: int, last: int, size: int) -> str:
    return f"{MERGED}{first:010d}-{last:010d}.{size}"


def segment_to_bytes(by: str, events: Sequence[RawEvent]) -> bytes:
    """The data of a `seg-`: one transaction."""
    return _pack([by, events])


def merged_to_bytes(records: Sequence[Record]) -> bytes:
    """The data of a `merged-`."""
    return _pack([list(record) for record in records], always=True)


def records_from_bytes(span: Span, data: bytes, created_ms: int) -> list[Record]:
    """The records in a znode of the history. Raises PayloadUndecodable."""
    return records_from_body(span, body_of(data), created_ms)


def records_from_body(span: Span, body: bytes, created_ms: int) -> list[Record]:
    """The records in the result of `body_of`. Raises PayloadUndecodable."""
    value = _parsed(body)
    if not span.is_merged:
        value = [[span.first, created_ms, *value]]
    try:
        return [_record(each) for each in value]
    except (TypeError, ValueError) as error:
        raise PayloadUndecodable(f"{span.name} of a history is damaged: {error}") from None


def gap_to_bytes(number: int, ms: int) -> bytes:
    """The data of a `merged-` in place of dropped records, the last of which has the time `ms`."""
    return merged_to_bytes([Record(number, ms, "", [[GAP]])])


def printed_bytes(records: Sequence[Record]) -> int:
    """An upper estimate of the bytes, in JSON, of what tasks printed in these records."""
    events = [event for record in records for event in record.events if event[0] == PRINTED]
    return sum(ESCAPED_MAX * len(event[4]) for event in events if is_printed(event))


def is_printed(event: RawEvent) -> bool:
    """Whether `event` is a well-formed event with the output of an attempt."""
    if event[0] != PRINTED or len(event) < 5:
        return False
    numbers = all(type(each) is int and each >= 0 for each in event[1:4])
    return numbers and type(event[4]) is str


def _record(value: Any) -> Record:
    number, ms, by, events = value
    if type(number) is not int or type(ms) is not int or type(by) is not str:
        raise TypeError("no number, time or name")
    for event in events:
        if type(event) is not list or not event or type(event[0]) is not str:
            raise TypeError("an event has no letter")
    return Record(number, ms, by, events)


def _pack(value: Any, always: bool = False) -> bytes:
    plain = _ENCODER.encode(value).encode(errors="replace")
    if always or len(plain) > COMPRESSED_FROM:
        packed = zlib.compress(plain, 6 if always else 1)
        if len(packed) < len(plain):
            return b"%bz%b" % (MAGIC, packed)
    return b"%bj%b" % (MAGIC, plain)


def body_of(data: bytes) -> bytes:
    """The JSON in the data of a znode. Raises PayloadUndecodable."""
    if data[:2] != MAGIC:
        require_proven(data)
        formats.require_magic(data, MAGIC)
        raise PayloadUndecodable("a history is damaged")
    if data[2:3] != b"z":
        return data[3:]
    unpacking = zlib.decompressobj()
    try:
        body = unpacking.decompress(data[3:], UNPACKED_MAX)
    except zlib.error as error:
        raise PayloadUndecodable(f"a history is damaged: {error}") from None
    if not unpacking.eof:
        raise PayloadUndecodable("a history is cut short, or unpacks to more than it may")
    return body


def _parsed(body: bytes) -> list[Any]:
    try:
        # A check of each number doubles the time, so do it only if one may be too large.
        careful = _LONG in body.translate(_ZEROS)
        value = (_CAREFUL if careful else _DECODER).decode(body.decode())
        if b"\\ud" in body or b"\\uD" in body:
            # A lone surrogate, which no file takes, and which zkplan does not write.
            value = json.loads(_ENCODER.encode(value).encode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise PayloadUndecodable(f"a history is not JSON: {error}") from None
    if not isinstance(value, list):
        raise PayloadUndecodable("a history is not a list")
    return value


def _no_number(text: str) -> int:
    raise ValueError(f"a history has only whole numbers, not {text[:20]}")


def _whole(text: str) -> int:
    """Parse a number: all numbers of a history are whole, and no longer than times in ms."""
    if len(text) > DIGITS_MAX:
        raise ValueError("a number of a history is too large")
    return int(text)


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_DECODER = json.JSONDecoder(parse_float=_no_number, parse_constant=_no_number)
#: Slower, because it calls `_whole` for each number.
_CAREFUL = json.JSONDecoder(parse_int=_whole, parse_float=_no_number, parse_constant=_no_number)


# ---- The one place where history is written.
#
# Steps know nothing about history. The recorder adds one operation for each plan that a transaction
# changes, and gives the step only the answers to the step's own operations.


T = TypeVar("T")
#: How many plans without a history are remembered, and how many that were written to.
KNOWN_MAX = 10_000
#: How often one transaction is sent again because somebody makes znodes where zkplan makes none.
CLEARED_MAX = 20
#: A segment counts as one, and as one more for this many bytes.
COUNTED_BYTES = 640


class Recorder:
    """Records the steps of one client under one root. `by` is the author of its events.

    Thread-safe: each access to its state is one operation of a set or a dict.
    """

    def __init__(
        self,
        root: str,
        by: str = "",
        clock: Callable[[], float] = time.monotonic,
        acting: Callable[[], str] = str,
    ) -> None:
        """`acting` returns the author of the events of a step, or an empty text for `by`."""
        self.root, self.by, self._acting = root, by, acting
        #: The numbers of plans without a history.
        self._without: set[str] = set()
        self._teller, self._clock = EventDeriver(root, self._without), clock
        #: How many segments of usual size were written to each plan since the last merge.
        self.written: Counter[str] = Counter()

    def leave_out(self, number: str) -> None:
        """Write nothing for a plan that keeps no history. Other clients learn that from their
        first transaction, which is refused and sent again."""
        if len(self._without) >= KNOWN_MAX:
            self._without.clear()
        self._without.add(number)

    def step(self, step: Step[T]) -> Step[T]:
        """Run `step`, and let its transactions write history."""
        sent: dict[Ticket, tuple[Multi | ReadMany, _Recorded | None]] = {}
        #: Reads that were answered before the transaction that they were sent after.
        early: set[Ticket] = set()
        answer: Any = None
        failure: Exception | None = None
        try:
            while True:
                try:
                    request = step.send(answer) if failure is None else step.throw(failure)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                answer, failure = None, None
                try:
                    if type(request) is Multi:
                        recorded = self._recorded(request)
                        answer = yield recorded.multi
                        answer = yield from self._final(recorded, answer)
                    elif type(request) is Send:
                        asked, made = request.request, None
                        if type(asked) is Multi:
                            made = self._recorded(asked)
                            request = Send(made.multi)
                        answer = yield request
                        sent[answer] = asked, made
                    elif type(request) is Await:
                        ticket = request.ticket
                        asked, made = sent.pop(ticket)
                        answer = yield request
                        if made is not None:
                            before = made.multi
                            answer = yield from self._final(made, answer)
                            if made.multi is not before:
                                early.update(sent)
                        elif ticket in early:
                            answer = yield asked
                    else:
                        answer = yield request
                except Exception as error:
                    failure = error
        finally:
            step.close()

    def again(self, plan_path: str) -> None:
        """Count that plan as written to, so that its history is merged later. Any thread may call
        this."""
        self.written.setdefault(number_of(plan_path), 1)

    def _recorded(self, request: Multi) -> _Recorded:
        ops = request.ops
        if self._teller.derives_nothing(ops):
            return _Recorded(self.root, ops, [])
        now, by = self._clock() if request.facts else 0.0, self._acting() or self.by
        segments = [
            (number, segment_to_bytes(by, events))
            for number, events in self._teller.events(ops, request.facts, by, now)
        ]
        return _Recorded(self.root, ops, segments)

    def _final(self, recorded: _Recorded, answer: Any) -> Step[Any]:
        """The answer to the transaction of the step, after more tries.

        If foreign znodes obstruct the transaction, they are deleted before the next try. If a plan
        has no history, neither the next try nor a later transaction writes one. If the history has
        no room, or an access list protects it, the next try only counts the transaction as untold.
        If that is refused too, the last try writes nothing.

        No earlier try was applied: the step's own operations come first, and an applied copy would
        have refused them.
        """
        count = len(recorded.ops)
        for _ in range(CLEARED_MAX):
            if not isinstance(answer, Refused) or not (yield from leaf_cleared(self.root, answer)):
                break
            recorded.build()  # another request: reads that were sent after the first are repeated
            before, answer = answer, (yield recorded.multi)
            # An earlier copy of the first try may have been applied since.
            answer = answer._replace(repeated=answer.repeated or before.repeated)
        while isinstance(answer, Refused) and answer.at >= count:
            number = recorded.segments[answer.at - count][0]
            path = history_path(f"{self.root}/plan-{number}")
            if answer.reason is Reason.NODE_EXISTS:
                yield from skip_number(path)  # somebody else has taken the name
            elif number in recorded.untold:
                # This transaction cannot even be counted. The next one is recorded again, because
                # an access list may be lifted, and a full server may have room.
                recorded.drop(number)
            elif answer.reason is Reason.NO_NODE:
                self.leave_out(number)
                recorded.drop(number)
            else:
                recorded.untold.add(number)
            recorded.build()
            answer = yield recorded.multi
        if isinstance(answer, Applied) and recorded.segments:
            if len(self.written) >= KNOWN_MAX:
                self.written.clear()
            for number, data in recorded.segments:
                self.written[number] += 1 + len(data) // COUNTED_BYTES
            return Applied(answer.results[:count], answer.repeated, bool(recorded.untold))
        return answer


class _Recorded:
    """A transaction, and for each plan the data of its segment. For `untold` plans, whose histories
    have no room, it only counts a transaction without events."""

    __slots__ = ("multi", "ops", "root", "segments", "untold")

    def __init__(self, root: str, ops: Any, segments: list[tuple[str, bytes]]) -> None:
        self.root, self.ops, self.segments = root, ops, segments
        self.untold = set[str]()
        self.build()

    def drop(self, number: str) -> None:
        """Write nothing into the history of that plan."""
        self.segments = [each for each in self.segments if each[0] != number]

    def build(self) -> None:
        if not self.segments:
            self.multi = Multi(self.ops)
            return
        more: list[Op] = []
        for number, data in self.segments:
            path = history_path(f"{self.root}/plan-{number}")
            if number in self.untold:
                more.append(SetData(f"{path}/{UNTOLD}"))
            else:
                more.append(Create(f"{path}/{SEGMENT}", data, sequence=True))
        self.multi = Multi([*self.ops, *more])
