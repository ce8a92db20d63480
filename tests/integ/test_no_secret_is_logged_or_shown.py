"""No error, log or process shows a planted secret, password or argument.

Commands have a module of their own: `test_no_command_prints_a_secret.py`.
"""

from __future__ import annotations

import inspect
import itertools
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import Here, Run, WorkerProcess, secret_of, wait_until
from zkplan import Client, TaskSpec, errors
from zkplan.cli.run import read_plan_file
from zkplan.embedded import EmbeddedServer, Limits
from zkplan.protocol.requests import Create, Refused
from zkplan.protocol.transactions import rejected
from zkplan.service.lease_updates import Add, Decide
from zkplan.service.leases import Leases
from zkplan.testing.server_process import free_port

from .planted import (
    ARGUMENT,
    CANARY,
    LOGIN,
    PASSWORD,
    SECRET,
    Closed,
    closed_root,
    everything_logged,
    fail,
    file_with,
)


def fail_with(given: str) -> None:
    raise ValueError(given)


def tell_environment(given: str, test: int) -> list[str]:
    """What this task, and a program that it starts, find in their environments.

    And what the system shows of this process and of those above it, up to that of the test.
    """
    code = "import os; print(*os.environ.values())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told, pid = [*os.environ.values(), child.stdout], os.getpid()
    while pid != test:
        told.append(Path(f"/proc/{pid}/environ").read_text(errors="replace"))
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return told


@pytest.fixture
def closed(here: Here) -> Iterator[Closed]:
    with closed_root(here[0], f"{here[1]}-closed") as made:
        yield made


@pytest.mark.parametrize("url", ["me:{}@b/f", "me:a/{}@b", "b/f?key={}", "u:a?b/{}://@b"])
def test_a_possible_password_in_a_store_or_hosts_is_masked(url: str, run: Run) -> None:
    store = f"simplecache::s3://{url.format(PASSWORD)}"
    for hosts in f"zk1,me:{PASSWORD}@zk2:2181", f"me:a/{PASSWORD}@zk2:2181":
        shown = run("config", "show", "--store", store, "--hosts", hosts, "--output", "json")
        refused = run("plan", "ls", "--hosts", hosts)
        assert (shown.code, refused.code) == (0, 2)
        rows = {row["field"]: row["value"] for row in shown.data}
        assert "***" in rows["store"]
        assert "***" in rows["hosts"]
        assert CANARY.search(repr((shown, refused))) is None


@contextmanager
def full_server() -> Iterator[Client]:
    with (
        EmbeddedServer(limits=Limits()._replace(znodes=30)) as server,
        zkplan.connect(server.hosts, auth_data=LOGIN, secret=SECRET) as client,
    ):
        yield client


def fill(_: Closed) -> None:
    with full_server() as client:
        client.create_plan().add_tasks([TaskSpec(str, [ARGUMENT])] * 100)


def closed_client(closed: Closed, **options: Any) -> Client:
    return zkplan.connect(closed.hosts, closed.root, **{"auth_data": LOGIN, **options})


def use_after_close(closed: Closed) -> None:
    client = closed_client(closed, secret=SECRET)
    client.close()
    client.create_plan(ARGUMENT)


def roll_back(closed: Closed) -> None:
    with closed_client(closed, secret=SECRET) as client:
        client.transport.give_up("ZooKeeper was restored")
        client.create_plan(ARGUMENT)


def foreign(closed: Closed) -> None:
    other = closed.plans["done"].task("second")
    closed.plans["defining"].add_task(str.join, [ARGUMENT, [other]])


def read_with_another_secret(closed: Closed) -> None:
    with closed_client(closed, secret=secret_of("another")) as client:
        done = closed.plans["done"]
        client.plan(done.path).task(done.task("second").number).result(5)


def read_what_was_changed(closed: Closed) -> None:
    task = closed.plans["done"].task("second")
    path = f"{closed.plans['done'].path}/results/{task.number}"
    znodes = closed.client.transport.client  # which shows nothing of what it sends
    znodes.set(path, znodes.get(path)[0] + b"changed")
    closed.client.plan(closed.plans["done"].path).task(task.number).result(5)


