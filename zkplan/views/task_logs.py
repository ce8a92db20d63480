"""Read what the attempts of a task printed and logged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from ..protocol.fields import as_text
from ..protocol.history.segments import Record, is_printed
from ..protocol.requests import ReadData
from ..values.plan_values import Values
from .history import RecordFollower, Whole, read_whole
from .history_state import PlanState


@dataclass(frozen=True, slots=True)
class TaskLog:
    """A piece of what an attempt of a task has printed and logged.

    `text` is as it was printed, control characters and all. `position` counts the bytes (of UTF-8)
    that the attempt had printed before this piece. `cut`: how many bytes just before this piece are
    missing. `attempt` is the number of the claim, `worker` had the claim. `when` is when the piece
    was recorded: ZooKeeper's time, in wall-clock seconds.
    """

    attempt: int
    worker: str
    when: float
    position: int
    cut: int
    text: str

    @property
    def end(self) -> int:
        """How many bytes the attempt had printed at the end of this piece."""
        return self.position + len(self.text.encode())


@dataclass
class Logs:
    """The logs of one task from the records of a history, each piece once."""

    number: int
    _ends: dict[int, int] = field(default_factory=dict)

    def of(self, records: Iterable[Record]) -> Iterator[TaskLog]:
        """The text that the next records add to each attempt."""
        for found in _told(records, self.number):
            end = self._ends.get(found.attempt, 0)
            if found.end > end:
                self._ends[found.attempt] = found.end
                yield _behind(found, end)


def _behind(found: TaskLog, end: int) -> TaskLog:
    """The part of `found` after byte `end`, at which a character begins."""
    if found.position >= end:
        return replace(found, cut=found.position - end)
    data = found.text.encode()[end - found.position :]
    return replace(found, position=end, cut=0, text=data.decode(errors="replace"))


def _told(records: Iterable[Record], number: int) -> Iterator[TaskLog]:
    for record in records:
        for event in record.events:
            if is_printed(event) and event[1] == number:
                worker = as_text(event[5] if len(event) > 5 else None, as_text(record.by))
                text = as_text(event[4])
                yield TaskLog(event[2], worker, record.ms / 1000, event[3], 0, text)


def whole(records: Iterable[Record], number: int) -> list[TaskLog]:
    """All pieces in `records`, by attempt and in order. The event that ends an attempt repeats the
    last part of its output as one piece, which fills gaps left while it ran."""
    attempts: dict[int, list[TaskLog]] = {}
    for found in _told(records, number):
        pieces = attempts.setdefault(found.attempt, [])
        if pieces and found.end < pieces[-1].end:
            continue  # a late copy
        while pieces and pieces[-1].end > found.position:
            last = pieces.pop()
            if last.position < found.position:
                data = last.text.encode()[: found.position - last.position]
                pieces.append(replace(last, text=data.decode(errors="replace")))
                break
        pieces.append(found)
    told = []
    for attempt in sorted(attempts):
        end = 0
        for piece in attempts[attempt]:
            told.append(replace(piece, cut=piece.position - end))
            end = piece.end
    return told


def behind(pieces: Iterable[TaskLog], attempt: int, end: int) -> Iterator[TaskLog]:
    """The pieces after the first `end` bytes of an attempt, and those of later attempts."""
    for piece in pieces:
        if piece.attempt > attempt:
            yield piece
        elif piece.attempt == attempt and piece.end > end:
            yield _behind(piece, end)
            end = piece.end


def last_of(pieces: Sequence[TaskLog], most: int) -> list[TaskLog]:
    """The last of the pieces, at most `most` bytes of text together."""
    found: list[TaskLog] = []
    for piece in reversed(pieces):
        data = piece.text.encode()
        if len(data) > most:
            text = data[len(data) - most :].decode(errors="ignore")
            left_out = len(data) - len(text.encode())
            position, cut = piece.position + left_out, piece.cut + left_out
            piece = replace(piece, position=position, cut=cut, text=text)
        if piece.text:
            found.append(piece)
        most -= len(data)
        if most <= 0:
            break
    return found[::-1]


def joined(pieces: Iterable[TaskLog], most: int) -> Iterator[TaskLog]:
    """The same text in fewer pieces: joins pieces of an attempt that follow each other without a
    gap, until the joined piece has `most` bytes."""
    group: list[TaskLog] = []
    size = 0
    for piece in pieces:
        if group and (piece.attempt != group[0].attempt or piece.cut or size >= most):
            yield _one(group)
            group, size = [], 0
        group.append(piece)
        size += len(piece.text.encode())
    if group:
        yield _one(group)


def _one(group: Sequence[TaskLog]) -> TaskLog:
    text = "".join(each.text for each in group)
    return replace(group[0], when=group[-1].when, text=text)


@dataclass(frozen=True, slots=True)
class AttemptTold:
    """An attempt in a history, by the number of its claim: which worker had the claim, and since
    when, in wall-clock seconds (None if unknown). `printed` is how many bytes it has printed, as
    far as the history says."""

    attempt: int
    worker: str
    claimed: float | None
    printed: int


def attempts_told(records: Iterable[Record], number: int) -> list[AttemptTold]:
    """The attempts of a task in the order of their numbers, also those that printed nothing."""
    found: dict[int, AttemptTold] = {}
    for record in records:
        for event in record.events:
            if event[0] == "c" and event[1:2] == [number]:
                n, worker = [*event[2:4], None, None][:2]
                n = 0 if n is None else n  # events leave out the number of a first claim
                worker = as_text(worker) or as_text(record.by)
                if type(n) is int and n >= 0:
                    found[n] = AttemptTold(n, worker, record.ms / 1000, 0)
        for piece in _told([record], number):
            attempt = found.get(piece.attempt, AttemptTold(piece.attempt, piece.worker, None, 0))
            found[piece.attempt] = replace(attempt, printed=max(attempt.printed, piece.end))
    return [found[attempt] for attempt in sorted(found)]


def read_logs(values: Values, plan_path: str, number: str) -> tuple[list[TaskLog], Whole]:
    """All output that is kept, and the history that has it. Raises as `history.read`."""
    found = read_whole(values, plan_path)
    return whole(found.records(), int(number)), found


def follow_logs(values: Values, plan_path: str, number: str) -> Iterator[TaskLog]:
    """All output that is kept, then new output, until the task has ended or is dead, or the plan
    has ended. Raises as `history.read`."""
    state, logs, is_first = PlanState(), Logs(int(number)), True
    with closing(RecordFollower(values, plan_path)) as follower:
        while (records := follower.read_on()) is not None:
            state.add(records)
            if is_first:
                is_first = False
                shown = whole(records, int(number))
                list(logs.of(records))  # these are known now
                yield from shown
            else:
                yield from logs.of(records)
            task = state.tasks.get(int(number))
            if state.has_ended or (task is not None and (task.gone or task.place == "x")):
                return
            if (
                task is None
                and values.transport.ask(ReadData(f"{plan_path}/task-{number}")) is None
            ):
                return  # it ended before the history begins
