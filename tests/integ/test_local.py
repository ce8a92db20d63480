"""`zkplan.local` is a block with a server, workers and a client that leaves nothing behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import (
    IN_CHECKOUT,
    TOP,
    is_running,
    note,
    notes,
    run_python,
    secret_of,
    wait_until,
)
from zkplan import Client, ZkplanError
from zkplan.embedded import address_of


def double(x: int) -> tuple[int, int]:
    return 2 * x, os.getpid()


def stay(file: str) -> None:
    note(file, str(os.getpid()))
    threading.Event().wait(3600)


def die_once(file: str) -> int:
    """Kills its worker the first time it runs."""
    if not notes(file):
        note(file, "died")
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def run_double(client: Client) -> tuple[int, int]:
    with client.create_plan() as plan:
        task = plan.add_task(double, (21,))
    found: tuple[int, int] = task.result(timeout=30)
    return found


def test_a_plan_runs_in_worker_processes_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with zkplan.local() as client:
        workers = {worker.pid for worker in client.workers()}
        assert len(workers) == 2
        value, ran_in = run_double(client)
        assert value == 42
        assert ran_in in workers
    assert not [pid for pid in workers if is_running(pid)]
    assert list(tmp_path.iterdir()) == []


def test_without_worker_processes_tasks_run_on_threads_of_this_process() -> None:
    with zkplan.local(workers=0) as client:
        assert run_double(client) == (42, os.getpid())


def test_an_exception_with_custom_arguments_leaves_the_block() -> None:
    with (
        pytest.raises(zkplan.PlanNotFound, match="no plan named"),
        zkplan.local(workers=0) as client,
    ):
        client.plan("missing")


def test_two_blocks_share_nothing() -> None:
    with zkplan.local(workers=0) as one, zkplan.local(workers=0) as other:
        one.create_plan("of the first")
        assert other.plans() == []


KEY = secret_of("shh")


@pytest.mark.parametrize(("workers", "secret"), [(1, KEY), (1, KEY.encode()), (0, KEY.encode())])
def test_the_workers_sign_with_the_secret_of_the_block(workers: int, secret: str | bytes) -> None:
    with zkplan.local(workers=workers, secret=secret) as client:
        assert run_double(client)[0] == 42


def test_a_worker_that_dies_is_replaced_and_its_task_taken_over_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the result is waited for.
    monkeypatch.setitem(zkplan.local.start.__globals__, "SESSION_TIMEOUT_S", 60.0)
    with zkplan.local(workers=1) as client, caplog.at_level(logging.WARNING):
        (first,) = client.workers()
        with client.create_plan() as plan:
            task = plan.add_task(die_once, (str(tmp_path / "file"),))
        assert task.result(timeout=30) != first.pid
    assert f"worker process {first.pid} was ended by SIGKILL; it is replaced" in caplog.text


def test_a_task_that_never_ends_does_not_block_the_end_of_the_block(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with zkplan.local(workers=1, grace=0.2) as client:
        with client.create_plan() as plan:
            plan.add_task(stay, (str(file),))
        (pid,) = wait_until(lambda: notes(file), "the task runs")
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert not is_running(int(pid))


def test_an_error_inside_the_block_is_raised_from_the_block() -> None:
    pids: list[int] = []

    def block() -> None:
        with zkplan.local(workers=1) as client:
            pids.extend(worker.pid for worker in client.workers())
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        block()
    assert len(pids) == 1
    assert not [pid for pid in pids if is_running(pid)]


def test_workers_that_cannot_start_say_why_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    # Where the workers find it, and this process, which has loaded the real one, does not.
    (tmp_path / "click.py").write_text("raise RuntimeError('no click here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with (
        pytest.raises(ZkplanError, match=r"ended at its start(.|\n)*no click here"),
        zkplan.local(workers=2),
    ):
        pass
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({"workers": number}, "workers must be 0 to 64") for number in (-1, 65, True, "2")),
        *(({"threads": number}, "threads must be 1 to 500") for number in (0, 501, True, "2")),
        ({"grace": -1}, "grace must be 0 to"),
        ({"data": ""}, "data must name a folder"),
        ({"workers": 1, "secret": b"\xff"}, "bytes in UTF-8"),
        ({"workers": 0, "secret": "guess me"}, "zkplan root new-key"),
    ],
)
def test_an_option_out_of_range_is_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ZkplanError, match=words):
        zkplan.local(**options)


def test_a_notebook_starts_a_block_in_one_cell_and_closes_it_in_another() -> None:
    here = zkplan.local(workers=1)
    with pytest.raises(ZkplanError, match=r"call start\(\)"):
        _ = here.client
    client = here.start()
    assert here.start() is here.client is client
    (worker,) = client.workers()
    assert run_double(client) == (42, worker.pid)
    here.close()
    here.close()
    assert not is_running(worker.pid)
    with here as anew:
        assert run_double(anew)[0] == 42


@pytest.mark.parametrize("name", ["data", "a,b:1"])
def test_a_folder_may_look_like_hosts_and_a_tilde_means_the_home_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with zkplan.local(workers=0, data=f"~/{name}"):
        assert address_of(tmp_path / name) is not None


OPEN_AT_THE_END = """
import sys, time, zkplan
here = zkplan.local(workers=int(sys.argv[1]), grace=60)
client = here.start()
with client.create_plan() as plan:
    plan.add_task(time.sleep, (3600,))
