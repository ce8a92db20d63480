"""Reading any znode, whatever its data or name, ends no worker and is reported once."""

from __future__ import annotations

import json
import logging
import struct
import sys
from typing import Any

import pytest
from hypothesis import given
from kazoo.security import OPEN_ACL_UNSAFE

from zkplan.errors import (
    ClientClosed,
    PayloadUndecodable,
    TransactionRejected,
    ZooKeeperUnavailable,
)
from zkplan.protocol.core.edges import Edge
from zkplan.protocol.core.plan_indexes import list_active
from zkplan.protocol.core.plans_and_queues import PlanLook, list_plans
from zkplan.protocol.layout import Paths
from zkplan.protocol.records import Dead
from zkplan.protocol.requests import Applied, Create, ReadChildren, ReadData, Step
from zkplan.protocol.transactions import Dependent, pending_bytes, pending_dependents
from zkplan.runtime.plan_view import STRANGE_MAX, PlanView
from zkplan.runtime.steps import TOLD_MAX, Complaints, contained
from zkplan.transport import packets as wire
from zkplan.values import codec as codecs
from zkplan.values import function_codec as functions
from zkplan.values.codec import FAILURE, LOG, TASK, VALUE, Codec

from .hostile_bytes import PICKLES

TASK_NUMBER = "0000000012"
ANY_KIND = VALUE + FAILURE + TASK + LOG


@pytest.mark.parametrize(
    "line", [b"1 2  3", b"   ", b"1 2 3", b"\xff 1 2 3", b"1 2 9" + b"9" * 5000]
)
def test_a_damaged_line_of_a_pending_record_is_skipped(line: bytes) -> None:
    good = Dependent("0000000003", TASK_NUMBER, 2, "5000")
    assert pending_dependents(line + b" 4\n" + pending_bytes([good]))[-1] == good
    assert pending_dependents(line + b"\n" + pending_bytes([good])) == [good]


@pytest.mark.parametrize("entry", ["a/b-1", "٣٣٣٣-1", "50", 5000, None, "\ud800\ud800\ud800\ud800"])
def test_only_a_valid_rank_is_taken_from_a_record_into_a_path(entry: Any) -> None:
    edge = as_json({"dep": f"task-{TASK_NUMBER}/dep-0000000001", "k": 1, "entry": entry})
    with pytest.raises(PayloadUndecodable, match="entry of its dependent"):
        Edge.from_bytes(edge)
    assert Dead.from_bytes(as_json({"rank": entry})).rank == "5000"


def as_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


@given(PICKLES)
def test_data_of_another_python_is_undecodable_and_the_version_is_named(data: bytes) -> None:
    major, minor = sys.version_info[:2]
    other = bytes([major, minor + 1])
    try:
        codecs.load(b"D" + other + data)
    except PayloadUndecodable:
        pass
    with pytest.raises(PayloadUndecodable, match=rf"Python {major}\.{minor + 1}.*{major}\.{minor}"):
        functions.load_function(b"F" + other + data)


def test_a_payload_is_opened_only_as_the_kind_asked_for() -> None:
    codec = Codec()
    for kind in (VALUE, FAILURE, TASK, LOG):
        others = bytes(set(ANY_KIND) - set(kind))
        with pytest.raises(PayloadUndecodable, match="not a zkplan payload"):
            codec.open(others, codec.seal(kind, b"body"))


@pytest.mark.parametrize("chroot", ["/team", "/über/tief", "/日本"])
def test_the_chroot_is_removed_from_created_paths(chroot: str) -> None:
    path = f"{chroot}/ä/task-0000000007".encode()
    answer = struct.pack("!iBii", 1, 0, 0, len(path)) + path + struct.pack("!iBi", -1, 1, -1)
    packet = wire.MultiPacket(
        [Create("/ä/task-", sequence=True)], chroot, wire.pack_acl(OPEN_ACL_UNSAFE)
    )
    assert packet.deserialize(answer, 0) == Applied(["/ä/task-0000000007"])


ENTRY = "5000-0000000001.0.0"


def listed(view: PlanView, names: list[str]) -> list[str]:
    """One look and all that is claimed from it, as the loop of a worker does."""
    view.begin_look(0.0)
    view.update(PlanLook("running", 0, names), (0, 1), 0.0)
    return view.take(len(names)).names


def test_too_many_strange_names_to_remember_do_not_cause_endless_listings() -> None:
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


def listed_by(step: Step[list[str]], read: ReadChildren, found: list[str]) -> list[str]:
    assert next(step) == read
    with pytest.raises(StopIteration) as ended:
        step.send(found)
    return ended.value.value  # type: ignore[no-any-return]


def test_only_a_znode_named_by_the_sequence_counter_is_a_plan() -> None:
    found = ["plan-x", "plan-", "plan-٣٣٣٣٣٣٣٣٣٣", "plan-00000000001", "plan-0000000007"]
    assert listed_by(list_plans(Paths("/r")), ReadChildren("/r"), found) == ["0000000007"]


def test_only_the_number_of_a_plan_is_an_entry_of_the_index() -> None:
    step, read = list_active(Paths("/r"), watch=True), ReadChildren("/r/active", watch=True)
    found = ["plan-0000000007", "x", "٣٣٣٣٣٣٣٣٣٣", "00000000001", "0000000009", "0000000007"]
    assert listed_by(step, read, found) == ["0000000007", "0000000009"]


def asks() -> Step[str]:
    yield ReadData("/x")
    return "done"


def outcome(error: Exception, complaints: Complaints) -> str:
    step = contained(asks(), complaints, "/x is broken", "instead")
    next(step)
    with pytest.raises(StopIteration) as ended:
        step.throw(error)
    return str(ended.value.value)


def test_damage_in_the_tree_ends_only_its_step_and_is_logged_once(
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
def test_a_lost_connection_and_a_bug_are_raised_and_not_contained(error: Exception) -> None:
    step = contained(asks(), Complaints(), "/x", None)
    next(step)
    with pytest.raises(type(error)):
        step.throw(error)


def test_a_limited_number_of_complaints_is_remembered(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    for number in range(TOLD_MAX + 1):
        complaints.tell(f"message {number}")
    caplog.clear()
    for number in (TOLD_MAX, 0):
        complaints.tell(f"message {number}")
    assert caplog.messages == ["message 0"], "only the oldest was forgotten"
