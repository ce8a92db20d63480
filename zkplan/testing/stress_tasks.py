"""The tasks of a stress run: their graph, their function, and the history that they write."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from ..runtime.context import current

_DIGEST_BYTES = 16


def random_graph(tasks: int, deps: int, seed: int) -> list[list[int]]:
    """For each task `deps` random earlier tasks that it depends on, or all if there are fewer.

    >>> random_graph(4, 2, seed=1)
    [[], [0], [0, 1], [0, 1]]
    """
    chance = random.Random(seed)
    return [sorted(chance.sample(range(task), min(deps, task))) for task in range(tasks)]


def digest_of(arguments: Mapping[int, str]) -> str:
    """A digest of arguments, the same for the same values of the same tasks in any order."""
    return _blake2b(repr(sorted(arguments.items(), key=repr)))


def key_of(task: int) -> str:
    """The name of a task in its plan, and in the history."""
    return f"t{task}"


def value_of(task: int, arguments: Mapping[int, str]) -> str:
    """The return value of a task, which depends on all values computed on the way to it."""
    return _blake2b(f"{task} {digest_of(arguments)}")


def _blake2b(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


@dataclass(frozen=True)
class Workload:
    """A graph and its oracle: the values of one process that runs everything in order.

    `graph[task]` lists the tasks whose values `task` takes, all with smaller numbers.
    """

    graph: list[list[int]] = field(repr=False)

    @property
    def tasks(self) -> int:
        return len(self.graph)

    @property
    def edges(self) -> int:
        return sum(map(len, self.graph))

    @cached_property
    def values(self) -> list[str]:
        """The value of each task."""
        values: list[str] = []
        for task, needed in enumerate(self.graph):
            values.append(value_of(task, {other: values[other] for other in needed}))
        return values

    @cached_property
    def digests(self) -> list[str]:
        """The digest of each task's arguments."""
        values = self.values
        return [digest_of({other: values[other] for other in needed}) for needed in self.graph]

    @cached_property
    def sinks(self) -> list[int]:
        """The tasks without dependents. Their results are kept, and read at the end."""
        needed = {other for others in self.graph for other in others}
        return [task for task in range(self.tasks) if task not in needed]


# ---- A lock for each task of a stress run: an execution notices another one in any process.


class TaskLocks:
    """Locks one byte of one file for each running task. Thread-safe within one process.

    The kernel releases a lock when its process ends, so a killed worker never blocks the next one.
    All tasks share a file. With a file for each, a run soon after another took more than twice as
    long, because ext4 without a journal avoids inodes that were freed within the last minutes.
    """

    def __init__(self, folder: str) -> None:
        # Never close the file: the kernel releases all locks of a process on a file as soon as the
        # process closes any descriptor of that file.
        self._file = os.open(Path(folder) / "running.lock", os.O_RDWR | os.O_CREAT, 0o644)
        #: The locked tasks. The kernel's locks belong to a process; this set also keeps threads
        #: apart.
        self._held: set[int] = set()
        self._change = threading.Lock()

    @contextmanager
    def hold(self, task: int) -> Iterator[bool]:
        """Hold the lock of `task` for the block. Yields False if another thread or process holds
        the lock."""
        with self._change:
            alone = task not in self._held and self._lock(task)
            if alone:
                self._held.add(task)
        try:
            yield alone
        finally:
            if alone:
                with self._change:
                    self._held.remove(task)
                    fcntl.lockf(self._file, fcntl.LOCK_UN, 1, task)

    def _lock(self, task: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, task)
        except (BlockingIOError, PermissionError):  # which one depends on the system
            return False
        return True


@functools.cache
def locks_here(folder: str) -> TaskLocks:
    """The locks of this process for a folder. A forked child gets its own."""
    return TaskLocks(folder)


os.register_at_fork(after_in_child=locks_here.cache_clear)


# ---- The history of a run: one line of JSON per event, written by many processes, read as it
# grows.
#
# Each process appends to its own file, with one write for each line. So a process that is killed at
# any moment leaves complete lines. Times (`at`) are seconds of the monotonic clock, which all
# processes of one machine share; `wall` is for people.
#
# A task writes `begin` with the facts of an Execution, and `end` or `raised` with its `uid`. The
# harness writes all other events, such as `ended` for a process that it ended, and `died` for one
# that ended by itself.


Line = dict[str, Any]
HARNESS = "harness"


class HistoryDamaged(ValueError):
    """A line of the history is damaged, or cannot follow the lines before it."""


# ---- the writer


