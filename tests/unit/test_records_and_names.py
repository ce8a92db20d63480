"""Records and names survive the way to bytes and back; nothing else is taken for one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkplan.errors import InvariantViolated, PayloadUndecodable
from zkplan.protocol.layout import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    Delayed,
    Entry,
    Paths,
    delayed_name,
    number_of,
    parse_claim,
    parse_delayed,
    parse_entry,
    rank_of,
)
from zkplan.protocol.records import (
    DEFAULT_OPTIONS,
    Dead,
    Edge,
    Failure,
    PlanRecord,
    TaskOptions,
    TaskRecord,
    WorkerRecord,
    control_from_bytes,
    control_to_bytes,
)

TEXT = st.text(max_size=30)
SECONDS = st.floats(0, 1e9)
OPTIONS = st.builds(
    TaskOptions,
    name=TEXT,
    attempts=st.integers(1, 1000),
    retry_delay=SECONDS,
    timeout=st.none() | st.floats(0.1, 1e6),
    priority=st.integers(-4999, 5000),
    keep=st.none() | st.booleans(),
)
NUMBERS = st.integers(0, 2**31 - 1).map(lambda n: f"{n:010d}")
RANKS = st.integers(0, 9999).map(lambda n: f"{n:04d}")


@given(OPTIONS)
def test_the_options_of_a_task_survive(options: TaskOptions) -> None:
    assert TaskOptions.from_json(options.to_json()) == options


def test_default_options_take_two_bytes() -> None:
    assert DEFAULT_OPTIONS.to_json() == b"{}"
    assert TaskOptions(attempts=4).to_json() == b'{"attempts":4}'


@given(TEXT, TEXT, SECONDS, OPTIONS, st.sampled_from(["hold", "cascade"]))
def test_a_plan_record_survives(
    name: str, uid: str, created: float, defaults: TaskOptions, on_failure: Any
) -> None:
    record = PlanRecord(name, uid, created, defaults, on_failure)
    assert PlanRecord.from_bytes(record.to_bytes()) == record


def test_an_empty_plan_record_has_the_defaults() -> None:
    assert PlanRecord.from_bytes(b"") == PlanRecord("", "", 0.0)


def test_a_plan_of_a_newer_format_asks_for_an_upgrade() -> None:
    with pytest.raises(PayloadUndecodable, match="format 2, this zkplan reads 1: upgrade"):
        PlanRecord.from_bytes(b'{"format":2}')


@given(st.integers(0, 2**16 - 1), st.binary(), st.binary(), st.binary())
def test_a_task_record_survives(
    positions: int, options: bytes, function: bytes, arguments: bytes
) -> None:
    record = TaskRecord(positions, options, function, arguments)
    assert TaskRecord.from_bytes(record.to_bytes()) == record


@given(NUMBERS, NUMBERS, st.integers(0, 10**6), RANKS)
def test_an_edge_survives(task: str, position: str, k: int, rank: str) -> None:
    edge = Edge(task, position, k, rank)
    assert Edge.from_bytes(edge.to_bytes()) == edge


def test_an_edge_of_another_client_may_name_its_dep_only() -> None:
    data = b'{"dep": "/any/place/plan-0000000001/task-0000000002/dep-0000000003"}'
    assert Edge.from_bytes(data) == Edge("0000000002", "0000000003", -1, "")


@given(TEXT, TEXT, TEXT, TEXT, st.integers(0, 10**6), SECONDS, st.binary(max_size=50))
def test_a_failure_survives(
    kind: str, message: str, trace: str, worker: str, n: int, when: float, exception: bytes
) -> None:
    failure = Failure(kind, message, trace, worker, n, when, exception)
    assert Failure.from_bytes(failure.to_bytes()) == failure


@given(RANKS, st.integers(0, 99), st.integers(0, 99), TEXT, TEXT, TEXT)
def test_a_dead_letter_survives(
    rank: str, n: int, a: int, name: str, error: str, worker: str
) -> None:
    dead = Dead(rank, n, a, name, error, worker)
    assert Dead.from_bytes(dead.to_bytes()) == dead


@given(TEXT, TEXT, st.integers(0, 99999), st.integers(1, 500), SECONDS, st.integers(0, 999))
def test_a_worker_record_survives(
    worker: str, host: str, pid: int, slots: int, started: float, claims: int
) -> None:
    record = WorkerRecord(worker, host, pid, slots, started, claims)
    assert WorkerRecord.from_bytes(worker, record.to_bytes(), claims) == record


def test_the_state_of_a_plan_survives() -> None:
    for state in ("running", "paused", "cancelled"):
        assert control_from_bytes(control_to_bytes(state)) == state


def test_an_empty_control_record_runs_and_an_unreadable_one_does_not() -> None:
    assert control_from_bytes(b"") == "running"
    for unreadable in (b"x", b"[]", b'{"state":"dancing"}', b'{"state":7}', b"{}", b"\xff"):
        assert control_from_bytes(unreadable) == "paused"


PRIORITIES = st.integers(PRIORITY_MIN, PRIORITY_MAX)

COUNTS = st.integers(0, 10**6)


@given(PRIORITIES, NUMBERS, COUNTS, COUNTS)
def test_a_runnable_name_is_parsed_back(priority: int, task: str, n: int, a: int) -> None:
    entry = Entry(rank_of(priority), task, n, a)
    assert parse_entry(entry.name) == entry


@given(st.lists(st.tuples(PRIORITIES, st.integers(0, 2**31 - 1)), min_size=2, max_size=10))
def test_names_sort_by_priority_then_by_age(tasks: list[tuple[int, int]]) -> None:
    names = [Entry(rank_of(priority), f"{number:010d}", 0, 0).name for priority, number in tasks]
    expected = sorted(tasks, key=lambda task: (-task[0], task[1]))
    assert [names[tasks.index(task)] for task in expected] == sorted(names)


@given(NUMBERS, NUMBERS, COUNTS, st.from_regex(r"[0-9a-f]{1,8}", fullmatch=True))
def test_a_claim_is_parsed_back(plan: str, task: str, n: int, uid: str) -> None:
    name = Paths("/r").claim("worker", plan, task, n, uid).rpartition("/")[2]
    assert parse_claim(name) == (plan, task, n, uid)


@given(st.integers(0, 10**13 - 1), NUMBERS, PRIORITIES, NUMBERS, COUNTS, COUNTS)
def test_a_delayed_entry_is_parsed_back(
    due_ms: int, plan: str, priority: int, task: str, n: int, a: int
) -> None:
    entry = Entry(rank_of(priority), task, n, a)
    assert parse_delayed(delayed_name(due_ms, plan, entry)) == Delayed(due_ms, plan, entry)


@pytest.mark.parametrize("name", ["pending-1", "5000-0000000012.1", "", "5000-000000001٢.1.0", "²"])
def test_near_misses_are_no_entries(name: str) -> None:
    assert parse_entry(name) is None
    assert parse_claim(name) is None
    assert parse_delayed(name) is None


def test_a_number_is_the_ten_digits_at_the_end() -> None:
    assert number_of("/r/plan-0000000007") == "0000000007"
    for wrong in ("plan-7", "", "/r/plan-00000000x7"):
        with pytest.raises(InvariantViolated, match="sequence number"):
            number_of(wrong)


def test_paths_lie_below_the_root() -> None:
    paths = Paths("/a/b")
    assert paths.plan("1") == "/a/b/plan-1"
    assert paths.task("1", "2") == "/a/b/plan-1/task-2"
    assert paths.worker("w") == "/a/b/workers/w"
    assert paths.claim("w", "1", "2", 3, "f") == "/a/b/claims/w/1-2.3.f"
