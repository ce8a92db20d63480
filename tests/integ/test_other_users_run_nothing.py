"""A user with the login of a server on loopback but without its secret can run nothing there."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

import zkplan
from tests.tools.outsiders import run_of_a_command
from tests.tools.support import WorkerProcess, secret_of, working
from zkplan import Client
from zkplan.embedded import EmbeddedServer


def mark(file: str) -> str:
    Path(file).touch()
    return "ran"


def attack(hosts: str, root: str, file: Path) -> None:
    """Add a task as one who has stolen the login alone. Workers look at older plans first."""
    with (
        zkplan.connect(hosts, root, secret=secret_of("of-another")) as foreign,
        foreign.create_plan("attack") as plan,
    ):
        plan.add_task(mark, (str(file),))


def run_own(client: Client, file: Path) -> None:
    with client.create_plan("own") as plan:
        task = plan.add_task(mark, (str(file),))
    assert task.result(timeout=30) == "ran"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_foreign_task_in_a_local_block_does_not_run(workers: int, tmp_path: Path) -> None:
    foreign, own = tmp_path / "foreign", tmp_path / "own"
    here = zkplan.local(workers)
    with here as client:
        attack(here.hosts, here.root, foreign)
        run_own(client, own)
        with zkplan.connect(here.hosts, here.root, secret=here.secret) as friend:
            run_own(friend, own)
        for worker in client.workers():
            for shown in Path(f"/proc/{worker.pid}/cmdline"), Path("/proc/self/cmdline"):
                assert here.secret not in shown.read_text()
    assert own.exists()
    assert not foreign.exists()


@pytest.mark.parametrize(("folder", "processes"), [("", 0), ("data", 0), ("data", 2)])
def test_a_foreign_task_on_an_embedded_server_does_not_run(
    folder: str, processes: int, tmp_path: Path
) -> None:
    """Also where several processes share the secret of the server of their supervisor."""
    foreign, own = tmp_path / "foreign", tmp_path / "own"
    address = f"embedded:{tmp_path / folder if folder else ''}"
    root = f"/foreign-{folder}"
    with ExitStack() as stack:
        if processes:
            options = ("--processes", str(processes))
            fleet = stack.enter_context(WorkerProcess(address, root, tmp_path / "log", *options))
            fleet.wait_ready(processes)
        else:
            stack.enter_context(working(address, root))
        client = stack.enter_context(zkplan.connect(address, root))
        attack(client.transport.hosts, root, foreign)
        run_own(client, own)
    assert own.exists()
    assert not foreign.exists()


def test_the_secret_of_a_folder_is_readable_by_its_owner_only_and_stays(tmp_path: Path) -> None:
    address, secret = f"embedded:{tmp_path}/data", tmp_path / "data" / "secret"
    with zkplan.connect(address):
        first = secret.read_text()
        assert secret.stat().st_mode & 0o777 == 0o600
    with zkplan.connect(address):
        assert secret.read_text() == first
    assert re.fullmatch(r"[0-9a-f]{64}\n", first)


def test_a_secret_given_by_the_user_is_used_instead_of_a_generated_one(tmp_path: Path) -> None:
    address = f"embedded:{tmp_path}"
    with zkplan.connect(address, secret=secret_of("mine")) as client:
        assert [key.id for key in client.keys] == ["mine"]
    here = zkplan.local(workers=1, secret=secret_of("mine"), data=tmp_path)
    with here as client, zkplan.connect(here.hosts, here.root, secret=secret_of("mine")) as friend:
        assert here.secret == secret_of("mine")
        run_own(friend, tmp_path / "own")


def test_a_folder_that_already_holds_plans_keeps_working_without_a_secret(tmp_path: Path) -> None:
    """Those who reach it by host and port sign with nothing, and work on with those who do not."""
    data = tmp_path / "data"
    with EmbeddedServer(data, is_open=True) as server, zkplan.connect(server.hosts) as client:
        with client.create_plan() as plan:
            task = plan.add_task(mark, (str(tmp_path / "own"),))
        with working(f"embedded:{tmp_path}/data", "/zkplan"):
            assert task.result(timeout=30) == "ran"
    assert not (tmp_path / "data" / "secret").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("demo", "--workers", "1", "--threads", "1"),
        ("stress", "--workers", "1", "--tasks", "10", "--deps", "1", "--sleep", "0.5"),
    ],
    ids=["demo", "stress"],
)
def test_a_foreign_task_in_a_run_of_a_command_does_not_run(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    with run_of_a_command(*words) as (hosts, root, process):
        attack(hosts, root, foreign)
        assert process.stdout is not None
        rest = process.stdout.read()
        assert process.wait(60) == 0, rest
    assert not foreign.exists()
