"""An access list shuts workers out of a task and is taken back: told once, and the task ends.

The worker that holds its claim lives on meanwhile, so nobody else may settle it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_acl, make_digest_acl

import zkplan
from zkplan import Client

from .support import note, notes, wait_until

OPERATOR = "operator:secret"
SHUT = [make_digest_acl(*OPERATOR.split(":"), all=True)]
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


def test_a_result_that_is_shut_out_costs_one_attempt(
    zkplan_client: Client, tmp_path: Path, shut: Shut, caplog: pytest.LogCaptureFixture
) -> None:
    with zkplan_client.create_plan(attempts=2) as plan:
        task = plan.add_task(held, [tmp_path], keep=True)
    wait_until(lambda: under_way(tmp_path), "the task runs")
    shut(SHUT, task.path)
    (tmp_path / "go").touch()
    wait_until(lambda: f"{task.path} stays claimed" in caplog.text, "it is told")
    shut(OPEN_ACL_UNSAFE, task.path)
    assert task.result(30) == 2
    assert plan.wait(30).dead == 0


def test_a_failure_that_is_shut_out_is_told_when_it_can_be(
    zkplan_client: Client, tmp_path: Path, shut: Shut, caplog: pytest.LogCaptureFixture
) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        task = plan.add_task(held, [tmp_path, True])
    wait_until(lambda: under_way(tmp_path), "the task runs")
    shut(SHUT, task.path)
    (tmp_path / "go").touch()
    wait_until(lambda: f"{task.path} stays claimed" in caplog.text, "it is told")
    shut(OPEN_ACL_UNSAFE, task.path)
    with pytest.raises(ValueError, match="as it was told"):
        task.result(30)
    assert len(notes(tmp_path / "began")) == 1


@pytest.mark.parametrize("tasks", [1, 3, 40])
def test_tasks_that_could_not_be_read_run_once_when_they_can(
    zkplan_client: Client, tmp_path: Path, shut: Shut, caplog: pytest.LogCaptureFixture, tasks: int
) -> None:
    (tmp_path / "go").touch()
    plan = zkplan_client.create_plan()
    made = plan.add_tasks([zkplan.TaskSpec(held, (tmp_path,), keep=True)] * tasks)
    for task in made:
        shut(UNREADABLE, task.path)
    plan.mark_ready()
    paths = [task.path for task in made]
    wait_until(lambda: all(f"{path} cannot be read" in caplog.text for path in paths), "it is told")
    for task in made:
        shut(OPEN_ACL_UNSAFE, task.path)
    plan.wait(30)
    assert len(notes(tmp_path / "began")) == tasks


def test_a_claim_that_could_not_be_handed_back_is_when_it_can(
    zkplan_client: Client, tmp_path: Path, shut: Shut, caplog: pytest.LogCaptureFixture
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(obedient, [tmp_path])
    wait_until(lambda: under_way(tmp_path), "the task runs")
    shut(SHUT, task.path)
    plan.cancel()
    wait_until(lambda: f"a task stays claimed: {task.path}" in caplog.text, "it is told")
    shut(OPEN_ACL_UNSAFE, task.path)
    wait_until(lambda: plan.status().runnable == 1, "it is handed back")


def test_a_task_that_adds_tasks_to_a_plan_that_it_may_not_read_fails_alone(
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


def test_a_wide_delivery_that_may_not_be_read_again_fails_alone(
    zkplan_client: Client, tmp_path: Path, shut: Shut, worker: zkplan.Worker
) -> None:
    plan = zkplan_client.create_plan(attempts=2)
    first = plan.add_task(held, [tmp_path])
    others = plan.add_tasks([zkplan.TaskSpec(int, (first,))] * WIDE)
    last = plan.add_task(int, [first], keep=True)
    plan.mark_ready()
    wait_until(lambda: under_way(tmp_path), "the task runs")
    shut(UNREADABLE, first.path)
    shut(SHUT, last.path)
    (tmp_path / "go").touch()
    wait_until(lambda: worker.statistics().failed, "its delivery is refused")
    shut(OPEN_ACL_UNSAFE, last.path)
    shut(OPEN_ACL_UNSAFE, first.path)
    assert plan.wait(60).dead == 0
    assert last.result(30) == 1
    assert len(others) == WIDE
