"""A transaction whose answer is lost is applied once: no add and no result is doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import Here, note, notes, pass_gate, run_noted, working
from zkplan import Client, Plan, Task, TaskSpec

from .proxy import Loss, Proxy, every

pytestmark = pytest.mark.usefixtures("nothing_stalls")
MakeProxy: TypeAlias = Callable[[Callable[[int], Loss | None]], Proxy]


@pytest.fixture
def proxied(zookeeper_hosts: str) -> Iterator[MakeProxy]:
    """Makes proxies before the ZooKeeper of the tests."""
    with ExitStack() as stack:
        yield lambda loss: stack.enter_context(Proxy(zookeeper_hosts, loss))


@pytest.mark.parametrize("kind", ["answer", "request"])
@pytest.mark.parametrize("lost", [1, 2, 3, 4, 5])
def test_each_transaction_of_an_author_may_lose_its_answer(
    lost: int, kind: Loss, proxied: MakeProxy, zkplan_client: Client, znodes: KazooClient
) -> None:
    """Creating the plan, two adds, marking ready: each is sent again and applied once."""
    zkplan_client.prepare()
    proxy = proxied(lambda number: kind if number == lost else None)
    with zkplan.connect(proxy.hosts, root=zkplan_client.root) as client:
        plan = client.create_plan("once")
        first = plan.add_task(lambda: 1)
        plan.add_tasks([TaskSpec(lambda x: x, [first]) for _ in range(2)])
        plan.mark_ready()
        plan.pause()
    assert proxy.lost == [kind]
    assert len(zkplan_client.plans()) == 1
    children = znodes.get_children(plan.path)
    assert sum(name.startswith("task-") for name in children) == 3
    assert len(znodes.get_children(f"{plan.path}/runnable")) == 1
    assert len(znodes.get_children(first.path)) == 3  # `ready` and two edges
    assert zkplan_client.plan("once").status().state == "paused"


def test_a_repeated_add_finds_that_its_task_has_already_finished(
    proxied: MakeProxy, here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    """The task is done before the author learns of its add; it must not come back."""
    file, gate = tmp_path / "ran", tmp_path / "gate"
    proxy = proxied(every(2, ("answer",)))
    with (
        working(*here),
        zkplan.connect(proxy.hosts, root=zkplan_client.root) as client,
    ):
        plan = client.create_plan()
        plan.add_task(pass_gate, [str(gate)])  # the plan must not drain before the last add
        plan.mark_ready()
        for number in range(10):
            plan.add_task(run_noted, [str(file), f"{number}"])
        gate.touch()
        status = zkplan_client.plan(plan.path).wait(30)
    assert len(proxy.lost) >= 5
    assert sorted(notes(file)) == [f"{number} 0" for number in range(10)]
    assert status.added == 11


def test_a_thousand_adds_in_flight_survive_broken_connections(
    proxied: MakeProxy, zkplan_client: Client
) -> None:
    """Several batches are under way when the connection breaks, and each predicts the next."""
    proxy = proxied(every(5))
    with zkplan.connect(proxy.hosts, root=zkplan_client.root) as client:
        plan = client.create_plan()
        tasks = []
        for start in range(0, 1200, 400):
            specs = [TaskSpec(int, [start + i]) for i in range(400)]
            for i, spec in enumerate(specs[1:], 1):
                if i % 3 == 0:
                    spec.args = [specs[i - 1]]
            tasks += plan.add_tasks(specs)
    assert len(proxy.lost) >= 3
    numbers = [int(task.number) for task in tasks]
    assert numbers == sorted(set(numbers))
    status = zkplan_client.plan(plan.path).status()
    assert (status.added, status.tasks) == (1200, 1200)
    assert status.runnable == 1200 - 3 * 133


@pytest.mark.parametrize("kinds", [("answer",), ("request",), ("answer", "request")])
def test_a_worker_whose_answers_are_lost_commits_each_task_once(
    kinds: tuple[Loss, ...], proxied: MakeProxy, zkplan_client: Client, tmp_path: Path
) -> None:
    """Registration, claims, commits, publications, all of them lose answers now and then."""
    file = tmp_path / "ran"
    with zkplan_client.create_plan() as plan:
        rows = [[plan.add_task(run_noted, [str(file), f"0.{i}"]) for i in range(8)]]
        for level in range(1, 6):
            above = rows[-1]
            rows.append(
                [
                    plan.add_task(
                        run_noted, [str(file), f"{level}.{i}", above[i], above[(i + 3) % 8]]
                    )
                    for i in range(8)
                ]
            )
        end = plan.add_task(lambda *names: sorted(names), rows[-1])
    proxy = proxied(every(4, kinds))
    with working(proxy.hosts, zkplan_client.root, session_timeout=10.0) as worker:
        assert end.result(60) == [f"5.{i}" for i in range(8)]
        assert plan.wait(30).finished == 49
    # No claim was lost, only answers: each task ran once, under its first number.
    assert sorted(notes(file)) == sorted(f"{level}.{i} 0" for level in range(6) for i in range(8))
    assert len(proxy.lost) >= 3
    assert worker.statistics().executed == 49


def add_chain(plan: Plan, file: str) -> list[str]:
    """Each task is claimed by the commit of the one before it."""
    last: list[Task] = []
    for number in range(30):
        last = [plan.add_task(run_noted, [file, str(number), *last])]
    return [f"{number} 0" for number in range(30)]


def add_wide_delivery(plan: Plan, file: str) -> list[str]:
    source = plan.add_task(lambda: b"x" * 60_000)
    readers = [
        plan.add_task(lambda data, i: note(file, f"{i} {len(data)}"), [source, i])
        for i in range(60)
    ]
    plan.add_task(lambda *_: note(file, "end"), readers)
    return sorted([*(f"{i} 60000" for i in range(60)), "end"])


def add_failing_authors(plan: Plan, file: str) -> list[str]:
    """Each adds two tasks, and only its second attempt succeeds."""

    def author(name: str) -> None:
        here = zkplan.current()
        for number in range(2):
            here.plan.add_task(run_noted, [file, f"{name}.{number}"])
        if len(here.logs) < 1:
            here.log("tried")
            raise ValueError

    for number in range(8):
        plan.add_task(author, [str(number)])
    return sorted(f"{n}.{i} 0" for n in range(8) for i in range(2))


@pytest.mark.parametrize("add", [add_chain, add_wide_delivery, add_failing_authors])
def test_everything_is_applied_once_over_a_bad_connection(
    add: Callable[[Plan, str], list[str]],
    proxied: MakeProxy,
    zkplan_client: Client,
    tmp_path: Path,
) -> None:
    file = tmp_path / "ran"
    with zkplan_client.create_plan(attempts=3, retry_delay=0) as plan:
        expected = add(plan, str(file))
    proxy = proxied(every(3))
    with working(proxy.hosts, zkplan_client.root, session_timeout=10.0):
        status = plan.wait(60)
    assert (status.finished, status.dead) == (status.added, 0)
    ran = notes(file)
    assert (ran if add is add_chain else sorted(ran)) == expected


def test_a_waiter_goes_on_when_its_connection_breaks(
    proxied: MakeProxy, here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with zkplan_client.create_plan("watched") as plan:
        task = plan.add_task(pass_gate, [str(gate)])
    proxy = proxied(lambda _: None)
    with (
        working(*here),
        zkplan.connect(proxy.hosts, root=zkplan_client.root) as client,
    ):
        watched = client.plan("watched")
        with pytest.raises(zkplan.WaitTimeout):
            watched.wait(0.1)
        proxy.cut()
        gate.touch()
        assert watched.task(task.number).result(30) == "open"
        assert watched.wait(30).finished == 1


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("left out", id="leaves_out"),
        pytest.param("stumbled", id="stumbles"),
        pytest.param("session over", id="ends_a_session"),
        pytest.param("session moved", id="has_moved_a_session"),
        pytest.param("no leader", id="has_no_leader"),
    ],
)
def test_a_worker_goes_on_after_bad_answers_of_a_server(
    kind: Loss, proxied: MakeProxy, zkplan_client: Client, zookeeper_hosts: str, tmp_path: Path
) -> None:
    """As a member of an ensemble that has lost its leader: the next answer has another number.

    Or as a leader that could not prepare a transaction just then: MarshallingError. Or as one that
    was about to end the session, or takes it for another server's: the first operation is refused
    for that, as for its znode. Or as ClickHouse Keeper without a leader.
    """
    file = tmp_path / "ran"
    zkplan_client.prepare()
    # Two slots have fewer than 7 requests in transit, so a repeated one is not lost for ever.
    proxy = proxied(every(7, (kind,)))
    with zkplan_client.create_plan("answered badly") as plan:
        plan.add_tasks([TaskSpec(run_noted, [str(file), f"{number}"]) for number in range(60)])
    with working(proxy.hosts, zkplan_client.root, threads=2, session_timeout=5.0):
        assert plan.wait(60).state == "done"
    assert proxy.lost
    assert sorted(notes(file)) == sorted(f"{number} 0" for number in range(60))


def test_a_request_fails_if_the_server_answers_it_with_an_error_every_time(
    proxied: MakeProxy, zkplan_client: Client
) -> None:
    zkplan_client.prepare()
    proxy = proxied(every(1, ("stumbled",)))
    told = pytest.raises(zkplan.ZooKeeperError, match="ZooKeeper answered MarshallingError")
    with zkplan.connect(proxy.hosts, root=zkplan_client.root) as client, told:
        client.create_plan("never")
    assert len(proxy.lost) == 4


def test_a_transaction_sent_as_its_session_expires_costs_no_attempt(
    proxied: MakeProxy, zkplan_client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes out again in the next session, whose worker is another one."""
    caplog.set_level("INFO", "zkplan.worker")
    file = tmp_path / "ran"
    zkplan_client.prepare()
    proxy = proxied(every(9, ("session over",)))
    proxy.ends_sessions = True
    with zkplan_client.create_plan("expires", attempts=5) as plan:
        plan.add_tasks([TaskSpec(run_noted, [str(file), f"{number}"]) for number in range(60)])
    with working(proxy.hosts, zkplan_client.root, threads=2, session_timeout=5.0):
        status = plan.wait(90)
    assert "its session expired; registering again" in caplog.text
    assert "attempts used)" not in caplog.text
    assert (status.finished, status.dead) == (60, 0)
    assert {name.split()[0] for name in notes(file)} == {str(number) for number in range(60)}