def spend_the_budget(closed: Closed) -> None:
    closed.client.set_budget(znodes=0)
    try:
        closed.client.create_plan(ARGUMENT)
    finally:
        closed.client.set_budget()


def lose_the_store(closed: Closed) -> None:
    hosts = f"127.0.0.1:{free_port()}"  # where nobody listens
    closed_client(closed, secret=SECRET, store=f"ftp://me:{PASSWORD}@{hosts}").close()


def exceed_a_request(closed: Closed) -> None:
    with closed_client(closed, secret=SECRET) as client:
        client.values.store = None  # a closed server of zkplan brings one
        client.plan("defining").add_task(fail, [ARGUMENT * 100_000])


def refuse(_: Closed) -> None:
    task = Create("/zkplan/plan-0000000001/task-0000000001", ARGUMENT.encode())
    raise rejected("adding tasks", Refused(0, zkplan.protocol.requests.Reason.OTHER, task.path))


def take_a_key_twice(closed: Closed) -> None:
    kept = closed.client.create_plan(key="taken")  # its author lives as long as the handle
    closed.client.create_plan(key="taken", if_exists="raise")
    kept.remove()


def update(closed: Closed, *operations: Any) -> None:
    with Leases(closed.client) as leases:
        leases.update(closed.plans["defining"], operations)


#: How each error of zkplan comes about, with the planted values in reach.
CAUSES: dict[type[errors.ZkplanError], Callable[[Closed], Any]] = {
    errors.PlanNotFound: lambda c: c.client.plan("no such plan"),
    errors.PlanExists: take_a_key_twice,
    errors.HistoryNotKept: lambda c: c.client.create_plan(history=False).history(),
    errors.ScheduleNotFound: lambda c: c.client.find_schedule("none"),
    errors.PlanDrained: lambda c: c.plans["done"].add_task(str, [ARGUMENT]),
    errors.PlanCancelled: lambda c: c.plans["cancelled"].add_task(str, [ARGUMENT]),
    errors.PlanFailed: lambda c: c.plans["failed"].wait(5),
    errors.PlanError: lambda c: c.plans["defining"].pause(),
    errors.InvalidTask: lambda c: c.plans["defining"].add_task(fail, ARGUMENT),
    errors.ForeignTask: foreign,
    errors.ResultNotKept: lambda c: c.plans["done"].task(0).result(5),
    errors.TaskFailed: lambda c: c.plans["failed"].task("first").result(5),
    errors.NotSerialisable: lambda c: c.plans["defining"].add_task(
        fail, [{ARGUMENT: (each for each in ARGUMENT)}]
    ),
    errors.PayloadTooLarge: exceed_a_request,
    errors.PayloadRefused: read_what_was_changed,
    errors.PayloadUndecodable: read_with_another_secret,
    errors.UpdateRefused: lambda c: update(c, Decide(9_999, "skip", value=ARGUMENT)),
    errors.UpdateTooLarge: lambda c: update(
        c, *(Add(zkplan.TaskSpec(fail, [ARGUMENT * 1_000])) for _ in range(100))
    ),
    errors.BudgetSpent: spend_the_budget,
    errors.StoreUnavailable: lose_the_store,
    errors.ZooKeeperUnavailable: lambda c: zkplan.connect(
        f"127.0.0.1:{free_port()}", connect_timeout=0.1, secret=SECRET, auth_data=LOGIN
    ),
    errors.ClientClosed: use_after_close,
    errors.ServerRolledBack: roll_back,
    errors.AccessDenied: lambda c: zkplan.connect(c.hosts, c.root, secret=SECRET).plans(),
    errors.TransactionRejected: refuse,
    errors.ServerFull: fill,
    errors.WorkerNotFound: lambda c: c.client.drain_worker("nobody"),
    errors.WaitTimeout: lambda c: c.plans["defining"].wait(0),
    errors.InvalidPlanFile: lambda _: read_plan_file("no-such-file.toml"),
    errors.InvalidSettings: lambda c: zkplan.connect(
        c.hosts, profile="none", secret=SECRET, auth_data=LOGIN
    ),
    errors.ZkplanError: lambda c: zkplan.connect(f"zk1,me:{PASSWORD}@zk2:2181", secret=SECRET),
}
#: Errors that need a fault to come about. Their texts are made of paths, numbers and names.
FAULTS = {errors.PlanStuck, errors.InvariantViolated, errors.StoredValueLost, errors.TaskCancelled}
FAULTS |= {errors.FunctionNotAllowed, errors.OtherFormat}
#: A task raises it: what a command wrote stays in the tree, for those who may read it.
OF_TASKS = {errors.ShellFailed, errors.GateTimeout}
BASES = {errors.TaskError, errors.PayloadError, errors.ZooKeeperError}


