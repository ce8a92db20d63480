"""`zkplan plan check` with keys names each znode of a plan that was not sealed for its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import Here, Run, fail, key_file, secret_of, wait_until, working
from zkplan import Client, Plan, Task
from zkplan.values import check_seals as unsealed

WAIT_S = 30.0


@pytest.fixture
def sealing(here: Here) -> Iterator[Client]:
    with zkplan.connect(*here, secret=secret_of("ours")) as client:
        yield client


def log_once() -> int:
    zkplan.current().log("begun")
    return 1


def swap(znodes: KazooClient, one: str, other: str) -> None:
    mine, theirs = znodes.get(one)[0], znodes.get(other)[0]
    znodes.set(one, theirs)
    znodes.set(other, mine)


def edge(znodes: KazooClient, task: Task) -> str:
    (name,) = (each for each in znodes.get_children(task.path) if each.startswith("prov-"))
    return f"{task.path}/{name}"


def plan_of_every_kind(client: Client, here: Here) -> tuple[Plan, list[Task], list[Task]]:
    """A paused plan with results, a dead letter, arguments and edges: two tasks with results, and
    two pairs of which one waits for the other."""
    with client.create_plan("all", key="all", max_running=3) as plan:
        kept = [plan.add_task(int, [n], keep=True, key=f"k{n}") for n in (1, 2)]
        plan.add_task(log_once, queue="other")
        plan.add_task(fail, attempts=1)
    with working(*here, secret=secret_of("ours"), of_worker={"queues": ["default", "other"]}):
        assert [task.result(WAIT_S) for task in kept] == [1, 2]
        wait_until(lambda: plan.status().dead and plan.status().tasks == 1, "one is dead")
    plan.pause()
    pairs = []
    for task in kept:
        first = plan.add_task(str, [task])
        pairs += [first, plan.add_task(len, [first], run_if="all_finished")]
    plan.add_task(zkplan.when("/never"))
    return plan, kept, pairs


Attack = Callable[[Plan, list[Task], list[Task], KazooClient], list[str]]


def attacks() -> dict[str, Attack]:
    def swapped(*of: Callable[[list[Task], list[Task], KazooClient], str]) -> Attack:
        def attack(_: Plan, kept: list[Task], pairs: list[Task], znodes: KazooClient) -> list[str]:
            paths = [each(kept, pairs, znodes) for each in of]
            swap(znodes, *paths)
            return paths

        return attack

    def written(name: Callable[[Plan, list[Task]], str], data: bytes) -> Attack:
        def attack(plan: Plan, kept: list[Task], _: list[Task], znodes: KazooClient) -> list[str]:
            path = f"{plan.path}/{name(plan, kept)}"
            znodes.ensure_path(path)
            znodes.set(path, data)
            return [path]

        return attack

    def dead_letter(plan: Plan, *more: Any) -> list[str]:
        path = f"dead/{next(plan.dead())[0]}"
        result = f"{plan.path}/results/{path[-10:]}"  # it counts beside its dead letter alone
        return [*written(lambda *_: path, b'{"n":0}')(plan, *more), result]

    return {
        "edges": swapped(lambda k, p, z: edge(z, p[0]), lambda k, p, z: edge(z, p[2])),
        "arguments": swapped(
            lambda k, p, z: f"{p[0].path}/arg-0000000000",
            lambda k, p, z: f"{p[2].path}/arg-0000000000",
        ),
        "definitions": swapped(lambda k, p, z: p[0].path, lambda k, p, z: p[1].path),
        "a result": written(lambda plan, kept: f"results/{kept[0].number}", b"e3V" + bytes(20)),
        "a dead letter": dead_letter,
        "the state": written(lambda *_: "ready", b'{"state":"running"}'),
        "an end": written(lambda *_: "done", b'{"when":1.0,"failed":0}'),
    }  # fmt: skip


@pytest.mark.parametrize("what", attacks())
def test_a_check_names_each_moved_or_forged_znode(
    what: str,
    sealing: Client,
    here: Here,
    znodes: KazooClient,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan, kept, pairs = plan_of_every_kind(sealing, here)
    assert plan.check().problems == []
    moved = attacks()[what](plan, kept, pairs, znodes)
    monkeypatch.setenv("ZKPLAN_SECRET_FILES", str(key_file(tmp_path, "ours")))
    said = run("plan", "check", plan.number, "--output", "json")
    assert said.code == 1
    problems = said.data["problems"]
    assert sorted(each.partition(" is not used: ")[0] for each in problems) == sorted(moved)
    assert all("delete it" in each or "create it anew" in each for each in problems)
    assert "is not used" not in caplog.text, "it is told once"
    # A forged end does not hide the rest, and takes the plan from no worker.
    assert znodes.exists(f"{sealing.root}/active/{plan.number}")


def test_a_check_of_a_sound_plan_finds_nothing_at_any_time(
    sealing: Client, here: Here, znodes: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = sealing.create_plan()
    draft.add_task(int)
    assert draft.check().problems == []
    plan, kept, _ = plan_of_every_kind(sealing, here)
    monkeypatch.setattr(unsealed, "LISTED_PER_BATCH", 2)
    monkeypatch.setattr(unsealed, "READS_MAX", 3)
    assert plan.check().problems == []
    with sealing.create_plan() as ended:
        ended.add_task(int, keep=True)
    with working(*here, secret=secret_of("ours")):
        ended.wait(WAIT_S)
    assert ended.check().problems == []
    plan.cancel()
    assert plan.check().problems == []
    # The check also reads the kept results of an ended plan.
    znodes.set(f"{plan.path}/results/{kept[0].number}", b"forged")
    assert len(plan.check().problems) == 1


def test_a_check_with_another_key_stops_early_and_asks_for_the_key_file(
    sealing: Client, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsealed, "PROBLEMS_MAX", 2)
    plan = sealing.create_plan()
    plan.add_tasks([zkplan.TaskSpec(int)] * 3)
    with zkplan.connect(*here, secret=secret_of("theirs")) as other:
        problems = other.plan(plan.path).check(repair=False).problems
    assert len(problems) == 3
    assert "give the file with that key (secret-files)" in problems[0]
    assert "there may be more" in problems[2]


def test_a_check_with_another_key_reports_each_problem_once(
    sealing: Client,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = sealing.create_plan()
    plan.add_tasks([zkplan.TaskSpec(int)] * 3)
    monkeypatch.setenv("ZKPLAN_SECRET_FILES", str(key_file(tmp_path, "theirs")))
    said = run("plan", "check", plan.number, "--output", "json")
    paths = [each.partition(" is not used: ")[0] for each in said.data["problems"]]
    assert len(paths) == len(set(paths)) > 3
    assert "is not used" not in caplog.text
