"""A secret, a password and an argument are planted: no command, error, log or process shows them.

An argument is in the tree, in exports of it, and where a user asks for it (`task show --values`).
"""

from __future__ import annotations

import inspect
import io
import itertools
import logging
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from kazoo.security import CREATOR_ALL_ACL

import zkplan
from zkplan import Client, Plan, TaskSpec, errors
from zkplan.cli import cli
from zkplan.embedded import EmbeddedServer, Limits
from zkplan.leases import Add, Decide, Leases
from zkplan.plan_files.reader import read_plan_file
from zkplan.protocol.requests import Create, Refused
from zkplan.protocol.shared import rejected
from zkplan.testing.loopback import free_port
from zkplan.testing.znodes import remove_tree

from .support import Run, WorkerProcess, key_file, plain_client, secret_of, wait_until, working

#: Put together here, so that no traceback that quotes a line of this file shows one.
PASSWORD, ARGUMENT = (f"canary-{name}-" + "5a" * 20 for name in ("word", "value"))
#: The bytes of a key, in which no word can be.
SECRET = f"mine:{bytes(range(0xC0, 0xE0)).hex()}"
CANARY = re.compile("canary-(word|value)-5a|c0c1c2c3")
LOGIN = [("digest", f"owner:{PASSWORD}")]


class Closed(NamedTuple):
    """A closed root with a secret, and plans whose tasks all have the canary as an argument."""

    hosts: str
    root: str
    client: Client
    plans: dict[str, Plan]


def fail(given: str) -> None:
    raise ValueError("as it was told")


def fail_with(given: str) -> None:
    raise ValueError(given)


def tell_environment(given: str) -> list[str]:
    """What this task, and a program that it starts, find in their environments."""
    code = "import os; print(*os.environ.values())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [*os.environ.values(), child.stdout]


@contextmanager
def everything_logged() -> Iterator[io.StringIO]:
    """All that is logged, down to what kazoo says of each request, with Python's own formatter."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    loggers = [logging.getLogger(name) for name in ("", "zkplan", "kazoo", "zkplan.kazoo")]
    levels = [logger.level for logger in loggers]
    loggers[0].addHandler(handler)
    for logger in loggers:
        logger.setLevel(1)
    try:
        yield written
    finally:
        loggers[0].removeHandler(handler)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@pytest.fixture
def closed(zookeeper_hosts: str, zkplan_root: str) -> Iterator[Closed]:
    root = f"{zkplan_root}-closed"
    options: dict[str, Any] = {
        "secret": SECRET,
        "auth_data": LOGIN,
        "default_acl": CREATOR_ALL_ACL,
    }
    with zkplan.connect(zookeeper_hosts, root, **options) as client:
        plans: dict[str, Plan] = {}
        for name in ("failed", "done", "cancelled", "defining"):
            plan = plans[name] = client.create_plan(name, attempts=2, retry_delay=0)
            first = plan.add_task(fail if name == "failed" else str, [ARGUMENT], name="first")
            plan.add_task(str.join, [ARGUMENT, [first]], name="second", keep=True)
        plans["cancelled"].cancel()
        for name in ("failed", "done"):
            plans[name].mark_ready()
        with working(zookeeper_hosts, root, **options):
            wait_until(lambda: plans["failed"].status().state == "failed", "it has failed")
            plans["done"].wait(30)
        yield Closed(zookeeper_hosts, root, client, plans)
    with plain_client(zookeeper_hosts, auth_data=LOGIN) as plain:
        remove_tree(plain, root)


def file_with(folder: Path, line: str) -> str:
    file = folder / "ours.keys"
    file.touch(0o600)
    file.write_text(line)
    return str(file)


def lines_of_commands(closed: Closed, folder: Path) -> Iterator[list[str]]:
    """Every command of plans, tasks and workers, with both outputs, for each plan."""
    for name, plan in closed.plans.items():
        number = str(int(plan.number))
        for group in ("plan", "task", "worker"):
            commands = cli.get_command(click.Context(cli), group)
            assert isinstance(commands, click.Group)
            for word, command in commands.commands.items():
                given = {each.name: each for each in command.params}
                line = [group, word]
                line += [number] if "plan" in given else []
                line += ["first"] if "task" in given else []
                line += [str(folder / "exported")] if "file" in given else []
                line += ["--out", str(folder / f"{name}-out")] if "out" in given else []
                line += ["--yes"] if "yes" in given else []
                line += ["--timeout", "0"] if "timeout" in given else []
                yield line
                if "output" in given:
                    yield [*line, "-o", "json"]


def test_no_command_shows_a_planted_value_whatever_it_does(
    closed: Closed, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rights, without rights, without the secret, and without a server."""
    closed.client.export_plan(closed.plans["defining"], tmp_path / "exported")
    assert CANARY.search(repr((tmp_path / "exported").read_bytes())) is None
    lines = [*lines_of_commands(closed, tmp_path)]
    assert len(lines) > 80
    opened = zkplan.cli.common.connect_with  # type: ignore[attr-defined]
    owner = {"auth_data": LOGIN, "default_acl": CREATOR_ALL_ACL}
    ours = file_with(tmp_path, SECRET)
    worlds: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"ZKPLAN_SECRET_FILES": ours}, {}),
        ({"ZKPLAN_SECRET_FILES": ours}, owner),
        ({"ZKPLAN_SECRET_FILES": str(key_file(tmp_path, "another"))}, owner),
    ]
    codes = set()
    with everything_logged() as log:
        for environment, options in worlds:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            monkeypatch.setattr(
                "zkplan.cli.common.connect_with",
                lambda *args, _options=options, **given: opened(*args, **given, **_options),
            )
            for line in lines:
                said = run(*line, "--root", closed.root)
                codes.add(said.code)
                shown = CANARY.search(said.out + said.err)
                assert shown is None, f"{line} shows it: {said}"
        said = run("plan", "ls", "--hosts", f"127.0.0.1:{free_port()}", "--connect-timeout", "0.1")
        codes.add(said.code)
        assert CANARY.search(said.out + said.err) is None
    assert codes >= {0, 1, 2, 3, 4}
    assert CANARY.search(log.getvalue()) is None


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
    with closed_client(closed, secret=SECRET, store=f"memory://me:{PASSWORD}@here") as client:
        assert client.values.store is not None
        client.values.store.read("plan-1", "gone")


