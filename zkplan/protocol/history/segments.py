"""Write history: each transaction adds one segment with its events.

A transaction that changes a plan creates one `seg-` with its events. Maintenance puts many into one
`merged-FIRST-LAST.BYTES`. Their order is that of the numbers, which ZooKeeper gives.
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
from ..interference import skip_number
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
from .events import Teller, Told

#: What every segment begins with: then `j` for JSON or `z` for JSON in zlib.
MAGIC = formats.HISTORY
#: Shorter ones are not compressed: it would cost more time than it saves bytes.
COMPRESSED_FROM = 200
#: What a damaged or malicious segment may take at most when it is unpacked.
UNPACKED_MAX = 32 * 1024 * 1024
#: Bytes of one character in JSON.
ESCAPED_MAX = 6
#: Those of a time in ms, with some to spare.
DIGITS_MAX = 14
#: Each digit becomes a 0, so that a long number is found without looking at each.
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * (DIGITS_MAX + 1)
_SEGMENT = re.compile(f"{SEGMENT}([0-9]{{10}})")
_MERGED = re.compile(rf"{MERGED}([0-9]{{10}})-([0-9]{{10}})\.([0-9]{{1,8}})")
#: The name of a part in the store: history-FIRST-LAST-BYTES, and the digest of its bytes.
STORED_PART = re.compile("(history-([0-9]{10})-([0-9]{10})-([0-9]{1,9}))-([0-9a-f]{32})")
#: The event that stands where earlier ones were let go, while still earlier ones are told.
GAP = "G"
#: The event that tells what an attempt has printed.
PRINTED = "p"


class Record(NamedTuple):
    """What one transaction did. `number` is its place in the order, `ms` the server's time.

    `by` did it: the ID of a worker, or a person, a machine and a command.
    """

    number: int
    ms: int
    by: str
    events: Sequence[Told]


def history_path(plan_path: str) -> str:
    return f"{plan_path}/{HISTORY}"


class Span(NamedTuple):
    """A znode of the history, by its name: the first and the last number that it holds, and about
    how many bytes, if it is a merged one."""

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


def segment_to_bytes(by: str, events: Sequence[Told]) -> bytes:
    """The data of a `seg-`: one transaction."""
    return _pack([by, events])


def merged_to_bytes(records: Sequence[Record]) -> bytes:
    """The data of a `merged-`."""
    return _pack([list(record) for record in records], always=True)


def records_from_bytes(span: Span, data: bytes, created_ms: int) -> list[Record]:
    """What a znode of the history tells. Raises PayloadUndecodable."""
    return records_from_body(span, body_of(data), created_ms)


def records_from_body(span: Span, body: bytes, created_ms: int) -> list[Record]:
    """The same, of what `body_of` returns."""
    value = _parsed(body)
    if not span.is_merged:
        value = [[span.first, created_ms, *value]]
    try:
        return [_record(each) for each in value]
    except (TypeError, ValueError) as error:
        raise PayloadUndecodable(f"{span.name} of a history is damaged: {error}") from None


def gap_to_bytes(number: int, ms: int) -> bytes:
    """The data of a `merged-` in place of records that were let go: the last was told at `ms`."""
    return merged_to_bytes([Record(number, ms, "", [[GAP]])])


def printed_bytes(records: Sequence[Record]) -> int:
    """About how many bytes of what tasks have printed these hold, as JSON has them at most."""
    events = [event for record in records for event in record.events if event[0] == PRINTED]
    return sum(ESCAPED_MAX * len(event[4]) for event in events if is_printed(event))


def is_printed(event: Told) -> bool:
    """Whether it tells what an attempt has printed, in the right form."""
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
        # Looking at each number takes as long as all the rest: so only where one may be too large.
        careful = _LONG in body.translate(_ZEROS)
        value = (_CAREFUL if careful else _DECODER).decode(body.decode())
        if b"\\ud" in body or b"\\uD" in body:
            # Half a character, which no file takes. zkplan writes no escape of one.
            value = json.loads(_ENCODER.encode(value).encode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise PayloadUndecodable(f"a history is not JSON: {error}") from None
    if not isinstance(value, list):
        raise PayloadUndecodable("a history is no list")
    return value


def _no_number(text: str) -> int:
    raise ValueError(f"a history has no number {text[:20]}")


def _whole(text: str) -> int:
    """All numbers of a history are whole, and can be reckoned with as times."""
    if len(text) > DIGITS_MAX:
        raise ValueError("a number of a history is too large")
    return int(text)


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_DECODER = json.JSONDecoder(parse_float=_no_number, parse_constant=_no_number)
#: It calls Python for each number.
_CAREFUL = json.JSONDecoder(parse_int=_whole, parse_float=_no_number, parse_constant=_no_number)


# ---- The one place where history is written: each transaction of each step tells what it does.
#
# A step knows nothing of it. Its transactions are sent with one more operation for each plan that
# they change, and it gets the answers to its own.


T = TypeVar("T")
#: So many plans without a history are remembered, and so many that were written to.
KNOWN_MAX = 10_000
#: A segment counts as one, and as one more for each so many bytes: few large ones are much, too.
COUNTED_BYTES = 640


class Recorder:
    """Records the steps of one client under one root. `by` is who its events say did it.

    Thread-safe: each access to what it remembers is one operation of a set or a dict.
    """

    def __init__(
        self,
        root: str,
        by: str = "",
        clock: Callable[[], float] = time.monotonic,
        acting: Callable[[], str] = str,
    ) -> None:
        """`acting` says in whose name a step runs; empty: in that of `by`."""
        self.root, self.by, self._acting = root, by, acting
        #: The numbers of plans without a history: older ones, and those whose authors want none.
        self._without: set[str] = set()
        self._teller, self._clock = Teller(root, self._without), clock
        #: How much was written to each plan since somebody asked, in segments of usual size.
        self.written: Counter[str] = Counter()

    def leave_out(self, number: str) -> None:
        """Tell nothing of a plan from now on, because it keeps no history. Who does not know that
        is told by the first transaction, which is sent again."""
        if len(self._without) >= KNOWN_MAX:
            self._without.clear()
        self._without.add(number)

    def step(self, step: Step[T]) -> Step[T]:
        """The same step, whose transactions tell what they do."""
        sent: dict[Ticket, tuple[Multi | ReadMany, _Recorded | None]] = {}
        #: Reads that were answered before the transaction that they were sent behind.
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
                        answer = yield from self._settled(recorded, answer)
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
                            answer = yield from self._settled(made, answer)
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
        """Count that plan as written to, so that its history is looked at again later. Any thread
        may call this."""
        self.written.setdefault(number_of(plan_path), 1)

    def _recorded(self, request: Multi) -> _Recorded:
        ops = request.ops
        if self._teller.tells_nothing(ops):
            return _Recorded(self.root, ops, [])
        now, by = self._clock() if request.facts else 0.0, self._acting() or self.by
        told = [
            (number, segment_to_bytes(by, events))
            for number, events in self._teller.events(ops, request.facts, by, now)
        ]
        return _Recorded(self.root, ops, told)

    def _settled(self, recorded: _Recorded, answer: Any) -> Step[Any]:
        """The answer to what the step has sent.

        Without a place for its history a transaction is sent again without it, or says only that
        there is something untold. It was not applied before: its own operations come first, and an
        earlier copy would have refused them.
        """
        count = len(recorded.ops)
        while isinstance(answer, Refused) and answer.at >= count:
            number = recorded.told[answer.at - count][0]
            path = history_path(f"{self.root}/plan-{number}")
            if answer.reason is Reason.NODE_EXISTS:
                yield from skip_number(path)  # somebody else has taken the name
            elif answer.reason is Reason.NO_NODE or number in recorded.untold:
                self.leave_out(number)
                recorded.told = [each for each in recorded.told if each[0] != number]
            else:
                recorded.untold.add(number)
            recorded.build()
            answer = yield recorded.multi
        if isinstance(answer, Applied) and recorded.told:
            if len(self.written) >= KNOWN_MAX:
                self.written.clear()
            for number, data in recorded.told:
                self.written[number] += 1 + len(data) // COUNTED_BYTES
            return Applied(answer.results[:count], answer.repeated, bool(recorded.untold))
        return answer


class _Recorded:
    """A transaction, and what it tells: for each plan the data of its segment.

    For those that are `untold` there was no room: it only says that something happened.
    """

    __slots__ = ("multi", "ops", "root", "told", "untold")

    def __init__(self, root: str, ops: Any, told: list[tuple[str, bytes]]) -> None:
        self.root, self.ops, self.told = root, ops, told
        self.untold = set[str]()
        self.build()

    def build(self) -> None:
        if not self.told:
            self.multi = Multi(self.ops)
            return
        more: list[Op] = []
        for number, data in self.told:
            path = history_path(f"{self.root}/plan-{number}")
            if number in self.untold:
                more.append(SetData(f"{path}/{UNTOLD}"))
            else:
                more.append(Create(f"{path}/{SEGMENT}", data, sequence=True))
        self.multi = Multi([*self.ops, *more])
