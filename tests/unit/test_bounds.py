"""The bounds of a root: how they are stored, when a budget is spent, and how plans are counted."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from zkplan.errors import BudgetSpent, PayloadUndecodable
from zkplan.protocol.features import bounds as spending
from zkplan.protocol.features.bounds import RETENTION_S, Bounds, Used, refuse_if_spent, warning_of
from zkplan.protocol.layout import Paths
from zkplan.protocol.records import PlanRecord
from zkplan.protocol.requests import Node, ReadChildren, ReadData, ReadMany
from zkplan.transport.transport import run_step

PATHS = Paths("/r")


def node(data: bytes, children: int = 0) -> Node:
    return Node(data, 0, children, children, 0, 0, 0)


def test_the_bounds_of_a_root_are_read_back_as_written() -> None:
    used = Used(3, 40, 500, 1.5, False)
    for found in (Bounds(), Bounds(math.inf, True, 9, 8, used), Bounds(5.0, bytes=0)):
        assert Bounds.from_bytes(found.to_bytes()) == found
    assert Bounds().to_bytes() == b"{}"
    for retention in (None, 0.0, 7.5, math.inf):
        record = PlanRecord("name", "uid", 1.0, retention=retention)
        assert b"Infinity" not in record.to_bytes()
        assert PlanRecord.from_bytes(record.to_bytes()).retention == retention


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"retention":"soon"}', Bounds(math.inf)),
        (b'{"retention":-1}', Bounds(math.inf)),
        (b'{"archive":"no"}', Bounds(archive=True)),
        (b'{"znodes":-1,"bytes":"x","used":7}', Bounds()),
        (b'{"znodes":5,"used":{"plans":1,"znodes":9e99,"bytes":1}}', Bounds(znodes=5)),
    ],
)
def test_a_damaged_part_of_bounds_removes_and_refuses_nothing(data: bytes, found: Bounds) -> None:
    assert Bounds.from_bytes(data) == found
    assert refuse_if_spent(PATHS, node(data)) in (None, found)
    assert found.retention in (RETENTION_S, math.inf)


def test_a_budget_warns_from_80_percent_on_and_refuses_at_100() -> None:
    told = []
    for znodes in range(0, 1000, 10):
        found = Bounds(znodes=1000, used=Used(1, znodes, 0, 0.0, True))
        assert refuse_if_spent(PATHS, node(found.to_bytes())) == found
        told.append(warning_of(PATHS, found))
    assert told[:80] == [""] * 80
    assert len(set(told)) == 5  # none, and one for each twentieth
    spent = Bounds(znodes=10**9, bytes=10, used=Used(1, 1, 10, 0.0, True))
    with pytest.raises(BudgetSpent, match="10 B of 10 B"):
        refuse_if_spent(PATHS, node(spent.to_bytes()))
    assert refuse_if_spent(PATHS, None) is refuse_if_spent(PATHS, node(b"\xff")) is None
    with pytest.raises(PayloadUndecodable):
        Bounds.from_bytes(b"\xff")


def test_a_sample_estimates_the_size_of_a_large_plan_closely() -> None:
    """30 000 tasks of 2 to 8 znodes; the fixed children are always counted."""
    chance = random.Random(7)
    tree: dict[str, tuple[bytes, list[str]]] = {"/r/p": (b"x" * 90, ["results"])}
    tree["/r/p/results"] = (b"", [f"{n:010d}" for n in range(5000)])
    for name in tree["/r/p/results"][1]:
        tree[f"/r/p/results/{name}"] = (b"r" * 100, [])
    for number in range(30_000):
        name = f"task-{number:010d}"
        below = [f"arg-{n}" for n in range(chance.randint(1, 7))]
        tree["/r/p"][1].append(name)
        tree[f"/r/p/{name}"] = (b"t" * chance.randint(100, 900), below)
        tree.update({f"/r/p/{name}/{each}": (b"a" * 50, []) for each in below})
    reads = 0

    def answer(request: Any) -> Any:
        nonlocal reads
        if type(request) is ReadMany:
            return [answer(each) for each in request.reads]
        reads += 1
        data, children = tree[request.path]
        if type(request) is ReadChildren:
            return children
        assert type(request) is ReadData
        return node(data, len(children))

    room = run_step(spending.room_of("/r/p", chance), answer, lambda given: given)
    assert not room.exact
    assert reads < 10 * spending.SAMPLE
    assert room.znodes == pytest.approx(len(tree), rel=0.05)
    assert room.bytes == pytest.approx(sum(len(data) for data, _ in tree.values()), rel=0.05)
