"""A retry of a plan reaches every dead task, however many there are and whatever stands beside."""

from __future__ import annotations

import itertools

import pytest
from kazoo.client import KazooClient

from zkplan import Client, PayloadUndecodable, Plan, PlanNotFound, TaskSpec
from zkplan.protocol.layout import parse_entry
from zkplan.protocol.records import Dead

#: More than the listing of dead tasks shows.
MANY = 1005
_PER_TRANSACTION = 200


def bury(plan: Plan, znodes: KazooClient) -> list[str]:
    """Make all runnable tasks dead, as a worker does that has run them; their numbers."""
    entries = sorted(znodes.get_children(f"{plan.path}/runnable"))
    numbers = [entry.task for name in entries if (entry := parse_entry(name)) is not None]
    letter = Dead("5000", 1, 1, "", "ValueError", "").to_bytes()
    pairs = zip(entries, numbers, strict=True)
    while some := list(itertools.islice(pairs, _PER_TRANSACTION)):
        changes = znodes.transaction()
        for entry, number in some:
            changes.delete(f"{plan.path}/runnable/{entry}")
            changes.create(f"{plan.path}/dead/{number}", letter)
        assert all(isinstance(made, str | bool) for made in changes.commit())
    return sorted(numbers)


def test_more_than_a_listing_shows(zkplan_client: Client, znodes: KazooClient) -> None:
    with zkplan_client.create_plan() as plan:
        plan.add_tasks([TaskSpec(int)] * MANY)
    assert len(bury(plan, znodes)) == MANY
    assert plan.retry() == MANY
    assert (plan.status().dead, plan.status().runnable) == (0, MANY)


def test_those_beside_a_damaged_letter(zkplan_client: Client, znodes: KazooClient) -> None:
    """It cannot be retried, and is reported. The others are retried."""
    with zkplan_client.create_plan() as plan:
        plan.add_tasks([TaskSpec(int)] * 3)
    first, *_ = bury(plan, znodes)
    znodes.create(f"{plan.path}/dead/a strange one", b"")
    znodes.set(f"{plan.path}/dead/{first}", b"damaged")
    with pytest.raises(PayloadUndecodable, match=rf"task {first} .* cannot be retried"):
        plan.retry()
    assert plan.status().runnable == 2


def test_a_plan_of_plain_creates_without_an_index_has_none(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    """It is there, so nobody is told that it is not."""
    plan = zkplan_client.create_plan()
    znodes.delete(f"{plan.path}/dead")
    assert dict(plan.dead()) == {}
    assert plan.retry() == 0
    plan.remove()
    with pytest.raises(PlanNotFound):
        plan.dead()
