"""No worker touches plans and tasks of another format, and no author writes to them.

The old ones are those of `tests/unit/golden_files`, which a zkplan of format 1 has written.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import TOP, WorkerProcess, plain_client, wait_until, zkplan_command
from zkplan.errors import OtherFormat
from zkplan.plan import Plan
from zkplan.protocol import formats
from zkplan.protocol.layout import parse_entry
from zkplan.testing.server_process import EmbeddedServerProcess

ROOT = "/zkplan"
OLD_PLAN = f"{ROOT}/plan-0000000004"


def plan_of_tomorrow(client: zkplan.Client, envelope: bool) -> str:
    """A ready plan whose record, or whose tasks' envelopes, are of a later format."""
    plan = client.create_plan("tomorrow")
    tasks = plan.add_tasks([zkplan.TaskSpec(len, [[1, 2]]) for _ in range(3)])
    plan.mark_ready()
    transport = client.transport.client
    if envelope:
        for task in tasks:
            data, _ = transport.get(task.path)
            transport.set(task.path, b"e9" + data[2:])
    else:
        data, _ = transport.get(plan.path)
        present, later = (b'"format":%d' % number for number in (formats.TREE, formats.TREE + 1))
        transport.set(plan.path, data.replace(present, later))
    return plan.path


def plans_of_yesterday(raw: KazooClient) -> None:
    """What the golden tree of format 1 has, but for its worker."""
    for line in (TOP / "tests/unit/golden_files" / "tree-1-z1-h1.txt").read_text().splitlines():
        path, _, data = line.partition(" ")
        if path.startswith(ROOT + "/") and not path.startswith((f"{ROOT}/w", f"{ROOT}/claims/")):
            raw.ensure_path(path)
            raw.set(path, ast.literal_eval(data.partition(" ")[2]))


def tree_of(raw: KazooClient, path: str) -> dict[str, bytes]:
    found = {path: raw.get(path)[0]}
    for name in raw.get_children(path):
        found |= tree_of(raw, f"{path}/{name}")
    return found


def attempts_in(tree: dict[str, bytes]) -> set[tuple[str, int]]:
    """The runnable tasks, each with how many of its attempts are used up."""
    found = (parse_entry(path.rpartition("/")[2]) for path in tree if "/runnable/" in path)
    return {(entry.task, entry.a) for entry in found if entry is not None}


@pytest.mark.parametrize("what", ["older", "newer", "envelope"])
def test_plans_and_tasks_of_another_format_are_left_and_reported(tmp_path: Path, what: str) -> None:
    with (
        EmbeddedServerProcess() as server,
        zkplan.connect(server.hosts, ROOT) as client,
        plain_client(server.hosts) as raw,
    ):
        client.prepare()
        path = OLD_PLAN
        if what == "older":
            plans_of_yesterday(raw)
        else:
            path = plan_of_tomorrow(client, what == "envelope")
        before = tree_of(raw, path)
        said = f"written by {'an older' if what == 'older' else 'a newer'} zkplan (format "
        options = ("--session-timeout", "2")
        with WorkerProcess(server.hosts, ROOT, tmp_path, *options) as worker:
            wait_until(lambda: worker.said(said), f"the worker reports {what}")
            with client.create_plan("today") as plan:
                today = plan.add_task(len, [[1, 2, 3]])
            assert today.result(timeout=30) == 3
            assert worker.process.is_running()
        after = tree_of(raw, path)
        changed = {each for each in after | before if after.get(each) != before.get(each)}
        # No attempt was used up: a worker of that format can still run all of them.
        assert attempts_in(after) >= attempts_in(before)
        assert not [each for each in changed if "/dead/" in each or "/started-" in each]
        if what != "envelope":
            # What was due is runnable now, and the history says so.
            assert {each.split("/")[3] for each in changed} <= {"runnable", "history"}


CHANGES: dict[str, Callable[[Plan], object]] = {
    "add": lambda plan: plan.add_task(len, [[1]]),
    "mark ready": lambda plan: plan.mark_ready(),
    "pause": lambda plan: plan.pause(),
    "resume": lambda plan: plan.resume(),
    "cancel": lambda plan: plan.cancel(),
    "weight": lambda plan: plan.set(weight=3),
    "retry": lambda plan: plan.retry(),
    "retry one": lambda plan: plan.retry_task("0000000010"),
    "skip": lambda plan: plan.task("11").skip(),
    "cancel one": lambda plan: plan.task("11").cancel(),
    "export": lambda plan: plan.client.export_plan(plan, "never-written"),
}


def test_nothing_is_written_to_a_plan_of_another_format() -> None:
    said = "plan 4 was written by an older zkplan (format 1; this one reads 4): use that one"
    with (
        EmbeddedServerProcess() as server,
        zkplan.connect(server.hosts, ROOT) as client,
        plain_client(server.hosts) as raw,
    ):
        client.prepare()
        plans_of_yesterday(raw)
        before = tree_of(raw, ROOT)
        for what, change in CHANGES.items():
            with pytest.raises(OtherFormat) as refused:
                change(client.plan(4))
            assert str(refused.value) == said, what
        listed = zkplan_command("plan", "ls", "--hosts", server.hosts, "--root", ROOT)
        assert said in listed.stderr
        assert [cause.code for cause in client.plan(4).why().causes] == ["unread"]
        assert said.capitalize()[1:] in str(client.plan(4).why())
        assert tree_of(raw, ROOT) == before
        client.plan(4).remove()
        assert not raw.exists(OLD_PLAN)


def test_workers_show_their_format(tmp_path: Path) -> None:
    with (
        EmbeddedServerProcess() as server,
        zkplan.connect(server.hosts, ROOT) as client,
        plain_client(server.hosts) as raw,
        WorkerProcess(server.hosts, ROOT, tmp_path),
    ):
        wait_until(lambda: len(client.workers()) == 1, "the worker is registered")
        raw.create(f"{ROOT}/workers/old", b'{"host":"h","version":"0.1.0"}')
        raw.create(f"{ROOT}/claims/old")
        command = ("worker", "ls", "-o", "json", "--hosts", server.hosts, "--root", ROOT)
        listed = json.loads(zkplan_command(*command).stdout)
        shown = {each["id"]: each["format"] for each in listed}
        assert shown.pop("old") == 1
        assert list(shown.values()) == [formats.TREE]
