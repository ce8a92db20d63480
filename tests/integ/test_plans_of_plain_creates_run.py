"""A plan that another client builds by plain creates of znodes is found and runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from tests.tools.support import blocked_plan, wait_until
from zkplan import Client
from zkplan.protocol.core.edges import with_sources
from zkplan.protocol.records import TaskRecord
from zkplan.values import codec
from zkplan.values import function_codec as functions

quickly = pytest.mark.usefixtures("quick_checks", "worker")


class Builder:
    """Writes a plan znode by znode, as docs/internals/protocol.md describes it, without any index
    entry."""

    def __init__(self, client: Client, znodes: KazooClient, *, fixed: bool) -> None:
        client.prepare()
        self.znodes = znodes
        self.codec = client.codec
        self.path: str = znodes.create(f"{client.root}/plan-", b"", sequence=True)
        if fixed:
            for name in ("add-count", "add-ids", "runnable", "dead", "results"):
                znodes.create(f"{self.path}/{name}")

    def task(self, function: Any, *sources: str, short_edges: bool = False) -> str:
        """A task that gets the results of `sources` in this order; gives its name."""
        stand_ins = [object() for _ in sources]
        places = {id(stand_in): place for place, stand_in in enumerate(stand_ins)}
        arguments = codec.dump_call(stand_ins, {}, lambda value: places.get(id(value)))
        record = TaskRecord(len(sources), b"{}", functions.dump_function(function), arguments)
        sealed = self.codec.seal(codec.TASK, record.to_bytes())
        sealed = with_sources(sealed, [source[5:] for source in sources])
        path: str = self.znodes.create(f"{self.path}/task-", sealed, sequence=True)
        name = path.rpartition("/")[2]
        for place, source in enumerate(sources):
            dep = f"dep-{place:010d}"
            self.znodes.create(f"{path}/{dep}")
            edge: dict[str, Any] = {"dep": f"{name}/{dep}"}
            if not short_edges:
                edge |= {"k": len(sources), "entry": f"5000-{name[5:]}"}
            data = json.dumps(edge).encode()
            self.znodes.create(f"{self.path}/{source}/prov-", data, sequence=True)
        self.znodes.create(f"{path}/ready", str(len(sources)).encode())
        return name

    def ready(self) -> None:
        self.znodes.create(f"{self.path}/ready")


@quickly
@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("short_edges", [True, False])
def test_a_plan_without_index_entries_is_found_and_runs(
    fixed: bool, short_edges: bool, zkplan_client: Client, znodes: KazooClient
) -> None:
    built = Builder(zkplan_client, znodes, fixed=fixed)
    one = built.task(int)
    two = built.task(lambda: 2)
    both = built.task(lambda a, b: (a, b), one, two, short_edges=short_edges)
    end = built.task(str, both, short_edges=short_edges)
    built.ready()
    plan = zkplan_client.plan(built.path)
    assert plan.task(end[5:]).result(30) == "(0, 2)"
    wait_until(plan.is_drained, "the plan is drained")
    status = plan.status()
    assert (status.state, status.tasks) == ("done", 0)


@quickly
def test_a_plan_in_use_gets_a_task_of_plain_creates(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    """One that is complete from the start: nobody would ever publish it but the check."""
    built = Builder(zkplan_client, znodes, fixed=True)
    plan = zkplan_client.plan(built.path)
    first = plan.add_task(lambda: 1, keep=True)
    name = built.task(lambda: "found")
    plan.mark_ready()
    assert first.result(30) == 1
    assert plan.task(name[5:]).result(30) == "found"
    wait_until(plan.is_drained, "the plan is drained")


@pytest.mark.usefixtures("worker")
def test_a_plan_of_plain_creates_is_found_beside_a_hundred_that_stand_still(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    """A worker checks one plan in a second, and each of these comes to its turn again."""
    for _ in range(100):
        blocked_plan(zkplan_client, znodes)
    built = Builder(zkplan_client, znodes, fixed=False)
    name = built.task(int)
    built.ready()
    assert zkplan_client.plan(built.path).task(name[5:]).result(30) == 0


@quickly
def test_a_check_that_may_not_publish_a_task_does_not_say_that_it_did(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    built = Builder(zkplan_client, znodes, fixed=True)
    name = built.task(int)
    plan = zkplan_client.plan(built.path)
    znodes.set_acls(f"{built.path}/runnable", [make_acl("world", "anyone", read=True, admin=True)])
    report = plan.check()
    assert not report.published
    (problem,) = report.problems
    assert problem.startswith(f"{name}: can be run, but is in no index")
    assert problem.endswith(
        f"not allowed by the access list: the right `create` is missing on {built.path}/runnable"
    )
    znodes.set_acls(f"{built.path}/runnable", OPEN_ACL_UNSAFE)
    assert plan.check().published == [name]


def test_a_check_that_may_not_give_a_plan_what_it_lacks_says_so(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    built = Builder(zkplan_client, znodes, fixed=False)
    built.task(int)
    built.ready()
    znodes.set_acls(built.path, [make_acl("world", "anyone", read=True, admin=True)])
    report = zkplan_client.plan(built.path).check()
    assert report.shut == [built.path]
    assert f"the right `create` is missing on {built.path}" in report.problems[0]
    znodes.set_acls(built.path, OPEN_ACL_UNSAFE)
    assert "runnable" in zkplan_client.plan(built.path).check().created


@quickly
def test_a_plan_that_is_not_marked_ready_waits(zkplan_client: Client, znodes: KazooClient) -> None:
    built = Builder(zkplan_client, znodes, fixed=True)
    name = built.task(int)
    plan = zkplan_client.plan(built.path)
    report = plan.check(repair=False)
    assert report.published == [name]
    assert znodes.get_children(f"{built.path}/runnable") == []
    assert plan.status().state == "defining"
    built.ready()
    assert plan.task(name[5:]).result(30) == 0
