"""A key names one plan at a time, and the key of a task one task of its plan."""

from __future__ import annotations

import json
import operator
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import Here, Run, expire, plain_client, wait_until
from zkplan import (
    Client,
    InvalidTask,
    Plan,
    PlanCancelled,
    PlanError,
    PlanExists,
    PlanNotFound,
    Worker,
)

from .serving import serving

KEY = "report-2026-11-23"


def add_both(plan: Plan) -> list[str]:
    total = plan.add_task(operator.add, [1, 2], key="total")
    return [total.number, plan.add_task(operator.neg, [total], key="negated").number]


def test_concurrent_authors_make_one_plan_with_each_task_once(
    zkplan_client: Client, worker: Worker
) -> None:
    plans: list[Plan] = []
    numbers: list[list[str]] = []

    def author() -> None:
        with zkplan_client.create_plan("report", key=KEY) as plan:
            plans.append(plan)
            numbers.append(add_both(plan))

    threads = [threading.Thread(target=author) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({plan.path for plan in plans}) == 1
    assert [plan.is_new for plan in plans].count(True) == 1
    assert len(numbers) == 4
    assert all(each == numbers[0] for each in numbers)
    assert plans[0].wait(30).added == 2


def test_a_finished_task_is_found_by_its_key(zkplan_client: Client, worker: Worker) -> None:
    with zkplan_client.create_plan(key=KEY) as plan:
        add_both(plan)
    plan.wait(30)
    # Its result went to the other task, and was not kept.
    assert plan.task("total").state() == "finished"
    again = zkplan_client.create_plan(key=KEY)
    assert again.add_task(operator.add, [1, 2], key="total").number == plan.task("total").number
    assert again.task("negated").result() == -3
    assert again.status().added == 2


def test_a_plan_found_by_create_plan_takes_no_task_without_a_key(zkplan_client: Client) -> None:
    made = zkplan_client.create_plan(key=KEY)
    made.add_task(int)
    found = zkplan_client.create_plan(key=KEY)
    with pytest.raises(PlanExists, match="is_new"):
        found.add_task(int)
    with found:
        pass  # its author still defines it
    assert found.status().state == "defining"
    with pytest.raises(PlanExists, match="has the key"):
        zkplan_client.create_plan(key=KEY, if_exists="raise")
    assert zkplan_client.plan(key=KEY).add_task(int).number


def test_a_finished_plan_passes_its_key_to_the_next_plan(zkplan_client: Client) -> None:
    first = zkplan_client.create_plan(key=KEY)
    running = zkplan_client.create_plan(key=KEY, if_exists="replace_finished")
    assert (running.path, running.is_new) == (first.path, False)
    first.cancel()
    second = zkplan_client.create_plan(key=KEY, if_exists="replace_finished")
    assert second.is_new
    assert zkplan_client.plan(key=KEY).path == second.path
    first.remove()  # which does not take the key from the other
    assert zkplan_client.plan(f"key:{KEY}").path == second.path


def handled(client: Client, dies: bool = False) -> Plan:
    """As a handler does: it builds the plan of a key where it is new."""
    plan = client.create_plan("order", key=KEY)
    if plan.is_new:
        first = plan.add_task(int, [20], name="first")
        if dies:
            raise ZeroDivisionError
        plan.add_task(float, [first], name="last")
        plan.mark_ready()
    return plan


def in_this_process(here: Here, client: Client) -> None:
    with pytest.raises(ZeroDivisionError):
        handled(client, dies=True)


def in_a_client_that_is_closed(here: Here, client: Client) -> None:
    with zkplan.connect(*here) as other:
        kept = other.create_plan("order", key=KEY)
        kept.add_task(int, [20], name="first")
    assert kept.is_new


def with_a_session_of_somebody_else(here: Here, client: Client) -> None:
    with plain_client(here[0]) as session:
        with zkplan.connect(session, here[1]) as other:
            kept = other.create_plan("order", key=KEY)
        wait_until(lambda: not marks_of(session, kept), "the mark goes with the client")


def marks_of(znodes: KazooClient, plan: Plan) -> list[str]:
    names = znodes.get_children(f"{plan.path}/add-ids")
    return [name for name in names if name.startswith("author-")]


@pytest.mark.parametrize(
    "die", [in_this_process, in_a_client_that_is_closed, with_a_session_of_somebody_else]
)
def test_the_next_author_builds_a_new_plan_if_the_first_author_died(
    die: Callable[[Here, Client], None], here: Here, zkplan_client: Client, worker: Worker
) -> None:
    die(here, zkplan_client)
    half = zkplan_client.plan(key=KEY)
    plan = handled(zkplan_client)
    assert plan.task("last").result(30) == 20.0
    assert plan.wait(30).added == 2
    assert half.status().reason.endswith(f"plan {int(plan.number)} has its key now")
    assert [event.kind for event in half.history()][-1] == "cancelled"
    assert handled(zkplan_client).path == plan.path


def test_the_author_mark_is_deleted_when_the_handle_of_a_plan_is_dropped(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    kept = zkplan_client.create_plan(key="kept")
    zkplan_client.create_plan(key=KEY)
    dropped = Plan(zkplan_client, f"{zkplan_client.root}/plan-{int(kept.number) + 1:010d}")
    wait_until(lambda: not marks_of(znodes, dropped), "the mark goes")
    assert len(marks_of(znodes, kept)) == 1
    kept.mark_ready()
    assert marks_of(znodes, kept) == []
    assert zkplan_client.create_plan(key="kept").path == kept.path


def test_a_live_author_keeps_the_plan_and_an_expired_author_fails(
    here: Here, zkplan_client: Client, znodes: KazooClient
) -> None:
    with zkplan.connect(*here) as other:
        slow = other.create_plan(key=KEY)
        slow.add_task(int)
        found = zkplan_client.create_plan(key=KEY)
        assert (found.path, found.is_new) == (slow.path, False)
        expire(other)
        wait_until(lambda: not marks_of(znodes, slow), "his session is over")
        slow.add_task(int)  # nobody has asked for the key since
        plan = zkplan_client.create_plan(key=KEY)
        assert plan.is_new
        told = f"plan {int(plan.number)} has its key now; create a new plan"
        with pytest.raises(PlanCancelled, match=told):
            slow.add_task(int)
        with pytest.raises(PlanCancelled, match=told):
            slow.mark_ready()
    assert zkplan_client.plan(key=KEY).path == plan.path


def test_a_plan_without_an_author_is_marked_ready_by_its_number(zkplan_client: Client) -> None:
    zkplan_client.create_plan(key=KEY)
    plan = zkplan_client.plan(key=KEY)
    plan.mark_ready()
    assert zkplan_client.create_plan(key=KEY).path == plan.path


def test_one_of_many_authors_takes_over_the_key(zkplan_client: Client) -> None:
    zkplan_client.create_plan(key=KEY)
    plans: list[Plan] = []
    threads = [
        threading.Thread(target=lambda: plans.append(zkplan_client.create_plan(key=KEY)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({plan.path for plan in plans}) == 1
    assert [plan.is_new for plan in plans].count(True) == 1


def test_a_plan_made_over_http_is_given_up_some_time_after_its_last_add(
    here: Here, zkplan_client: Client, znodes: KazooClient
) -> None:
    with serving(*here) as service:

        def create() -> tuple[int, int]:
            answer = service.ask("POST", "/v1/plans", {}, {"Idempotency-Key": KEY})
            return answer.status, answer.data["number"]

        status, number = create()
        assert (status, create()) == (201, (200, number))
        half = zkplan_client.plan(number)
        (mark,) = marks_of(znodes, half)
        path = f"{half.path}/add-ids/{mark}"
        assert int(znodes.get(path)[0]) == 60_000
        assert zkplan_client.create_plan(key=KEY).path == half.path
        znodes.set(path, b"1")  # in place of a minute
        wait_until(lambda: create()[0] == 201, "it is given up")
        tasks = {"tasks": [{"function": "operator:add", "args": [1, 2]}]}
        late = service.ask("POST", f"/v1/plans/{number}/tasks", tasks)
        assert (late.status, "has its key now" in late.data["detail"]) == (409, True)
        assert service.ask("POST", f"/v1/plans/{number}/ready").status == 409


def by_hand(plan: Plan) -> None:
    plan.remove()


def by_gc(plan: Plan) -> None:
    plan.cancel()
    assert plan.client.gc(older_than=0)[0].outcome == "removed"


def by_a_block_that_fails(plan: Plan) -> None:
    with pytest.raises(ZeroDivisionError), plan:
        raise ZeroDivisionError


@pytest.mark.parametrize("remove", [by_hand, by_gc, by_a_block_that_fails])
def test_a_removed_plan_leaves_its_key_free(
    remove: Callable[[Plan], None], zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan(key=KEY, retention=0)
    remove(plan)
    assert znodes.get_children(f"{zkplan_client.root}/keys") == []
    with pytest.raises(PlanNotFound, match=KEY):
        zkplan_client.plan(key=KEY)
    assert zkplan_client.create_plan(key=KEY).is_new


def test_an_import_brings_its_keys_if_they_are_free(zkplan_client: Client, tmp_path: Path) -> None:
    plan = zkplan_client.create_plan("moves", key=KEY)
    task = plan.add_task(int, key="one")
    file = tmp_path / "moves.plan"
    zkplan_client.export_plan(plan, file)
    copy = zkplan_client.import_plan(file, copy=True)
    assert (copy.record.key, copy.task("one").number) == ("", task.number)
    copy.remove()
    plan.remove()
    other = zkplan_client.create_plan(key=KEY)
    with pytest.raises(PlanError, match="has the key"):
        zkplan_client.import_plan(file)
    assert [each.path for each in zkplan_client.plans()] == [other.path]
    other.remove()
    back = zkplan_client.import_plan(file)
    assert zkplan_client.plan(key=KEY).path == back.path
    assert back.add_task(int, key="one").number == task.number


def test_commands_find_a_plan_by_its_key(run: Run, zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan("report", key=KEY)
    shown = run("plan", "show", f"key:{KEY}", "-o", "json")
    facts = json.loads(shown.out)
    assert (facts["path"], facts["key"]) == (plan.path, KEY)
    assert run("plan", "rm", "key:other", "--yes").code == 2
    assert run("plan", "rm", f"key:{KEY}", "--yes").code == 0
    with pytest.raises(InvalidTask, match="key:"):
        zkplan_client.create_plan(f"key:{KEY}")


@pytest.mark.parametrize(
    ("key", "if_exists"), [("", "return"), ("a\nb", "return"), (None, "raise"), ("a", "ask")]
)
def test_bad_keys_are_refused_before_anything_is_written(
    key: str | None, if_exists: str, zkplan_client: Client
) -> None:
    with pytest.raises(InvalidTask):
        zkplan_client.create_plan(key=key, if_exists=if_exists)  # type: ignore[arg-type]
    assert zkplan_client.plans() == []
