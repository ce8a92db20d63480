"""A plan that is exported to a file goes on on another server as if it had stayed."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import Here, Run, note, notes, wait_for_notes, wait_until, working
from zkplan import Client, Plan, PlanNotFound, TaskSpec
from zkplan.author.export import export_plan, import_plan
from zkplan.embedded import EmbeddedServer
from zkplan.protocol.core.edges import argument_of
from zkplan.protocol.layout import delayed_name, parse_delayed
from zkplan.protocol.requests import Create, Delete, Multi

from .moving import facts, half_run
from .proxy import Proxy, every


@pytest.fixture(scope="module")
def embedded_hosts() -> Iterator[str]:
    with EmbeddedServer() as server:
        yield server.hosts


@pytest.fixture
def places(here: Here, there: Here, embedded_hosts: str) -> dict[str, Here]:
    """The root of this test, another one on the same server, and one on an embedded server."""
    return {"here": here, "another root": there, "embedded": (embedded_hosts, here[1])}


def make_due(client: Client, plan: Plan) -> None:
    """What waits for its time has waited long enough."""
    znodes, root = client.transport.client, client.root
    for name in znodes.get_children(f"{root}/delayed"):
        delayed = parse_delayed(name)
        if delayed is not None and delayed.plan == plan.number:
            znodes.delete(f"{root}/delayed/{name}")
            znodes.create(f"{root}/delayed/{delayed_name(1, plan.number, delayed.entry)}")


@pytest.mark.usefixtures("nothing_stalls")
@pytest.mark.parametrize(
    ("origin", "target", "width"),
    [("here", "another root", 5), ("here", "embedded", 1300), ("embedded", "here", 1300)],
)
def test_a_half_run_plan_goes_on_after_its_import_elsewhere(
    origin: str, target: str, width: int, places: dict[str, Any], tmp_path: Path
) -> None:
    """With 1300 edges and more the join is added in several transactions, behind a hold."""
    file, gate = str(tmp_path / "ran"), str(tmp_path / "gate")
    (from_hosts, from_root), (to_hosts, to_root) = places[origin], places[target]
    with (
        zkplan.connect(from_hosts, root=from_root) as source,
        zkplan.connect(to_hosts, root=to_root) as client,
    ):
        old = half_run(source, file, gate, width)
        before = facts(old)
        assert {task.state for task in before["tasks"]} == {
            "dead",
            "delayed",
            "waiting",
            "runnable",
        }
        export_plan(old, tmp_path / "plan", remove=True)
        with pytest.raises(PlanNotFound):
            old.status()
        plan = client.plan(client.plan(import_plan(client, tmp_path / "plan")).path)
        assert facts(plan) == before
        assert plan.check().problems == []
        ran = notes(file)
        Path(gate).touch()
        plan.resume()
        assert plan.retry() == 1
        make_due(client, plan)
        with working(to_hosts, to_root):
            status = plan.wait(60)
        assert (status.added, status.dead) == (width + 7, 0)
        results = [
            plan.task(task.number).result(1) for task in before["tasks"] if task.name == "later"
        ]
        assert results == ["later"]
    again = notes(file)[len(ran) :]
    # Only what had not been committed ran here, the dead and the delayed task with what their
    # first attempts had left in the log.
    assert sorted(again)[2:] == ["join", "last", "late", "later"]
    assert [line.split(" ", 2)[::2] for line in sorted(again)[:2]] == [["gate", "['closed']"]] * 2
    assert sorted(ran) == sorted(
        ["gate 0 []"] * 2 + ["kept"] + [f"quick {n}" for n in range(width)]
    )


def work(file: str, name: int, *values: int, gate: str = "") -> int:
    if gate:
        wait_until(Path(gate).exists, "the gate opens")
    note(file, str(name))
    threading.Event().wait(0.003)
    return 1 + sum(values)


def test_a_plan_moved_back_and_forth_while_running_runs_each_task_once(
    places: dict[str, Any], tmp_path: Path
) -> None:
    """Workers of both servers are busy all the time; each move catches the plan at any point."""
    file, layers, width = str(tmp_path / "ran"), 12, 40
    gate = tmp_path / "gate"
    with ExitStack() as stack:
        clients = []
        for place in ("here", "embedded"):
            hosts, root = places[place]
            clients.append(stack.enter_context(zkplan.connect(hosts, root=root)))
            stack.enter_context(working(hosts, root))
        with clients[0].create_plan("to and fro") as plan:
            row = [plan.add_task(work, [file, n], name=f"0.{n}") for n in range(width)]
            for layer in range(1, layers):
                # The plan must not end before it is moved once.
                options = {"gate": str(gate)} if layer == layers - 1 else {}
                row = [
                    plan.add_task(work, [file, layer * width + n, row[n], row[n - 1]], options)
                    for n in range(width)
                ]
            last = plan.add_task(lambda values: sum(values), [row])
        for moves in range(1, 7):
            # Sixty more each time, where this loop is not slower than the workers.
            wait_for_notes(file, 60 * moves)
            if moves == 1:
                plan.pause()
                gate.touch()
            export_plan(plan, tmp_path / f"{moves}", pause=True, wait=30, remove=True)
            client = clients[moves % 2]
            plan = client.plan(import_plan(client, tmp_path / f"{moves}"))
            state = plan.status().state
            # Before the gate it cannot have ended: it was paused, and so it arrives.
            assert state in (("paused",) if moves == 1 else ("paused", "done"))
            if state == "paused":
                plan.resume()
        assert plan.wait(30).state == "done"
        assert plan.status().finished == layers * width + 1
        # Each task gives one more than the sum of the two before it.
        assert plan.task(last.number).result(1) == width * (2**layers - 1)
    assert sorted(map(int, notes(file))) == list(range(layers * width))


def test_tasks_added_after_an_import_get_the_numbers_of_the_original_plan(
    zkplan_client: Client, elsewhere: Client, there: Here, tmp_path: Path
) -> None:
    """Also those to come, and edges and logs to come meet none that were imported."""
    old = half_run(zkplan_client, str(tmp_path / "ran"), str(tmp_path / "no"), 3)
    # These edges have higher numbers than their tasks have children: marks and logs came between.
    old.add_task(len, [[old.task("closed"), old.task("delayed")]])
    export_plan(old, tmp_path / "plan")
    plan = elsewhere.plan(import_plan(elsewhere, tmp_path / "plan"))
    for _ in range(2):
        waiting = [task.number for task in old.tasks()]
        olds = [old.add_task(len, [[old.task(n) for n in waiting]]).number for _ in range(10)]
        news = [plan.add_task(len, [[plan.task(n) for n in waiting]]).number for _ in range(10)]
        assert news == olds
    assert facts(plan) == facts(old)
    assert plan.check().problems == []
    plan.resume()
    assert plan.retry() == 1
    with working(*there):
        wait_until(lambda: plan.status().dead == 1, "the dead task failed once more")


@pytest.mark.parametrize("delay", [b"1500", b""], ids=["delay", "of an older version"])
def test_a_delayed_task_keeps_its_due_time_and_its_delay(
    delay: bytes, zkplan_client: Client, elsewhere: Client, znodes: KazooClient, tmp_path: Path
) -> None:
    """Without the delay, an entry of a clock that is an hour ahead would wait the whole hour."""
    with zkplan_client.create_plan("delayed") as plan:
        plan.add_tasks([TaskSpec(abs, [-7]), TaskSpec(abs, [-8])])
    plan.pause()
    entry, _ = sorted(znodes.get_children(f"{plan.path}/runnable"))
    due = f"{int((time.time() + 3600) * 1000):013d}"
    znodes.delete(f"{plan.path}/runnable/{entry}")
    znodes.create(f"{zkplan_client.root}/delayed/{due}-{plan.number}-{entry}", delay)
    export_plan(plan, tmp_path / "plan")
    number = import_plan(elsewhere, tmp_path / "plan")
    assert znodes.get(f"{elsewhere.root}/delayed/{due}-{number}-{entry}")[0] == delay
    assert facts(elsewhere.plan(number)) == facts(plan)


@pytest.mark.parametrize("state", ["empty", "defining", "cancelled", "failed"])
def test_a_plan_of_each_state_is_imported_in_that_state(
    state: str, zkplan_client: Client, elsewhere: Client, there: Here, tmp_path: Path
) -> None:
    old = zkplan_client.create_plan("état", priority=4, on_failure="cascade")
    if state != "empty":
        first = old.add_task(int, ["7"], keep=True)
        old.add_task(lambda x: x // 0, [first], attempts=1)
    if state == "failed":
        old.mark_ready()
        with working(there[0], zkplan_client.root):
            wait_until(lambda: old.status().state == "failed", "it has failed")
    elif state == "cancelled":
        old.cancel()
    export_plan(old, tmp_path / "plan")
    plan = elsewhere.plan(import_plan(elsewhere, tmp_path / "plan"))
    assert facts(plan) == facts(old)
    if state == "failed":
        assert plan.task(first.number).result(1) == 7
        assert elsewhere.observer().look().failed == 1
        assert plan.retry() == 1
    if state == "defining":
        plan.mark_ready()
        with working(*there), pytest.raises(zkplan.PlanFailed):
            plan.wait(30)
        assert (plan.status().finished, plan.status().dead) == (1, 1)


def test_an_export_keeps_a_publication_that_is_still_pending(
    zkplan_client: Client, elsewhere: Client, there: Here, znodes: KazooClient, tmp_path: Path
) -> None:
    """A worker vanished between commit and publish: only its pending record says that a task is
    complete."""
    with zkplan_client.create_plan() as plan:
        first, second = plan.add_tasks([TaskSpec(int, ["1"]), TaskSpec(int, ["2"])])
        both = plan.add_task(lambda a, b: a + b, [first, second], priority=9)
    plan.pause()
    value = zkplan_client.codec.seal_value(3)
    for task, position in ((first, 0), (second, 1)):
        (prov,) = [name for name in znodes.get_children(task.path) if name.startswith("prov-")]
        znodes.delete(f"{task.path}/{prov}")
        znodes.delete(f"{both.path}/dep-{position:010d}")
        argument = argument_of(task.number, value)
        znodes.create(f"{both.path}/arg-{position:010d}", argument)
        znodes.set(f"{both.path}/ready", b"2")
    znodes.create(f"{zkplan_client.root}/claims/gone")
    znodes.create(
        f"{zkplan_client.root}/claims/gone/pending-1",
        f"{plan.number} {both.number} 2 4991".encode(),
    )
    export_plan(plan, tmp_path / "plan")
    found = elsewhere.plan(import_plan(elsewhere, tmp_path / "plan"))
    entries = znodes.get_children(f"{found.path}/runnable")
    assert f"4991-{both.number}.0.0" in entries
    # K+1 says published, so nobody publishes it once more.
    assert znodes.get(f"{found.path}/task-{both.number}/ready")[1].version == 3
    found.resume()
    with working(*there):
        assert found.wait(30).added == 3
    assert found.task(both.number).result(1) == 6


@pytest.mark.parametrize("period", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_an_import_whose_answers_are_lost_writes_everything_once(
    period: int, zkplan_client: Client, elsewhere: Client, zookeeper_hosts: str, tmp_path: Path
) -> None:
    plan = zkplan_client.create_plan("big")
    first = plan.add_tasks([TaskSpec(len, ["x" * 800]) for _ in range(300)])
    plan.add_task(lambda values: len(values), [first])
    # As if many tasks had come and gone: the import counts up to the same number, in transactions
    # that nothing but their place in the chain protects from being applied twice.
    gap = f"{plan.path}/gap"
    zkplan_client.transport.ask(Multi([Create(gap), Delete(gap)] * 500))
    export_plan(plan, tmp_path / "plan")
    with Proxy(zookeeper_hosts, every(period)) as proxy:
        elsewhere.prepare()
        with zkplan.connect(proxy.hosts, root=elsewhere.root) as client:
            number = import_plan(client, tmp_path / "plan")
        assert len(proxy.lost) >= 2
    found = elsewhere.plan(number)
    assert facts(found) == facts(plan)
    assert [one.path for one in elsewhere.plans()] == [found.path]
    assert found.status().finished == 500


def test_commands_move_a_plan(
    run: Run, zkplan_client: Client, elsewhere: Client, there: Here, tmp_path: Path
) -> None:
    file = str(tmp_path / "plan")
    with zkplan_client.create_plan("nightly") as plan:
        task = plan.add_task(len, ["four"])
    code, _, said = run("plan", "export", "nightly", "--out", file)
    assert code == 2
    assert "--pause" in said
    code, out, said = run("plan", "export", "nightly", "--out", file, "--pause")
    assert code == 0
    assert "sha256" in out
    assert "stays paused here" in said
    # Every server counts its plans from the same number on: without these it may hit another plan.
    here = f"--hosts {zkplan_client.transport.hosts} --root {zkplan_client.root}"
    assert f"zkplan plan rm {int(plan.number)} {here}" in said
    code, out, said = run("plan", "import", file)
    assert code == 2
    assert "exists already" in said
    root = ("--root", elsewhere.root)
    code, out, said = run("plan", "import", file, *root)
    assert code == 0
    assert "paused" in out
    assert re.search(
        rf"zkplan plan resume \d+ --hosts \S+ --root {elsewhere.root}$", said, re.MULTILINE
    )
    code, out, said = run("plan", "import", file, "--copy", "--resume", *root)
    assert code == 0
    assert "running" in out
    with working(*there):
        assert elsewhere.plan("nightly").task(task.number).result(30) == 4
    os.unlink(file)
    code, _, said = run("plan", "export", "nightly", "--out", file, "--remove")
    assert code == 0
    assert said.endswith("removed\n")
    assert zkplan_client.plans() == []
