"""Records survive the way to bytes and back; any other bytes are PayloadUndecodable, no crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkplan.errors import PayloadUndecodable
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
#: JSON objects with the right names and wrong values, the garbage that comes closest.
NAMES = st.sampled_from(
    [
        *("name", "uid", "created", "defaults", "on_failure", "format", "attempts", "retry_delay"),
        *("timeout", "priority", "keep", "dep", "k", "entry", "kind", "message", "traceback"),
        *("worker", "n", "when", "rank", "a", "error", "host", "pid", "slots", "started", "state"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
GARBAGE = (
    st.binary(max_size=60)
    | st.dictionaries(NAMES, JSON, max_size=6).map(lambda value: json.dumps(value).encode())
    | JSON.map(lambda value: json.dumps(value).encode())
)


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


DECODERS: list[Callable[[bytes], Any]] = [
    TaskOptions.from_json,
    PlanRecord.from_bytes,
    TaskRecord.from_bytes,
    Edge.from_bytes,
    Failure.from_bytes,
    lambda data: Failure.from_bytes(len(data).to_bytes(4, "big") + data),
    Dead.from_bytes,
    lambda data: WorkerRecord.from_bytes("w", data, 0),
    control_from_bytes,
]


@given(st.sampled_from(DECODERS), GARBAGE)
def test_no_bytes_crash_a_decoder(decode: Callable[[bytes], Any], data: bytes) -> None:
    """A worker meets what others wrote; whatever it is, only PayloadUndecodable may come of it."""
    try:
        decode(data)
    except PayloadUndecodable:
        pass


@given(GARBAGE)
def test_decoded_options_have_the_right_types(data: bytes) -> None:
    """A wrong type would break the worker later, far from where it came from."""
    try:
        options = TaskOptions.from_json(data)
    except PayloadUndecodable:
        return
    assert type(options.name) is str
    assert type(options.attempts) is int
    assert type(options.priority) is int
    assert type(options.retry_delay) in (int, float)
    assert options.timeout is None or type(options.timeout) in (int, float)
    assert options.keep in (None, True, False)
