"""The kept outcomes of a plan are listed with their task, kind and size."""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import WAIT_S, Here, fail, secret_of, wait_until
from zkplan import Client, InvalidTask, TaskSpec, Worker
from zkplan.protocol.core.load import VALUES_FIRST

#: More than a request lists.
MANY = 1005


@pytest.mark.usefixtures("worker")
def test_results_and_failures_are_listed_by_their_numbers(zkplan_client: Client) -> None:
    before = time.time()
    with zkplan_client.create_plan(attempts=1) as plan:
        kept = plan.add_task(lambda: "x" * 1000, name="kept", keep=True)
        plan.add_task(lambda: 1, name="not kept", keep=False)
        dies = plan.add_task(fail, name="dies")
        nameless = plan.add_task(fail)
        last = plan.add_task(len, [kept])
    wait_until(lambda: plan.status().dead == 2 and plan.status().tasks == 2, "all have ended")
    found = list(plan.outcomes())
    assert [(each.number, each.kind, each.name) for each in found] == [
        (kept.number, "result", "kept"),
        (dies.number, "failure", "dies"),
        (nameless.number, "failure", "fail"),
        (last.number, "result", "len"),
    ]
    assert 1000 < found[0].size < 1100
    assert all(before - 60 < each.when < time.time() + 60 for each in found)
    assert plan.task(found[3].number).result(WAIT_S) == 1000
    assert list(islice(plan.outcomes(), 2)) == found[:2]
    assert plan.retry() == 2


@pytest.mark.usefixtures("worker")
def test_the_failures_of_a_cascade_are_listed_with_their_names(zkplan_client: Client) -> None:
    with zkplan_client.create_plan(on_failure="cascade", attempts=1) as plan:
        source = plan.add_task(fail, name="source")
        plan.add_task(str, [source], name="report")
    wait_until(plan.is_drained, "it drains")
    assert [(each.kind, each.name) for each in plan.outcomes()] == [
        ("failure", "source"),
        ("failure", "report"),
    ]
    with pytest.raises(ValueError, match="on purpose"):
        plan.task("source").result(WAIT_S)


@pytest.mark.usefixtures("worker")
def test_large_results_are_listed_in_several_reads(zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        sizes = [200_000 if n < VALUES_FIRST else n for n in range(VALUES_FIRST + 50)]
        plan.add_tasks([TaskSpec(bytes, [size]) for size in sizes])
    plan.wait(WAIT_S)
    found = list(plan.outcomes())
    assert len(found) == len(sizes)
    assert all(each.size >= size for each, size in zip(found, sizes, strict=True))


def test_undecodable_outcomes_are_listed_and_strange_names_are_skipped(
    zkplan_client: Client, worker: Worker, here: Here, znodes: KazooClient
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(lambda: 1)
    task.result(WAIT_S)
    znodes.create(f"{plan.path}/results/strange", b"")
    with zkplan.connect(*here, secret=secret_of("another")) as other:
        (found,) = other.plan(plan.path).outcomes()
    assert (found.number, found.kind) == (task.number, "undecodable")


@pytest.mark.usefixtures("worker")
def test_a_finished_task_is_found_by_its_name_where_its_result_is_kept(
    zkplan_client: Client,
) -> None:
    with zkplan_client.create_plan() as plan:
        kept = plan.add_task(lambda: 1, name="answer", keep=True)
        plan.add_task(str, [plan.add_task(int, name="handed on")])
        plan.add_tasks([TaskSpec(len, ["a"]), TaskSpec(len, ["b"])])
    plan.wait(WAIT_S)
    found = plan.task("answer")
    assert (found.number, found.result(WAIT_S)) == (kept.number, 1)
    assert plan.task("str").result(WAIT_S) == "0"
    with pytest.raises(InvalidTask, match="2 tasks named 'len'"):
        plan.task("len")
    handed_on = plan.task("handed on")  # its history tells of it
    with pytest.raises(zkplan.ResultNotKept):
        handed_on.result(WAIT_S)


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_more_than_a_thousand_outcomes_are_listed_and_retried(zkplan_client: Client) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        plan.add_tasks([TaskSpec(int) for _ in range(MANY)])
        plan.add_tasks([TaskSpec(fail) for _ in range(MANY)])
    wait_until(lambda: plan.status().dead == MANY and plan.status().outcomes >= MANY, "all ended")
    kinds = Counter(each.kind for each in plan.outcomes())
    assert (kinds["result"], len(list(plan.tasks())), len(list(plan.dead()))) == (MANY, MANY, MANY)
    plan.pause()
    assert plan.retry() == MANY
    assert (plan.status().dead, plan.status().runnable) == (0, MANY)
