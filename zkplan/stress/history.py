"""The history of a stress run: one line of JSON per event, written by workers and by the harness.

Each process appends to a file of its own, each line by one write, so that a process killed at any
instant leaves whole lines. Times (`at`) are seconds of the monotonic clock, which all processes of
one machine share; `wall` is for people.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

Line = dict[str, Any]
HARNESS = "harness"


class HistoryDamaged(ValueError):
    """A line of the history is not what a process of this harness writes."""


class Recorder:
    """Appends events to one file of the folder; safe for threads of one process."""

    def __init__(self, folder: str, name: str) -> None:
        self.path = Path(folder) / f"{name}.jsonl"
        # A raw descriptor: nothing is buffered, so what was written survives a SIGKILL.
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event: str, **facts: Any) -> None:
        line = {"event": event, "at": time.monotonic(), "wall": time.time(), **facts}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def recorder_here(folder: str) -> Recorder:
    """This process's recorder for a folder: one file, however many threads and tasks."""
    return _recorder(folder, os.getpid())


@functools.cache
def _recorder(folder: str, pid: int) -> Recorder:
    return Recorder(folder, _name_of(pid))


def journal_of(folder: Path, pid: int) -> Path:
    """The file in which the process of that ID records, once it has recorded anything."""
    return folder / f"{_name_of(pid)}.jsonl"


def _name_of(pid: int) -> str:
    return f"worker-{pid}"


@dataclass(frozen=True)
class Execution:
    """One run of a task's function. `ended` is None where the process died meanwhile.

    `alone`: no living process ran the task when this began. `value` is None unless the function
    returned.
    """

    uid: str
    task: int
    n: int
    worker: str
    pid: int
    started: float
    digest: str
    alone: bool = True
    ended: float | None = None
    value: str | None = None
    error: str = ""

    def __str__(self) -> str:
        return f"task {self.task} attempt {self.n} on {self.worker} (pid {self.pid})"


class Kill(NamedTuple):
    """The end of a worker process: alive until `sent`, dead from `reaped` on.

    `intended` is False where it ended by itself.
    """

    pid: int
    sent: float
    reaped: float
    intended: bool = True
    note: str = ""


@dataclass(frozen=True)
class History:
    """What happened, as far as it was seen. `lost` maps the IDs of workers whose registration
    vanished to the last time it was seen."""

    executions: list[Execution] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=dict)
    done_at: float | None = None
    #: How often workers handed back claims that waited: each costs a task at most one number,
    hand_backs: int = 0
    #: and all of them together cost as many numbers as there were claims.
    handed_back: int = 0

    @functools.cached_property
    def by_task(self) -> dict[int, list[Execution]]:
        """Executions of each task in the order they started."""
        found: defaultdict[int, list[Execution]] = defaultdict(list)
        for execution in sorted(self.executions, key=lambda execution: execution.started):
            found[execution.task].append(execution)
        return dict(found)

    def killed_at(self, execution: Execution) -> float | None:
        """When the process that ran it was killed, None where it lived on."""
        # An id may be used again by a later process: a kill ends only what had started before it.
        times = [
            kill.sent
            for kill in self.kills
            if kill.pid == execution.pid and kill.reaped >= execution.started
        ]
        return min(times, default=None)

    def cut_off(self, execution: Execution, at: float) -> bool:
        """Whether its worker may have been without its claim at `at`: killed, or lost."""
        killed = self.killed_at(execution)
        if killed is not None and killed <= at:
            return True
        lost = self.lost.get(execution.worker)
        return lost is not None and lost <= at


def read_lines(path: Path) -> list[Line]:
    """The lines of a history file, or of all files of a folder, by time; raises HistoryDamaged."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    lines = [line for file in files for line in _lines_of(file)]
    return sorted(lines, key=lambda line: float(line["at"]))


def _lines_of(file: Path) -> Iterable[Line]:
    # What follows the last line end was cut short by a full disk: it was never a whole event.
    for number, text in enumerate(file.read_text().split("\n")[:-1], 1):
        try:
            line = json.loads(text)
            line["event"], line["at"]
        except (ValueError, TypeError, KeyError) as error:
            raise HistoryDamaged(f"{file}, line {number}, is not an event: {error}") from None
        yield line


def parse(lines: Iterable[Line]) -> History:
    """The history that lines tell; raises HistoryDamaged for an end without a start."""
    executions: dict[str, Execution] = {}
    kills: list[Kill] = []
    lost: dict[str, float] = {}
    done_at = None
    hand_backs = handed_back = 0
    for line in lines:
        event = line["event"]
        if event == "start":
            executions[line["execution"]] = Execution(
                uid=line["execution"],
                task=line["task"],
                n=line["n"],
                worker=line["worker"],
                pid=line["pid"],
                started=line["at"],
                digest=line["digest"],
                alone=line["alone"],
            )
        elif event in ("end", "failed"):
            started = executions.get(line["execution"])
            if started is None:
                raise HistoryDamaged(f"an execution ended that never started: {line}")
            executions[line["execution"]] = replace(
                started, ended=line["at"], value=line.get("value"), error=line.get("error", "")
            )
        elif event in ("killed", "died"):
            kills.append(
                Kill(
                    line["pid"],
                    line["sent"],
                    line["at"],
                    intended=event == "killed",
                    note=line.get("note", ""),
                )
            )
        elif event == "handed back":
            hand_backs += line["times"]
            handed_back += line["claims"]
        elif event == "lost":
            lost[line["worker"]] = line["seen"]
        elif event == "done":
            done_at = line["at"]
    return History(list(executions.values()), kills, lost, done_at, hand_backs, handed_back)


def keep(folder: Path, file: Path) -> None:
    """Write the whole history of a folder into one file, by time."""
    file.write_text("".join(json.dumps(line) + "\n" for line in read_lines(folder)))
