"""What tasks in processes do. It imports little, because each process imports it."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import zkplan
from tests.tools.support import note, notes, wait_until
from zkplan.errors import TaskError


def be_near(file: str, gate: str) -> int:
    """As the neighbour: note each attempt, and end when the gate is open."""
    note(file, "began")
    # Longer than the test waits for all that die beside it: its own error would look as theirs.
    wait_until(lambda: Path(gate).exists(), "the gate opens", timeout_s=600)
    return len(notes(file))


def daemon(file: str) -> None:
    """As a task: start a process that leaves its session, its group and its parent."""
    code = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    process.wait()
    note(file, f"{os.getpid()}")
    for pid in children_of(os.getpid()):
        note(file, f"{pid}")


def daemon_and_hang(file: str) -> None:
    daemon(file)
    threading.Event().wait()


def children_of(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if stat.read_text().rpartition(")")[2].split()[1] == str(parent):
                found.append(int(stat.parent.name))
        except (OSError, IndexError):
            continue
    return found


def speak() -> None:
    sys.stdout.write("first\nINFO forged: second" + "x" * 5000 + "\n")
    logging.getLogger("mine").warning("third")
    os.write(2, b"fourth \x1b[2J\n")


def use_everything(plan_file: str) -> list[Any]:
    context = zkplan.current()
    if not context.logs:
        context.log({"step": 1})
        raise ValueError("once more")
    inner = context.plan
    first = inner.add_task(sum, [[1, 2]])
    inner.add_task(note, [plan_file, first], name="grown")
    inner.add_task(note, [plan_file, context.task], name="of itself")
    facts = [context.attempt, context.name, context.worker, context.logs, context.cancelled]
    hidden = [name for name in os.environ if name.startswith("ZKPLAN")]
    try:
        inner.status()
    except TaskError as error:
        return [*facts, hidden, str(error)]
    raise AssertionError("it has a connection")


def wait_for_the_end(file: str) -> None:
    note(file, "began")
    wait_until(lambda: zkplan.current().cancelled, "it is told")
    note(file, "told")
    zkplan.current().check()


def turned(value: bytes) -> bytes:
    return value[::-1]


async def in_the_loop() -> int:
    return os.getpid()


def go_on(file: str, gate: str, name: str = "thread") -> None:
    """Note its process and that it was told to stop, and go on until the gate is open."""
    note(file, f"{name} {os.getpid()}")
    wait_until(lambda: Path(gate).exists() or zkplan.current().cancelled, "it is told")
    note(file, f"{name} told")
    wait_until(lambda: Path(gate).exists(), "the gate opens", timeout_s=600)


@zkplan.task(isolation="process")
def go_on_alone(file: str, gate: str) -> None:
    go_on(file, gate, "process")


@zkplan.task(isolation="process", pure=True)
def go_on_behind(before: Any, file: str, gate: str) -> None:
    """Return at once, or with a gate go on until it is open."""
    if gate:
        go_on(file, gate, "process")


async def go_on_in_the_loop(file: str, gate: str) -> None:
    note(file, f"coroutine {os.getpid()}")
    is_told = False
    try:
        while not Path(gate).exists():
            if zkplan.current().cancelled and not is_told:
                is_told = True
                note(file, "coroutine told")
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        note(file, "coroutine cancelled")
        raise