def test_these_tests_cause_each_error_that_is_not_a_base_class() -> None:
    found = {
        each
        for _, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, errors.ZkplanError)
    }
    assert found == CAUSES.keys() | FAULTS | OF_TASKS | BASES


@pytest.mark.parametrize("kind", CAUSES, ids=lambda kind: kind.__name__)
def test_no_traceback_of_a_zkplan_error_shows_a_planted_value(
    kind: type[errors.ZkplanError], closed: Closed
) -> None:
    with everything_logged() as log, pytest.raises(Exception) as caught:
        CAUSES[kind](closed)
    chain = itertools.takewhile(bool, (caught.value, caught.value.__cause__))
    assert kind in map(type, chain), caught.value
    told = "".join(traceback.format_exception(caught.value))
    assert CANARY.search(told) is None, told
    assert CANARY.search(log.getvalue()) is None


@pytest.mark.parametrize("processes", ["1", "2"])
def test_tasks_processes_and_logs_of_a_worker_contain_no_planted_value(
    processes: str, closed: Closed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At d18eeb0 tasks found it in their environment, `ps` in all children, the log in messages."""
    monkeypatch.setenv("ZKPLAN_SECRET_FILES", file_with(tmp_path, SECRET))
    monkeypatch.setenv("ZKPLAN_LOGIN_USER", "owner")
    monkeypatch.setenv("ZKPLAN_LOGIN_PASSWORD", PASSWORD)
    client, test = closed.client, os.getpid()
    with WorkerProcess(closed.hosts, closed.root, tmp_path, "--processes", processes) as worker:
        worker.wait_ready(int(processes))
        living = [found.pid for found in client.workers()]
        with client.create_plan(attempts=2, retry_delay=0) as plan:
            told = [
                plan.add_task(tell_environment, [ARGUMENT, test], keep=True, isolation=isolation)
                for isolation in ("thread", "process")
            ]
            plan.add_task(fail_with, [ARGUMENT], name="fails")
        for task, ancestors in zip(told, (int(processes), int(processes) + 2), strict=True):
            found = task.result(30)
            assert CANARY.search(repr(found)) is None
            assert len([each for each in found if "ZKPLAN_LOGIN_USER=owner" in each]) >= 1
            assert len(found) > ancestors
        wait_until(lambda: plan.status().state == "failed", "the other has failed")
        wait_until(lambda: worker.said("is out of attempts: ValueError"), "it is told")
        if processes == "2":  # the first process has it from its user
            shown = run_ps(living)
            assert len(shown.splitlines()) == 2
            assert CANARY.search(shown) is None
        assert CANARY.search(worker.log.read_text()) is None


def run_ps(pids: list[int]) -> str:
    listed = ["ps", "-o", "args=", "-p", ",".join(map(str, pids))]
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout


def test_a_message_is_logged_in_one_line_if_the_operator_asks_for_it(
    zkplan_client: Client, zookeeper_hosts: str, tmp_path: Path
) -> None:
    forged = "no\n12:00:00 INFO zkplan.worker: all is well\x1b[2J"
    with WorkerProcess(zookeeper_hosts, zkplan_client.root, tmp_path, "--log-messages") as worker:
        with zkplan_client.create_plan(attempts=1) as plan:
            plan.add_task(fail_with, [forged], name="fails")
        wait_until(lambda: worker.said("is out of attempts"), "it is told")
        lines = worker.log.read_text().splitlines()
    assert any(r"ValueError: no\n12:00:00 INFO zkplan.worker: all is well\x1b" in x for x in lines)
    assert not any(line.startswith("12:00:00 INFO") for line in lines)
    assert "\x1b" not in worker.log.read_text()