print(*(worker.pid for worker in client.workers()), flush=True)
while not any(worker.claims for worker in client.workers()):
    pass
print(time.time())
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_unclosed_block_is_closed_at_the_end_of_the_interpreter(workers: str) -> None:
    ran = run_python("-c", OPEN_AT_THE_END, workers)
    assert (ran.returncode, ran.stderr) == (0, "")
    *pids, ended = ran.stdout.split()
    assert not [pid for pid in map(int, pids) if is_running(pid)]
    assert time.time() - float(ended) < 15  # not the minute of grace


def test_a_forked_child_leaves_the_workers_of_its_parent_alone() -> None:
    here = zkplan.local(workers=1)
    client = here.start()
    child = os.fork()
    if child == 0:
        here.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert run_double(client)[0] == 42
    here.close()


SCRIPT = """
import os, select, sys, zkplan, beside
def here(x):
    return beside.double(x)
def large(_):
    return bytes(100_000)
with zkplan.local(workers=2) as client:
    with client.create_plan() as plan:
        answer = plan.add_task(here, (21,))
        stored = plan.add_task(large, (21,))
    assert answer.result(timeout=30) == 42
    assert len(stored.result(timeout=30)) == 100_000
    print(*(worker.pid for worker in client.workers()), flush=True)
    if len(sys.argv) > 1:
        # Not one blocking read: a signal that comes just before it is noticed only after it.
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            pass
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A program in a folder of its own, which is not the current one, with a module beside it."""
    (tmp_path / "beside.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "program.py").write_text(SCRIPT)
    return tmp_path / "program.py"


def test_workers_can_import_what_a_script_can_and_add_no_noise(script: Path) -> None:
    ran = run_python(str(script), cwd="/")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(ran.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_signal_leaves_no_worker_and_the_next_start_removes_leftover_files(
    number: signal.Signals, script: Path
) -> None:
    temporary, said = script.parent / "temporary", script.parent / "said"
    temporary.mkdir()
    with (
        said.open("wb") as errors,
        subprocess.Popen(
            [*IN_CHECKOUT, sys.executable, str(script), "wait"],
            env=os.environ | {"PYTHONPATH": str(TOP), "TMPDIR": str(temporary)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as program,
    ):
        assert program.stdout is not None
        line = program.stdout.readline()
        pids = [int(pid) for pid in line.split()]
        assert len(pids) == 2, f"{line!r}, {program.poll()}: {said.read_text()}"
        program.send_signal(number)
        assert program.wait(30) == -number
    wait_until(lambda: not any(map(is_running, pids)), "the workers have ended")
    if number != signal.SIGINT:  # a process that is killed deletes nothing: the next one does
        assert list(temporary.glob("zkplan-memory-*/store/plan-*/*"))
        run_python(str(script), env={"TMPDIR": str(temporary)})
    assert list(temporary.iterdir()) == []


def test_starting_another_block_keeps_the_values_of_a_running_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with zkplan.local(workers=0) as client:
        with client.create_plan() as plan:
            task = plan.add_task(bytes, [100_000])
        plan.wait(30)
        with zkplan.local(workers=0):
            pass
        run_python("-c", "import zkplan; zkplan.local(0).start()", env={"TMPDIR": str(tmp_path)})
        assert len(list(tmp_path.glob("zkplan-memory-*/store/plan-*/*"))) == 1
        assert len(task.result(30)) == 100_000
    assert list(tmp_path.iterdir()) == []
