"""Which permits of a limit are free, and which entries a worker tries while limits are full."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkplan.errors import ZkplanError
from zkplan.protocol.core.claim import Permits, claim
from zkplan.protocol.core.plans_and_queues import PlanLook
from zkplan.protocol.features.limits import Limit, check_limit, size_from_bytes
from zkplan.protocol.layout import PERMIT, Paths
from zkplan.protocol.requests import (
    Applied,
    Create,
    Delete,
    Multi,
    ReadChildren,
    Reason,
    Refused,
    Send,
)
from zkplan.protocol.transactions import Registration
from zkplan.runtime.plan_view import PlanView

DB, API = "5000-0000000012.0.0~db", "5000-0000000013.0.0~api~db"
FREE = "5000-0000000014.0.0"


@given(st.integers(0, 20), st.frozensets(st.integers(0, 30)))
def test_the_permits_of_a_limit_never_exceed_its_size(size: int, held: frozenset[int]) -> None:
    free = Limit(0, size, held).free
    assert not held.intersection(free)
    assert all(number < size for number in free)
    # Below the size at most one permit for each number, above it only the permits held already.
    assert len(held.union(free)) <= max(size, len(held))


def test_permits_above_a_lowered_size_count_until_they_are_released() -> None:
    assert Limit(0, 2, frozenset({4})).free == [0]
    assert Limit(0, 2, frozenset({3, 4})).free == []
    assert Limit(0, 2, frozenset()).free == [0, 1]
    assert Limit(0, 6, frozenset({0, 5, 6})).free == [1, 2, 3]


def test_an_entry_refused_for_its_permit_is_renamed_to_void_late_claim_copies() -> None:
    paths = Paths("/z")
    me, permit = Registration(paths, "w", iter("7")), f"/z/limits/db/{PERMIT}0"
    permits = Permits({"/z/limits/db": 1}, {DB: (permit,)})
    step = claim(me, "0000000003", 0, [DB], permits=permits)
    sent = next(step)
    assert isinstance(sent, Send)
    assert isinstance(sent.request, Multi)
    step.send(1)
    step.send(2)
    at = [op.path for op in sent.request.ops].index(permit)
    step.send(Refused(at, Reason.NODE_EXISTS, permit, repeated=True))  # the transaction
    assert step.send([None, None, []]) == ReadChildren(me.claims_path)  # the reads behind it
    renamed = step.send([])
    runnable, later = "/z/plan-0000000003/runnable", "5000-0000000012.1.0~db"
    assert renamed == Multi([Delete(f"{runnable}/{DB}"), Create(f"{runnable}/{later}")])
    step.send(Applied([None, None]))
    with pytest.raises(StopIteration) as ended:
        step.send([])
    assert (ended.value.value.claims, ended.value.value.blocked) == ([], (later,))


@pytest.mark.parametrize("data", [b"", b"x", b"-1", b"5.0", b"9" * 50])
def test_nothing_runs_under_a_limit_of_unreadable_size(data: bytes) -> None:
    assert size_from_bytes(data) == 0


@pytest.mark.parametrize("name", ["plan", "plan-0000000004", "A", "", "a~b", "..", 7])
def test_an_invalid_limit_name_is_refused(name: str) -> None:
    with pytest.raises(ZkplanError, match="not a name for a limit"):
        check_limit(name, 1)


def view_of(
    *listed: tuple[str, list[str]], is_full: Callable[[str], bool] = bool, limited: bool = True
) -> PlanView:
    view = PlanView("0000000003", "/z/plan-0000000003", limited=limited)
    (queue, names), *more = listed
    view.begin_look(0.0)
    view.update(PlanLook("running", 0, names, queue, more), (0, 1), 0.0, is_full=is_full)
    return view


def test_an_entry_whose_limit_is_full_waits_and_the_next_is_taken() -> None:
    view = view_of(("default", [DB, API, FREE]), limited=False)
    taken = view.take(5, 5, lambda name: None)
    assert (taken.names, taken.permits) == ([FREE], {})
    assert {*view.waiting} == {("default", "db"), ("default", "api~db")}
    view.put_back("default", [FREE])  # the claim was refused: a limit has changed
    assert ([*view.own], {*view.waiting}) == ([FREE], {("default", "db"), ("default", "api~db")})
    view.own.clear()
    taken = view.take(5, 5, lambda name: ("p",) if name == DB else None)
    assert (taken.names, taken.permits) == ([DB], {DB: ("p",)})
    assert {*view.waiting} == {("default", "api~db")}


def test_a_queue_that_waits_for_permits_leaves_room_for_the_next() -> None:
    view = view_of(("first", [DB]), ("second", [FREE]), is_full=lambda limits: limits == "db")
    taken = view.take(5, 5, lambda name: None)
    assert (taken.queue, taken.names) == ("second", [FREE])
    taken = view.take(5, 5, lambda name: ("p",))
    assert (taken.queue, taken.names) == ("first", [DB])


def test_a_worker_takes_no_permit_without_a_free_slot() -> None:
    view = view_of(("default", [DB, FREE]))
    taken = view.take(5, 0, lambda name: ("p",))
    assert taken.names == [FREE]
    assert view.take(5, 1, lambda name: ("p",)).names == [DB]
