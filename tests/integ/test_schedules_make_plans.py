"""A schedule makes one plan for each due time, whichever worker fires it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import Here, Run, pass_gate, wait_until, working
from zkplan import Client, InvalidTask, ScheduleNotFound, Worker
from zkplan.schedules import Schedule

EACH_SECOND = "* * * * * *"
#: It is due once a year: not while the test runs.
RARELY = "0 3 29 2 *"


def build(path: str = "") -> str:
    """The task of each plan: adds the real one."""
    plan = zkplan.current().plan
    plan.add_task(pass_gate if path else int, [path] if path else [])
    return str(plan.due)


def plans_of(client: Client, name: str) -> list[zkplan.Plan]:
    return [plan for plan in client.plans() if plan.record.schedule == name]


def fired(schedule: Schedule, count: int) -> Callable[[], bool]:
    return lambda: len(schedule.info().fired) >= count


def test_each_due_time_has_one_plan_whose_builder_adds_tasks(
    zkplan_client: Client, here: Here
) -> None:
    schedule = zkplan_client.schedule(
        "tick", EACH_SECOND, build, timezone="Asia/Kathmandu", overlap="allow", catch_up="all"
    )
    with working(*here), working(*here):
        wait_until(fired(schedule, 3), "three due times are fired")
        schedule.pause()
        plans = plans_of(zkplan_client, "tick")
        for plan in plans:
            assert plan.wait(30).added == 2
    dues = [plan.due for plan in plans]
    assert all(due is not None for due in dues)
    assert dues == [dues[0] + timedelta(seconds=each) for each in range(len(dues))]  # type: ignore[operator]
    first = plans[0]
    assert first.record.key == f"tick@{dues[0].isoformat()}"  # type: ignore[union-attr]
    assert zkplan_client.plan(key=first.record.key).path == first.path
    assert next(first.outcomes()).name == "tick"
    info = schedule.info()
    assert [each.plan for each in info.fired] == [plan.number for plan in plans]
    assert all(each.when_ms >= each.due_ms for each in info.fired)
    assert info.paused
    assert info.next is None


def test_a_paused_schedule_makes_plans_only_when_triggered(
    zkplan_client: Client, worker: Worker
) -> None:
    schedule = zkplan_client.schedule("rare", RARELY, build)
    schedule.pause()
    plan = schedule.trigger()
    plan.wait(30)
    assert plans_of(zkplan_client, "rare")[0].path == plan.path
    schedule.resume()
    (due,) = schedule.next()
    assert (due.month, due.day, due.hour) == (2, 29, 3)
    assert [each.how for each in schedule.info().fired] == ["triggered"]


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel_previous"])
def test_overlap_decides_what_is_fired_while_a_plan_still_runs(
    overlap: Any, zkplan_client: Client, worker: Worker, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    schedule = zkplan_client.schedule(
        "slow", EACH_SECOND, build, [str(gate)], overlap=overlap, catch_up="all"
    )
    wait_until(lambda: plans_of(zkplan_client, "slow"), "the first is fired")
    first = plans_of(zkplan_client, "slow")[0]
    if overlap == "queue":
        wait_until(lambda: schedule.next()[0].timestamp() < time.time() - 1, "the next one waits")
        assert len(plans_of(zkplan_client, "slow")) == 1
        gate.touch()
        wait_until(lambda: len(plans_of(zkplan_client, "slow")) > 1, "it is fired in its turn")
        second = plans_of(zkplan_client, "slow")[1]
        assert second.due == (first.due or datetime.min) + timedelta(seconds=1)
    elif overlap == "skip":
        wait_until(fired(schedule, 2), "the next one is passed over")
        assert "skipped" in schedule.info().fired[1].how
        assert len(plans_of(zkplan_client, "slow")) == 1
    else:
        wait_until(lambda: first.status().state == "cancelled", "the first is cancelled")
        assert "due again" in first.status().reason
    schedule.remove()
    gate.touch()


def test_changing_a_schedule_keeps_its_due_time_and_its_fired_plans(zkplan_client: Client) -> None:
    first = zkplan_client.schedule("nightly", RARELY, build)
    first.trigger()
    due = first.next()
    changed = zkplan_client.schedule("nightly", RARELY, build, ["other"], overlap="queue")
    assert changed.next() == due
    assert changed.info().overlap == "queue"
    assert len(changed.info().fired) == 1
    assert zkplan_client.schedule("nightly", "@hourly", build).next() != due
    assert [each.name for each in zkplan_client.schedules()] == ["nightly"]


def test_commands_show_and_control_schedules(run: Run, zkplan_client: Client) -> None:
    added = run("schedule", "add", "nightly", RARELY, "operator:add", "--args", "[1, 2]")
    assert added.code == 0, added.err
    assert "nightly" in run("schedule", "ls").out
    assert run("schedule", "pause", "nightly").code == 0
    assert run("schedule", "ls", "-o", "json").data[0]["paused"] is True
    assert run("schedule", "resume", "nightly").code == 0
    number = run("schedule", "trigger", "nightly", "-o", "json").data["number"]
    shown = run("schedule", "show", "nightly", "-o", "json").data
    assert [each["plan"] for each in shown["fired"]] == [number]
    assert "triggered by hand" in run("schedule", "show", "nightly").out
    dues = run("schedule", "next", "nightly", "--count", "2", "-o", "json").data
    assert [each["due"][4:] for each in dues] == ["-02-29T03:00:00+00:00"] * 2
    assert run("schedule", "rm", "nightly").code == 0
    for words in ("show", "pause", "resume", "trigger", "next", "rm"):
        assert run("schedule", words, "nightly").code == 2
    assert run("schedule", "add", "x", RARELY, "operator:nothing").code == 2
    assert run("schedule", "add", "x", "99 * * * *", "operator:add").code == 2
    with pytest.raises(ScheduleNotFound):
        zkplan_client.find_schedule("nightly")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a/b"},
        {"name": ""},
        {"cron": "no"},
        {"timezone": "Mars/Base"},
        {"timezone": "localtime"},
        {"timezone": None},
        {"cron": None},
        {"overlap": "perhaps"},
        {"catch_up": "some"},
        {"jitter": -1},
        {"jitter": True},
        {"on_failure": "ask"},
        {"builder": 7},
        {"args": "text"},
    ],
)
def test_an_invalid_schedule_is_refused_before_anything_is_written(
    wrong: dict[str, Any], zkplan_client: Client
) -> None:
    given: dict[str, Any] = {"name": "x", "cron": RARELY, "builder": build, **wrong}
    with pytest.raises(InvalidTask):
        zkplan_client.schedule(**given)
    assert zkplan_client.schedules() == []


def test_a_damaged_schedule_does_not_stop_other_schedules(
    zkplan_client: Client, worker: Worker, znodes: Any
) -> None:
    zkplan_client.schedule("rare", RARELY, build)
    for name, data in (("broken", b"{"), ("odd", json.dumps({"name": "odd"}).encode())):
        znodes.create(f"{zkplan_client.root}/schedules/{name}", data)
    schedule = zkplan_client.schedule("tick", EACH_SECOND, build, overlap="allow")
    wait_until(fired(schedule, 1), "the other one is fired")
    schedule.remove()
