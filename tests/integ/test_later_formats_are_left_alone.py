"""Plans and tasks whose records have a later format: no worker of today touches them."""

from __future__ import annotations

from pathlib import Path

import pytest

import zkplan
from zkplan.protocol.layout import parse_entry
from zkplan.testing.embedded_process import EmbeddedServerProcess

from .support import WorkerProcess, plain_client, wait_until

ROOT = "/versions"


def plan_of_tomorrow(client: zkplan.Client, envelope: bool) -> tuple[str, list[str]]:
    """A ready plan whose record, or whose tasks' envelopes, are of a later format."""
    plan = client.create_plan("tomorrow")
    tasks = plan.add_tasks([zkplan.TaskSpec(len, [[1, 2]]) for _ in range(3)])
    transport = client.transport.client
    if envelope:
        for task in tasks:
            data, _ = transport.get(task.path)
            transport.set(task.path, b"z9" + data[2:])
    else:
        data, _ = transport.get(plan.path)
        transport.set(plan.path, data.replace(b'"format":1', b'"format":2'))
    plan.mark_ready()
    return plan.path, [task.number for task in tasks]


@pytest.mark.parametrize("what", ["record", "envelope"])
def test_what_is_of_a_later_format_is_left_alone_and_told(tmp_path: Path, what: str) -> None:
    with (
        EmbeddedServerProcess() as server,
        zkplan.connect(server.hosts, ROOT) as client,
        plain_client(server.hosts) as raw,
        WorkerProcess(server.hosts, ROOT, tmp_path, "--session-timeout", "2") as worker,
    ):
        client.prepare()
        path, tasks = plan_of_tomorrow(client, what == "envelope")
        said = "upgrade zkplan" if what == "record" else "newer format"
        wait_until(lambda: worker.said(said), f"the worker tells of {what}")
        with client.create_plan("today") as plan:
            today = plan.add_task(len, [[1, 2, 3]])
        assert today.result(timeout=30) == 3
        for number in tasks:
            children = raw.get_children(f"{path}/task-{number}")
            assert not [name for name in children if name.startswith("started-")]
        # No attempt was used up: a worker of that format can still run all of them.
        entries = [parse_entry(name) for name in raw.get_children(f"{path}/runnable")]
        assert all(entry is not None and entry.a == 0 for entry in entries)
        if what == "record":
            assert [(entry.task, entry.n) for entry in entries if entry] == [
                (number, 0) for number in tasks
            ]
        assert worker.process.is_running()
        assert not raw.get_children(f"{path}/dead")
