"""Names that zkplan did not make are passed over for good, and what is wrong is told once."""

from __future__ import annotations

import logging

import pytest

from zkplan.errors import (
    ClientClosed,
    PayloadUndecodable,
    TransactionRejected,
    ZooKeeperUnavailable,
)
from zkplan.protocol.active import list_active
from zkplan.protocol.layout import Paths
from zkplan.protocol.look import PlanLook, list_plans
from zkplan.protocol.requests import ReadChildren, ReadData, Step
from zkplan.runtime.plan_view import STRANGE_MAX, PlanView
from zkplan.runtime.steps import TOLD_MAX, Complaints, contained

ENTRY = "5000-0000000001.0.0"


def listed(view: PlanView, names: list[str]) -> list[str]:
    """One look and all that is claimed from it, as the loop of a worker does."""
    view.begin_look(0.0)
    view.update(PlanLook("running", 0, names), (0, 1), 0.0)
    return view.take(len(names))


def test_more_strange_names_than_are_remembered_make_no_worker_look_for_ever() -> None:
    view = PlanView("0000000001", "/r/plan-0000000001")
    names = [f"strange-{number}" for number in range(3 * STRANGE_MAX)]
    assert listed(view, names) == []
    assert listed(view, [*names, ENTRY]) == [ENTRY]
    assert not view.own
    listed(view, names)
    listed(view, names)
    assert not view.must_look, "nothing is left to claim, so a watch wakes this worker"


def test_an_entry_that_cannot_be_claimed_is_not_tried_again() -> None:
    view = PlanView("0000000001", "/r/plan-0000000001")
    assert listed(view, [ENTRY]) == [ENTRY]
    view.bar(ENTRY)
    assert listed(view, [ENTRY]) == []


def test_only_what_the_counter_named_is_a_plan() -> None:
    step = list_plans(Paths("/r"))
    next(step)
    with pytest.raises(StopIteration) as ended:
        step.send(["plan-x", "plan-", "plan-٣٣٣٣٣٣٣٣٣٣", "plan-00000000001", "plan-0000000007"])
    assert ended.value.value == ["0000000007"]


def test_only_the_number_of_a_plan_is_an_entry_of_the_index() -> None:
    step = list_active(Paths("/r"), watch=True)
    assert next(step) == ReadChildren("/r/active", watch=True)
    with pytest.raises(StopIteration) as ended:
        step.send(["plan-0000000007", "x", "٣٣٣٣٣٣٣٣٣٣", "00000000001", "0000000009", "0000000007"])
    assert ended.value.value == ["0000000007", "0000000009"]


def asks() -> Step[str]:
    yield ReadData("/x")
    return "done"


def outcome(error: Exception, complaints: Complaints) -> str:
    step = contained(asks(), complaints, "/x is broken", "instead")
    next(step)
    with pytest.raises(StopIteration) as ended:
        step.throw(error)
    return str(ended.value.value)


def test_what_the_tree_is_to_blame_for_ends_the_step_alone_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    complaints = Complaints()
    with caplog.at_level(logging.WARNING, logger="zkplan"):
        for _ in range(3):
            for error in (TransactionRejected("no"), PayloadUndecodable("no")):
                assert outcome(error, complaints) == "instead"
    assert [record.getMessage() for record in caplog.records] == ["/x is broken: no"]


@pytest.mark.parametrize(
    "error", [ZooKeeperUnavailable("x"), ClientClosed("x"), AssertionError("x")]
)
def test_a_lost_connection_and_a_bug_are_not_contained(error: Exception) -> None:
    step = contained(asks(), Complaints(), "/x", None)
    next(step)
    with pytest.raises(type(error)):
        step.throw(error)


def test_what_was_told_takes_bounded_memory() -> None:
    complaints = Complaints()
    for number in range(2 * TOLD_MAX):
        complaints.tell(f"message {number}")
    assert len(complaints._told) == TOLD_MAX
