"""An access list shuts workers out of a task and is lifted: it is logged, and the task ends.

The worker that holds its claim lives on meanwhile, so nobody else may settle it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_acl, make_digest_acl

import zkplan
from tests.tools.support import Here, Told, WorkerProcess, note, notes, wait_until, working
from zkplan import Client
from zkplan.runtime import delays_and_deadlines as delays

OPERATOR = "operator:secret"
SHUT = [make_digest_acl(*OPERATOR.split(":"), all=True)]
READ_ONLY = [*SHUT, make_acl("world", "anyone", read=True)]
UNREADABLE = [*SHUT, make_acl("world", "anyone", create=True, write=True, delete=True)]
#: More than fit into one transaction.
WIDE = 1600

pytestmark = pytest.mark.usefixtures("worker")


@pytest.fixture
def shut(znodes: KazooClient) -> Iterator[Callable[[Sequence[ACL], str], None]]:
    """Gives a znode a list that only the operator can take back, which happens at the end too."""
    znodes.add_auth("digest", OPERATOR)
    changed: set[str] = set()

    def change(acl: Sequence[ACL], path: str) -> None:
        znodes.set_acls(path, acl)
        changed.add(path)

    yield change
    for path in changed:
        if znodes.exists(path):
            znodes.set_acls(path, OPEN_ACL_UNSAFE)


Shut = Callable[[Sequence[ACL], str], None]


def held(folder: Path, fails: bool = False) -> int:
    """Goes on when there is a file that says so."""
    note(folder / "began", "")
    wait_until((folder / "go").exists, "it may go on")
    if fails:
        raise ValueError("as it was told")
    return len(notes(folder / "began"))


def adding(folder: Path) -> int:
    began = held(folder)
    zkplan.current().plan.add_task(held, [folder])
    return began


def obedient(folder: Path) -> None:
    note(folder / "began", "")

    def never() -> bool:
        zkplan.current().check()
        return False

    wait_until(never, "it is told to end")


def under_way(folder: Path) -> bool:
    return bool(notes(folder / "began"))


@pytest.mark.parametrize("fails", [False, True])
def test_an_outcome_that_an_access_list_refuses_is_committed_once_it_may_be(
    fails: bool, zkplan_client: Client, tmp_path: Path, shut: Shut, told: Told
) -> None:
    """A result costs one attempt; of a failure the attempt has been used up already."""
    with zkplan_client.create_plan(attempts=1 if fails else 2) as plan:
        task = plan.add_task(held, [tmp_path, fails], keep=True)
    wait_until(lambda: under_way(tmp_path), "the task runs")
    shut(SHUT, task.path)
    (tmp_path / "go").touch()
    told(f"{task.path} stays claimed")
    shut(OPEN_ACL_UNSAFE, task.path)
    if fails:
        with pytest.raises(ValueError, match="as it was told"):
            task.result(30)
        assert len(notes(tmp_path / "began")) == 1
    else:
        assert task.result(30) == 2
        assert plan.wait(30).dead == 0


def test_a_history_that_was_protected_for_a_while_goes_on(
    zkplan_client: Client, tmp_path: Path, shut: Shut
) -> None:
    """What happens meanwhile can be neither recorded nor counted, and stops nothing."""
    with zkplan_client.create_plan() as plan:
        first = plan.add_task(held, [tmp_path], name="first", keep=True)
        last = plan.add_task(int, [first], name="last", keep=True)
    wait_until(lambda: under_way(tmp_path), "the task runs")
    plan.pause()
    for path in (f"{plan.path}/history", f"{plan.path}/history/untold"):
        shut(READ_ONLY, path)
    (tmp_path / "go").touch()
    assert first.result(30) == 1
    for path in (f"{plan.path}/history", f"{plan.path}/history/untold"):
        shut(OPEN_ACL_UNSAFE, path)
    plan.resume()
    assert last.result(30) == 1
    assert [event.name for event in plan.history() if event.kind == "committed"] == ["last"]


@pytest.mark.parametrize("tasks", [1, 3, 40])
def test_unreadable_tasks_run_once_each_after_they_become_readable(
    zkplan_client: Client, tmp_path: Path, shut: Shut, told: Told, tasks: int
) -> None:
    (tmp_path / "go").touch()
    plan = zkplan_client.create_plan()
    made = plan.add_tasks([zkplan.TaskSpec(held, (tmp_path,), keep=True)] * tasks)
    for task in made:
        shut(UNREADABLE, task.path)
    plan.mark_ready()
    for task in made:
        told(f"{task.path} cannot be read")
    for task in made:
        shut(OPEN_ACL_UNSAFE, task.path)
    plan.wait(30)
    assert len(notes(tmp_path / "began")) == tasks


def test_a_claim_that_could_not_be_handed_back_is_handed_back_once_it_may_be(
    zkplan_client: Client, tmp_path: Path, shut: Shut, told: Told
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(obedient, [tmp_path])
    wait_until(lambda: under_way(tmp_path), "the task runs")
    shut(SHUT, task.path)
    plan.cancel()
    told(f"a task stays claimed: ending a claim of {task.path}")
    shut(OPEN_ACL_UNSAFE, task.path)
    wait_until(lambda: plan.status().runnable == 1, "it is handed back")


def test_a_task_that_adds_to_an_unreadable_plan_fails_alone(
    zkplan_client: Client, tmp_path: Path, shut: Shut, worker: zkplan.Worker
) -> None:
    with zkplan_client.create_plan(attempts=2) as plan:
        task = plan.add_task(adding, [tmp_path], keep=True)
    wait_until(lambda: under_way(tmp_path), "the task runs")
    shut(UNREADABLE, plan.path)
    (tmp_path / "go").touch()
    wait_until(lambda: worker.statistics().failed, "its result is refused")
    shut(OPEN_ACL_UNSAFE, plan.path)
    assert task.result(30) == 2
    assert plan.wait(30).dead == 0
    assert len(notes(tmp_path / "began")) == 3


@pytest.mark.parametrize(
    "acl", [UNREADABLE, SHUT, READ_ONLY], ids=["unreadable", "shut", "read only"]
)
def test_a_wide_delivery_that_an_access_list_refuses_fails_alone(
    zkplan_client: Client, tmp_path: Path, shut: Shut, worker: zkplan.Worker, acl: list[ACL]
) -> None:
    plan = zkplan_client.create_plan(attempts=2)
    first = plan.add_task(held, [tmp_path])
    others = plan.add_tasks([zkplan.TaskSpec(int, (first,))] * WIDE)
    last = plan.add_task(int, [first], keep=True)
    plan.mark_ready()
    wait_until(lambda: under_way(tmp_path), "the task runs")
    shut(acl, first.path)
    shut(SHUT, last.path)
    (tmp_path / "go").touch()
    wait_until(lambda: worker.statistics().failed, "its delivery is refused")
    shut(OPEN_ACL_UNSAFE, last.path)
    shut(OPEN_ACL_UNSAFE, first.path)
    assert plan.wait(60).dead == 0
    # Where its result was kept from being fixed it had to run again.
    assert last.result(30) == (1 if acl is UNREADABLE else 2)
    assert len(others) == WIDE


def test_a_claims_node_is_cleared_except_for_claims_an_access_list_protects(
    here: Here, zkplan_client: Client, tmp_path: Path, shut: Shut, worker: zkplan.Worker, told: Told
) -> None:
    """A claim deleted without an entry in its place would be a task lost for ever."""
    worker.stop(0)
    plans = [zkplan_client.create_plan(attempts=3) for _ in range(2)]
    tasks = [plan.add_task(held, [tmp_path], keep=True) for plan in plans]
    for plan in plans:
        plan.mark_ready()
    options = ("--session-timeout", "2")
    with WorkerProcess(*here, tmp_path / "gone", *options) as gone:
        wait_until(lambda: len(notes(tmp_path / "began")) == 2, "both run")
        shut(SHUT, tasks[0].path)
        gone.process.send(signal.SIGKILL)
    (tmp_path / "go").touch()
    with working(*here):
        assert tasks[1].result(30) == 3
        told("cannot be cleared: ")
        shut(OPEN_ACL_UNSAFE, tasks[0].path)
        assert tasks[0].result(30) == 4
        assert [plan.wait(30).dead for plan in plans] == [0, 0]


def test_a_start_that_may_not_be_recorded_costs_no_attempt_and_loses_no_task(
    zkplan_client: Client, tmp_path: Path, shut: Shut, told: Told
) -> None:
    """It is noted of tasks whose earlier claim ended without an outcome; these start in turn."""
    raw = zkplan_client.transport.client
    plan = zkplan_client.create_plan(attempts=1)
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    tasks = [plan.add_task(held, [folder], keep=True) for folder in folders]
    for entry in raw.get_children(f"{plan.path}/runnable"):
        raw.create(f"{plan.path}/runnable/{entry.removesuffix('.0.0')}.1.0")
        raw.delete(f"{plan.path}/runnable/{entry}")
    plan.mark_ready()
    wait_until(lambda: all(raw.exists(f"{task.path}/owner") for task in tasks), "both are claimed")
    wait_until(lambda: any(under_way(folder) for folder in folders), "one runs")
    first = 0 if under_way(folders[0]) else 1
    waiting = tasks[1 - first]
    shut(SHUT, waiting.path)
    (folders[first] / "go").touch()
    assert tasks[first].result(30) == 1
    told(waiting.path)
    shut(OPEN_ACL_UNSAFE, waiting.path)
    (folders[1 - first] / "go").touch()
    assert waiting.result(30) == 1
    assert plan.wait(30).dead == 0


def test_an_argument_that_may_not_be_read_costs_no_attempt(
    zkplan_client: Client, tmp_path: Path, shut: Shut, told: Told
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        first = plan.add_task(held, [tmp_path])
        second = plan.add_task(str, [first], keep=True)
        third = plan.add_task(held, [tmp_path])
        last = plan.add_task(max, [first, third], keep=True)
    wait_until(lambda: len(notes(tmp_path / "began")) == 2, "both run")
    plan.pause()
    (tmp_path / "go").touch()
    argument = f"{second.path}/arg-0000000000"
    raw = zkplan_client.transport.client
    wait_until(lambda: raw.exists(argument) and raw.exists(f"{last.path}/arg-0000000001"), "done")
    shut(SHUT, argument)
    plan.resume()
    told(f"{second.path} cannot be read")
    shut(OPEN_ACL_UNSAFE, argument)
    assert second.result(30) == "2"
    assert plan.wait(30).dead == 0


def test_a_stopping_worker_does_not_wait_for_tasks_it_cannot_read(
    zkplan_client: Client, tmp_path: Path, shut: Shut, worker: zkplan.Worker, told: Told
) -> None:
    (tmp_path / "go").touch()
    plan = zkplan_client.create_plan()
    task = plan.add_task(held, [tmp_path])
    shut(UNREADABLE, task.path)
    plan.mark_ready()
    told(f"{task.path} cannot be read")
    worker.stop(600)
    assert not zkplan_client.workers()


def test_an_unreadable_claims_node_loses_no_claim(
    zkplan_client: Client, tmp_path: Path, shut: Shut, told: Told
) -> None:
    (tmp_path / "go").touch()
    raw = zkplan_client.transport.client
    (name,) = raw.get_children(zkplan_client.paths.claims)
    claims_node = zkplan_client.paths.claims_of(name)
    shut(UNREADABLE, claims_node)
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(held, [tmp_path], keep=True)
    told(f"{task.path} cannot be read")
    shut(OPEN_ACL_UNSAFE, claims_node)
    assert task.result(30) == 1


def test_a_delayed_entry_that_may_not_be_moved_does_not_delay_others(
    here: Here,
    zkplan_client: Client,
    tmp_path: Path,
    shut: Shut,
    worker: zkplan.Worker,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both have been due for long, so that the next worker moves them together."""
    monkeypatch.setattr(delays, "DELAYED_PERIOD_S", 0.2)
    worker.stop(0)
    (tmp_path / "go").touch()
    raw = zkplan_client.transport.client
    plans = [zkplan_client.create_plan() for _ in range(2)]
    tasks = [plan.add_task(held, [tmp_path], keep=True) for plan in plans]
    for plan in plans:
        plan.mark_ready()
        (entry,) = raw.get_children(f"{plan.path}/runnable")
        raw.create(f"{zkplan_client.root}/delayed/{1:013d}-{plan.path[-10:]}-{entry}")
        raw.delete(f"{plan.path}/runnable/{entry}")
    shut(READ_ONLY, f"{plans[0].path}/runnable")
    with working(*here):
        assert tasks[1].result(30) == 1
        told(f"{zkplan_client.root}/delayed/{1:013d}")
        shut(OPEN_ACL_UNSAFE, f"{plans[0].path}/runnable")
        assert tasks[0].result(30) == 2


def test_znodes_that_somebody_locks_hide_no_other_plan_and_end_no_worker(
    zkplan_client: Client, tmp_path: Path, shut: Shut
) -> None:
    (tmp_path / "go").touch()
    raw = zkplan_client.transport.client
    far = f"{zkplan_client.root}/delayed/9999999999999-0000099999-5000-0000000777.0.0"
    raw.create(far)
    shut(SHUT, far)
    closed = zkplan_client.create_plan()
    closed.mark_ready()
    shut(SHUT, closed.path)
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(held, [tmp_path], keep=True)
    assert task.result(30) == 1
    assert [found.path for found in zkplan_client.plans()] == [plan.path]
