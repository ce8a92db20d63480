"""The history of a run: one line of JSON per event, written by many processes, read as it grows.

Each process appends to a file of its own, with one write for each line. So a process that is killed
at any moment leaves whole lines. Times (`at`) are seconds of the monotonic clock, which all
processes of one machine share; `wall` is for people.

A task writes `begin` with the facts of an Execution, and `end` or `raised` with its `uid`. The
harness writes the rest: `ended` for a process that it ended, `died` for one that ended by itself.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

Line = dict[str, Any]
HARNESS = "harness"


class HistoryDamaged(ValueError):
    """A line of the history is not one that a process of a run writes."""


# ---- the writer


class Recorder:
    """Appends events to one file of the folder. Thread-safe within one process."""

    def __init__(self, folder: str, name: str) -> None:
        self.path = Path(folder) / f"{name}.jsonl"
        # A raw descriptor buffers nothing, so what was written survives a SIGKILL.
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event: str, **facts: Any) -> None:
        line = {"event": event, "at": time.monotonic(), "wall": time.time(), **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


@functools.cache
def recorder_here(folder: str) -> Recorder:
    """The recorder of this process for a folder: one file for all its threads and tasks."""
    return Recorder(folder, f"worker-{os.getpid()}")


os.register_at_fork(after_in_child=recorder_here.cache_clear)


def journal_of(folder: Path, pid: int) -> Path:
    """The file of the process with that id, if it has recorded anything."""
    return folder / f"worker-{pid}.jsonl"


# ---- the reader


class Reader:
    """Reads a history file, or all files of a folder, as they grow."""

    def __init__(self, source: Path) -> None:
        self._source = source
        #: How much of each file was read: bytes and lines.
        self._read: dict[Path, tuple[int, int]] = {}

    def news(self) -> Iterator[tuple[Path, Line]]:
        """Yield each line that was appended since the last call, with its file. Raises
        HistoryDamaged."""
        of_folder = self._source.is_dir()
        for file in sorted(self._source.glob("*.jsonl")) if of_folder else [self._source]:
            offset, number = self._read.get(file, (0, 0))
            with file.open("rb") as opened:
                opened.seek(offset)
                # The rest after the last line end is still being written, or a full disk cut it
                # short.
                whole, end, _ = opened.read().rpartition(b"\n")
            texts = whole.split(b"\n") if end else []
            self._read[file] = offset + len(whole) + len(end), number + len(texts)
            for at, text in enumerate(texts, number + 1):
                yield file, _event(text, f"{file}, line {at}")


def _event(text: bytes, where: str) -> Line:
    try:
        line: Line = json.loads(text)
        line["event"], line["at"]
    except (ValueError, TypeError, KeyError) as error:
        raise HistoryDamaged(f"{where}, is not an event: {error}") from None
    return line


def read_lines(source: Path) -> list[Line]:
    """The lines of a history file, or of all files of a folder, by time; raises HistoryDamaged."""
    return sorted((line for _, line in Reader(source).news()), key=lambda line: float(line["at"]))


def keep(folder: Path, file: Path) -> None:
    """Write the whole history of a folder into one file, by time."""
    file.write_text("".join(json.dumps(line) + "\n" for line in read_lines(folder)))


@dataclass
class Execution:
    """One run of a task's function. `ended` is None if its end was not recorded.

    `got` names the executions that made its arguments, in the order of the arguments. `raised` says
    what it raised. `alone`: no living process ran the task when this began. `value` is what it
    returned, if it recorded that.
    """

    uid: str
    key: str
    n: int
    worker: str
    pid: int
    began: float
    digest: str
    got: list[str] = field(default_factory=list)
    ended: float | None = None
    raised: str = ""
    alone: bool = True
    value: str | None = None

    @property
    def returned(self) -> bool:
        return self.ended is not None and not self.raised

    def __str__(self) -> str:
        return f"{self.key} attempt {self.n} ({self.uid} on {self.worker}, pid {self.pid})"


E = TypeVar("E", bound=Execution)


class History(Generic[E]):
    """The executions of a run. `read` adds what was recorded since the last call."""

    def __init__(self, source: Path, kind: type[E]) -> None:
        self._reader, self._kind = Reader(source), kind
        self._names = {each.name for each in fields(kind)}
        self._running: dict[str, E] = {}

    def read(self) -> None:
        """Raises HistoryDamaged if a line is not an event, or an end has no beginning."""
        for file, line in self._reader.news():
            self.take(line, file)

    def take(self, line: Line, file: Path) -> None:
        event = line["event"]
        if event == "begin":
            facts = {name: line[name] for name in self._names & line.keys()}
            execution = self._kind(began=line["at"], **facts)
            self._running[execution.uid] = execution
            self.has_begun(execution, line)
        elif event in ("end", "raised"):
            ended = self._running.pop(line["uid"], None)
            if ended is None:
                raise HistoryDamaged(f"an execution ended that never began: {line}")
            ended.ended, ended.raised = line["at"], line.get("error", "")
            ended.value = line.get("value")
            self.has_ended(ended, line)

    def has_begun(self, execution: E, line: Line) -> None:
        """Called for each new execution, for subclasses; likewise `has_ended`."""

    def has_ended(self, execution: E, line: Line) -> None: ...


# ---- what is read of a stress run


class Kill(NamedTuple):
    """The end of a worker process: alive until `sent`, dead from `reaped` on.

    `intended` is False where it ended by itself.
    """

    pid: int
    sent: float
    reaped: float
    intended: bool = True
    note: str = ""


class StressHistory(History[Execution]):
    """What happened in a stress run, as far as it was seen."""

    def __init__(self, source: Path) -> None:
        super().__init__(source, Execution)
        self.executions: list[Execution] = []
        self.kills: list[Kill] = []
        #: When the registration of a vanished worker was last seen, by the worker's ID.
        self.lost: dict[str, float] = {}
        self.done_at: float | None = None
        #: How often workers handed back claims that waited: each costs a task at most one number,
        self.hand_backs = 0
        #: and all of them together cost as many numbers as there were claims.
        self.handed_back = 0

    def take(self, line: Line, file: Path) -> None:
        super().take(line, file)
        event, at = line["event"], line["at"]
        if event in ("ended", "died"):
            intended, note = event == "ended", line.get("note", "")
            self.kills.append(Kill(line["pid"], line["sent"], at, intended, note))
        elif event == "handed back":
            self.hand_backs += line["times"]
            self.handed_back += line["claims"]
        elif event == "lost":
            self.lost[line["worker"]] = line["seen"]
        elif event == "done":
            self.done_at = at

    def has_begun(self, execution: Execution, line: Line) -> None:
        self.executions.append(execution)

    @property
    def by_task(self) -> dict[str, list[Execution]]:
        """Executions of each task in the order they began."""
        found: defaultdict[str, list[Execution]] = defaultdict(list)
        for execution in sorted(self.executions, key=lambda execution: execution.began):
            found[execution.key].append(execution)
        return dict(found)

    def killed_at(self, execution: Execution) -> float | None:
        """When the process that ran it was killed, or None."""
        # A later process may get the same id, so a kill ends only executions that began before it.
        times = [
            kill.sent
            for kill in self.kills
            if kill.pid == execution.pid and kill.reaped >= execution.began
        ]
        return min(times, default=None)

    def cut_off(self, execution: Execution, at: float) -> bool:
        """Whether its worker may have lost its claim at `at`, because it was killed or lost its
        session."""
        killed = self.killed_at(execution)
        if killed is not None and killed <= at:
            return True
        lost = self.lost.get(execution.worker)
        return lost is not None and lost <= at