class Recorder:
    """Appends events to one file of the folder. Thread-safe within one process."""

    def __init__(self, folder: str, name: str) -> None:
        self.path = Path(folder) / f"{name}.jsonl"
        # A raw descriptor buffers nothing, so written lines survive a SIGKILL.
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
    """The file of the process with the id `pid`, which exists once it has recorded an event."""
    return folder / f"worker-{pid}.jsonl"


# ---- the reader


class Reader:
    """Reads a history file, or all files of a folder, as they grow."""

    def __init__(self, source: Path) -> None:
        self._source = source
        #: The number of bytes and of lines that were read of each file.
        self._read: dict[Path, tuple[int, int]] = {}

    def news(self) -> Iterator[tuple[Path, Line]]:
        """Yield each line that was appended since the last call, with its file. Raises
        HistoryDamaged."""
        of_folder = self._source.is_dir()
        for file in sorted(self._source.glob("*.jsonl")) if of_folder else [self._source]:
            offset, number = self._read.get(file, (0, 0))
            with file.open("rb") as opened:
                opened.seek(offset)
                # The text after the last line end is incomplete, because it is being written, or
                # the disk was full.
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

    `got` has the executions that made its arguments, in order. `raised` is the error that it
    raised. `alone` means that no other living process ran the task when this execution began.
    `value` is the return value, if it was recorded.
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
    """The executions of a run. `read` adds the lines recorded since the last call."""

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


# ---- the history of a stress run


class Kill(NamedTuple):
    """The end of a worker process, which was alive until `sent` and dead from `reaped` on.

    `intended` is False if the process ended by itself.
    """

    pid: int
    sent: float
    reaped: float
    intended: bool = True
    note: str = ""


class StressHistory(History[Execution]):
    """The history of a stress run: executions, kills, lost sessions and hand-backs."""

    def __init__(self, source: Path) -> None:
        super().__init__(source, Execution)
        self.executions: list[Execution] = []
        self.kills: list[Kill] = []
        #: When the registration of a vanished worker was last seen, by the worker's ID.
        self.lost: dict[str, float] = {}
        self.done_at: float | None = None
        #: How often workers handed back waiting claims. Each time costs a task at most one number.
        self.hand_backs = 0
        #: How many claims were handed back, which together cost as many numbers.
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
        """The executions of each task, in the order in which they began."""
        found: defaultdict[str, list[Execution]] = defaultdict(list)
        for execution in sorted(self.executions, key=lambda execution: execution.began):
            found[execution.key].append(execution)
        return dict(found)

    def killed_at(self, execution: Execution) -> float | None:
        """When the process of this execution was killed, or None."""
        # A later process may get the same id, so a kill ends only executions that began before it.
        times = [
            kill.sent
            for kill in self.kills
            if kill.pid == execution.pid and kill.reaped >= execution.began
        ]
        return min(times, default=None)

    def cut_off(self, execution: Execution, at: float) -> bool:
        """Whether the worker may have lost the claim at the time `at`, because it was killed or
        lost its session."""
        killed = self.killed_at(execution)
        if killed is not None and killed <= at:
            return True
        lost = self.lost.get(execution.worker)
        return lost is not None and lost <= at


# ---- The task function of a stress run: it checks itself and records what it saw.


#: The return value of a task: its value, and the execution that made it.
Result = tuple[str, str]


class StressViolation(AssertionError):
    """A running task has found that zkplan broke a promise."""


def run_task(
    task: int, arguments: dict[int, Result], *, expected: str, folder: str, sleep_s: float
) -> Result:
    """Compute the task's value from the values of `arguments`, whose digest must be `expected`.

    Raises StressViolation for wrong arguments. The later checks of the whole history look for other
    processes that ran the task at the same time (which is allowed if one has lost its session), and
    for attempt numbers that were used twice.
    """
    context = current()
    recorder = recorder_here(folder)
    uid = uuid.uuid4().hex[:16]
    values = {other: value for other, (value, _) in arguments.items()}
    digest = digest_of(values)
    with locks_here(folder).hold(task) as alone:
        recorder.write(
            "begin",
            uid=uid,
            key=key_of(task),
            n=context.attempt,
            worker=context.worker,
            pid=os.getpid(),
            digest=digest,
            got=[maker for _, (_, maker) in sorted(arguments.items())],
            alone=alone,
        )
        try:
            if digest != expected:
                raise StressViolation(f"task {task} has wrong arguments: {arguments!r}")
            time.sleep(sleep_s)
            value = value_of(task, values)
        except BaseException as error:
            recorder.write("raised", uid=uid, error=f"{type(error).__name__}: {error}")
            raise
        recorder.write("end", uid=uid, value=value)
    return value, uid
