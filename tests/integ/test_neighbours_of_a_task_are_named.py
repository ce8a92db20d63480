"""A task is shown with its dependencies, its dependents and its due time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.tools.support import described, fail, wait_for_delayed, wait_until
from zkplan import Client, Plan, Task, TaskSpec
from zkplan.protocol.requests import ReadMany
from zkplan.views.dependencies import NAMED, dependencies


def join(*values: Any) -> int:
    return len(values)


def fan_in(plan: Plan, width: int) -> tuple[list[Task], Task]:
    sources = plan.add_tasks([TaskSpec(int, name=f"source {n}") for n in range(width)])
    return sources, plan.add_task(join, sources, name="join")


def test_dependencies_of_a_waiting_task_are_named_with_their_state(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    sources, joined = fan_in(plan, 3)
    last = plan.add_task(str, [joined])
    shown = described(joined)
    assert sorted(shown["waits_for"].splitlines()) == [
        f"task-{source.number} source {n} runnable" for n, source in enumerate(sources)
    ]
    assert shown["feeds"] == f"task-{last.number} str waiting"
    assert shown["arrived"] == 0
    told = described(joined, people=False)
    assert (told["waits_for_count"], told["feeds_count"]) == (3, 1)
    assert {"number": sources[1].number, "name": "source 1", "state": "runnable"} in told[
        "waits_for"
    ]
    assert told["feeds"] == [{"number": last.number, "name": "str", "state": "waiting"}]
    assert described(last)["waits_for"] == f"task-{joined.number} join waiting"


def test_the_first_of_many_neighbours_are_named_and_all_are_counted(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    source = plan.add_task(int, name="source")
    plan.add_tasks([TaskSpec(str, [source], name=f"fed {n}") for n in range(NAMED + 5)])
    wide = fan_in(plan, 2 * 600 + 100)[1]  # defined in several transactions
    for task, side, count in ((source, "feeds", NAMED + 5), (wide, "waits_for", 1300)):
        lines = described(task)[side].splitlines()
        assert len(lines) == NAMED + 1
        assert lines[-1] == f"… and {count - NAMED:,} more"
        told = described(task, people=False)
        assert (len(told[side]), told[f"{side}_count"]) == (NAMED, count)


@pytest.mark.usefixtures("worker")
def test_a_dead_dependency_is_named_first(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        arrives = plan.add_task(int, name="arrives")
        dies = plan.add_task(fail, name="dies", attempts=1)
        late = [plan.add_task(fail, name=f"late {n}", retry_delay=3600) for n in range(NAMED + 10)]
        joined = plan.add_task(join, [arrives, dies, *late], name="join")
    wait_until(lambda: plan.status().dead, "one is dead")
    wait_for_delayed(zkplan_client, len(late))
    wait_until(lambda: described(joined)["arrived"] == 1, "one has arrived")
    lines = described(joined)["waits_for"].splitlines()
    assert lines[0] == f"task-{dies.number} dies dead"
    number = late[-1].number
    assert lines[1].startswith(f"task-{number} late {NAMED + 9} delayed (due 20")
    assert lines[-1] == "… and 11 more"
    told = described(joined, people=False)["waits_for"]
    assert datetime.fromisoformat(told[1]["due"]).tzinfo is not None


@pytest.mark.usefixtures("worker")
def test_a_delayed_task_says_when_it_is_due(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(fail, retry_delay=3600)
        other = plan.add_task(str, [task])
    wait_for_delayed(zkplan_client, 1)
    found, waits = plan.tasks()
    assert (found.state, waits.due) == ("delayed", None)
    assert "due" not in described(other)
    assert found.due is not None
    # The delay is less up to 30 % by chance.
    left_s = found.due - datetime.now().timestamp()
    assert 2000 < left_s <= 3600
    due = datetime.fromtimestamp(found.due).isoformat(" ", "seconds")
    assert described(task)["due"].startswith(f"{due} (in ")
    told = datetime.fromisoformat(described(task, people=False)["due"])
    assert told.timestamp() == int(found.due)


def test_naming_the_dependencies_of_a_task_reads_only_those(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all tasks of the plan: of a hundred thousand that took as many reads."""
    plan = zkplan_client.create_plan()
    source = plan.add_task(int, name="far away")
    plan.add_tasks([TaskSpec(int) for _ in range(200)])
    last = plan.add_task(str, [source])
    asked: list[Any] = []
    submit = zkplan_client.transport.submit

    def count(request: Any, done: Any) -> Any:
        asked.extend(request.reads if isinstance(request, ReadMany) else [request])
        return submit(request, done)

    monkeypatch.setattr(zkplan_client.transport, "submit", count)
    found = dependencies(zkplan_client.transport, plan.path, last.number, ["dep-0000000000"])
    assert found == ([source.number], 0, "")
    assert len(asked) == 3


def test_an_edge_to_a_missing_task_is_reported(zkplan_client: Client, znodes: KazooClient) -> None:
    plan = zkplan_client.create_plan()
    (kept, lost), joined = fan_in(plan, 2)
    (prov,) = (name for name in znodes.get_children(lost.path) if name.startswith("prov-"))
    znodes.set(f"{lost.path}/{prov}", b"not an edge")
    assert described(lost)["feeds"] == ""
    znodes.delete(lost.path, recursive=True)
    assert described(joined)["waits_for"].splitlines() == [
        f"task-{kept.number} source 0 runnable",
        "… and 1 more, whose task does not exist",
    ]


def test_an_edge_that_names_no_task_is_shown_as_unknown(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    first, second, later = plan.add_tasks([TaskSpec(join), TaskSpec(int), TaskSpec(int)])
    for place, data in enumerate((b"", second.number.encode(), b"\xff", later.number.encode())):
        znodes.create(f"{first.path}/dep-{place:010d}", data)
    assert described(first)["waits_for"].splitlines() == [
        f"task-{second.number} int runnable",
        f"task-{later.number} int runnable",
        "… and 2 more, unknown: somebody changed the edge by hand",
    ]
    assert described(first, people=False)["waits_for_count"] == 4


def test_a_result_delivered_during_the_read_is_not_listed_as_awaited(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    (_, ended), joined = fan_in(plan, 2)
    znodes.delete(ended.path, recursive=True)
    znodes.delete(f"{joined.path}/dep-0000000001")
    deps = ["dep-0000000000", "dep-0000000001"]
    found = dependencies(zkplan_client.transport, plan.path, joined.number, deps)
    assert (len(found.tasks), found.more, found.why) == (1, 0, "")