def exceed_a_request(closed: Closed) -> None:
    with closed_client(closed, secret=SECRET) as client:
        client.values.store = None  # a closed server of zkplan brings one
        client.plan("defining").add_task(fail, [ARGUMENT * 100_000])


def refuse(_: Closed) -> None:
    task = Create("/zkplan/plan-0000000001/task-0000000001", ARGUMENT.encode())
    raise rejected("adding tasks", Refused(0, zkplan.protocol.requests.Reason.OTHER, task.path))


def take_a_key_twice(closed: Closed) -> None:
    for _ in range(2):
        closed.client.create_plan(key="taken", if_exists="raise")


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
FAULTS |= {errors.FunctionNotAllowed}
#: A task raises it: what a command wrote stays in the tree, for those who may read it.
OF_TASKS = {errors.ShellFailed, errors.GateTimeout}
BASES = {errors.TaskError, errors.PayloadError, errors.ZooKeeperError}


def test_each_error_is_caused_or_is_a_base_of_others() -> None:
    found = {
        each
        for _, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, errors.ZkplanError)
    }
    assert found == CAUSES.keys() | FAULTS | OF_TASKS | BASES


@pytest.mark.parametrize("kind", CAUSES, ids=lambda kind: kind.__name__)
def test_no_traceback_of_an_error_of_ours_shows_a_planted_value(
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
def test_tasks_processes_and_logs_of_a_worker_have_no_planted_value(
    processes: str,
    zookeeper_hosts: str,
    zkplan_root: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At d18eeb0 tasks found it in their environment, `ps` in all children, the log in messages."""
    given = ["--processes", processes]
    monkeypatch.setenv("ZKPLAN_SECRET_FILES", file_with(tmp_path, SECRET))
    with (
        zkplan.connect(zookeeper_hosts, zkplan_root, secret=SECRET) as client,
        WorkerProcess(zookeeper_hosts, zkplan_root, tmp_path, *given) as worker,
    ):
        worker.wait_ready(int(processes))
        living = [found.pid for found in client.workers()]
        with client.create_plan(attempts=2, retry_delay=0) as plan:
            told = plan.add_task(tell_environment, [ARGUMENT], keep=True)
            plan.add_task(fail_with, [ARGUMENT], name="fails")
        assert CANARY.search(repr(told.result(30))) is None
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


def test_a_message_is_logged_in_one_line_where_the_operator_asks_for_it(
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
