"""A crew of processes is awaited, replaced when they die, and stopped without leaving one."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from zkplan.errors import WaitTimeout
from zkplan.processes import Relay
from zkplan.processes.crew import Crew
from zkplan.processes.worker import WorkerProcess

#: Tells its ID as a worker does, then waits to be ended.
REGISTERS = """
import os, time
os.write(int(os.environ["ZKPLAN_SUPERVISOR_FD"]), b"w-%d\\n" % os.getpid())
time.sleep(60)
"""
IGNORES_SIGTERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN){REGISTERS}"


def process_of(source: str) -> WorkerProcess:
    return WorkerProcess([sys.executable, "-S", "-c", source], Relay())


@contextmanager
def crew_of(
    source: str, size: int = 2, session_s: float = 1000.0
) -> Iterator[tuple[Crew, list[WorkerProcess]]]:
    """A started crew, and those of it that were told to have ended by themselves."""
    ended: list[WorkerProcess] = []
    crew = Crew(lambda: process_of(source), size, ended.append, session_s)
    crew.start()
    try:
        yield crew, ended
    finally:
        crew.close()
    assert crew.processes == []


def tend_until_full(crew: Crew, size: int) -> None:
    deadline = time.monotonic() + 30
    while len(crew.processes) < size:
        assert time.monotonic() < deadline
        crew.tend()


def test_a_process_that_is_not_ready_in_time_ends_the_wait() -> None:
    with (
        crew_of("import time; time.sleep(60)") as (crew, _),
        pytest.raises(WaitTimeout, match=r"2 of 2 workers did not register within 0\.1 s"),
    ):
        crew.wait_ready(0.1)


def test_a_killed_process_is_replaced_at_once_unless_killed_for_good() -> None:
    with crew_of(REGISTERS) as (crew, ended):
        first, second = crew.processes
        crew.kill(first)
        crew.tend()
        assert len(crew.processes) == 2
        crew.kill(second, for_good=True)
        crew.tend()
        assert len(crew.processes) == 1
        assert ended == []


@pytest.mark.skipif(sys.platform == "darwin", reason="nothing says there that it is stopped")
def test_a_paused_process_that_is_resumed_in_time_is_kept() -> None:
    with crew_of(REGISTERS, 1) as (crew, ended):
        (process,) = crew.processes
        process.pause()
        assert process.is_stopped()
        crew.tend()
        process.resume()
        crew.tend()
        assert not process.is_stopped()
        assert (crew.processes, ended) == ([process], [])


def test_a_process_that_does_not_stop_in_time_is_killed_and_named() -> None:
    told: list[WorkerProcess] = []
    with crew_of(IGNORES_SIGTERM) as (crew, _):
        crew.wait_ready(30)
        living = crew.processes
        assert crew.stop(0.1, has_ended=told.append) == living == told
        assert {process.exit_code for process in living} == {-9}


def test_a_process_that_stops_on_request_is_not_killed() -> None:
    with crew_of(REGISTERS) as (crew, _):
        living = crew.processes
        assert crew.stop(30) == []
        assert {process.exit_code for process in living} == {-15}


@pytest.mark.parametrize(
    "error", [OSError("too many open files"), RuntimeError("can't start new thread")], ids=repr
)
def test_a_start_that_fails_temporarily_is_retried(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = []

    def start() -> WorkerProcess:
        if errors:
            raise errors.pop()
        return process_of(REGISTERS)

    with closing(Crew(start, 1)) as crew:
        crew.start()
        errors.append(error)
        crew.kill(crew.processes[0])
        tend_until_full(crew, 1)
    assert f"cannot start a worker process, and will try again: {error}" in caplog.text


def test_a_crew_with_a_process_that_cannot_start_leaves_no_process() -> None:
    started: list[WorkerProcess] = []

    def start() -> WorkerProcess:
        if started:
            raise OSError("too many open files")
        started.append(process_of(REGISTERS))
        return started[0]

    with pytest.raises(OSError, match="too many open files"):
        Crew(start, 2).start()
    assert started[0].exit_code == -9
