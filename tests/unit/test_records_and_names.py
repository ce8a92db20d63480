"""Records and names are read back as written, and nothing else is accepted as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkplan.errors import InvariantViolated, PayloadUndecodable
from zkplan.protocol.core.edges import Edge
from zkplan.protocol.core.workers import WorkerRecord
from zkplan.protocol.layout import (
    DEFAULT_QUEUE,
    PRIORITY_MAX,
    PRIORITY_MIN,
    Delayed,
    Entry,
    Paths,
    delayed_name,
    lane_of,
    number_of,
    parse_claim,
    parse_delayed,
    parse_entry,
    rank_of,
)
from zkplan.protocol.records import (
    Dead,
    Failure,
    PlanRecord,
    TaskRecord,
    control_from_bytes,
    control_to_bytes,
    count_from_bytes,
    queue_from_bytes,
    ready_to_bytes,
)
from zkplan.protocol.task_options import DEFAULT_OPTIONS, DELAY_MAX_S, TaskOptions
from zkplan.protocol.transactions import (
    Claim,
    Dependent,
    claim_facts,
    pending_bytes,
    pending_dependents,
)

from .hostile_bytes import NAMES

TASK = "0000000012"
#: int() refuses a text of so many digits.
ENDLESS = "9" * 5000
TEXT = st.text(max_size=30)
SECONDS = st.floats(0, 1e9)
QUEUES = st.just(DEFAULT_QUEUE) | st.from_regex("[a-z0-9._-]{1,40}", fullmatch=True).filter(
    lambda name: name not in (".", "..")
)
OPTIONS = st.builds(
    TaskOptions,
    name=TEXT,
    attempts=st.integers(1, 1000),
    retry_delay=st.floats(0, DELAY_MAX_S),
    timeout=st.none() | st.floats(0.1, 1e6),
    priority=st.integers(-4999, 5000),
    keep=st.none() | st.booleans(),
    queue=QUEUES,
)
NUMBERS = st.integers(0, 2**31 - 1).map(lambda n: f"{n:010d}")
RANKS = st.integers(0, 9999).map(lambda n: f"{n:04d}")
COUNTS = st.integers(0, 10**6)
PRIORITIES = st.integers(PRIORITY_MIN, PRIORITY_MAX)
ENTRIES = st.builds(Entry, PRIORITIES.map(rank_of), NUMBERS, COUNTS, COUNTS)
LANES = st.builds(lane_of, QUEUES, st.lists(QUEUES, max_size=8))
SERVED = st.lists(QUEUES, min_size=1, max_size=3, unique=True).map(tuple)


def _claim(rank: str, a: int, lane: str, permits: Sequence[int] = ()) -> Claim:
    paths = tuple(f"/limits/db/permit-{number}" for number in permits)
    return Claim("1", "2", rank, 0, a, "", "", "", lane, paths)


def through_bytes(record: Any) -> Any:
    return type(record).from_bytes(record.to_bytes())


RECORDS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any]]] = {
    "options": (OPTIONS, lambda found: TaskOptions.from_json(found.to_json())),
    "plan": (
        st.builds(PlanRecord, TEXT, TEXT, SECONDS, OPTIONS, st.sampled_from(["hold", "cascade"])),
        through_bytes,
    ),
    "task": (st.builds(TaskRecord, st.integers(0, 2**16 - 1), *[st.binary()] * 3), through_bytes),
    "edge": (
        st.builds(Edge, NUMBERS, NUMBERS, COUNTS, RANKS, LANES, st.booleans(), COUNTS),
        through_bytes,
    ),
    "failure": (
        st.builds(
            Failure,
            *(*[TEXT] * 4, COUNTS, SECONDS, st.binary(max_size=50), TEXT),
            *(st.lists(TEXT.filter(bool), max_size=3).map(tuple), TEXT, COUNTS),
        ),
        through_bytes,
    ),
    "dead letter": (
        st.builds(Dead, RANKS, COUNTS, COUNTS, TEXT, TEXT, TEXT, LANES, st.booleans()),
        through_bytes,
    ),
    "worker": (
        st.builds(
            WorkerRecord,
            *(TEXT, TEXT, COUNTS, st.integers(1, 500), SECONDS, COUNTS, SERVED, TEXT, TEXT),
            *(
                st.sampled_from(["running", "paused", "draining"]),
                TEXT,
                st.integers(0, 500),
                COUNTS,
            ),
        ),
        lambda found: WorkerRecord.from_bytes(found.id, found.to_bytes(), found.claims),
    ),
    "pending record": (
        st.lists(
            st.builds(Dependent, NUMBERS, NUMBERS, COUNTS, RANKS, LANES, COUNTS),
            max_size=5,
        ),
        lambda found: pending_dependents(pending_bytes(found)),
    ),
    "state": (
        st.sampled_from(["running", "paused", "cancelled"]),
        lambda found: control_from_bytes(control_to_bytes(found)),
    ),
    "entry": (ENTRIES, lambda found: parse_entry(found.name)),
    "claim": (
        st.tuples(NUMBERS, NUMBERS, COUNTS, st.from_regex(r"[0-9a-f]{1,8}", fullmatch=True)),
        lambda found: parse_claim(Paths("/r").claim("worker", *found).rpartition("/")[2]),
    ),
    "delayed entry": (
        st.builds(Delayed, st.integers(0, 10**13 - 1), NUMBERS, ENTRIES, LANES),
        lambda found: parse_delayed(delayed_name(*found)),
    ),
    "claimed": (
        st.tuples(RANKS, st.integers(0, 10**9 - 1), LANES),
        lambda found: tuple(claim_facts(_claim(*found).data))[:3],
    ),
    "permits": (
        st.lists(st.integers(0, 10**9 - 1), max_size=8).map(tuple),
        lambda found: claim_facts(_claim("5000", 0, "gpu~db", found).data).permits,
    ),
    "ready": (
        st.tuples(COUNTS, LANES),
        lambda found: (
            count_from_bytes(ready_to_bytes(*found)),
            queue_from_bytes(ready_to_bytes(*found)),
        ),
    ),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_records_written_to_the_tree_are_read_back_unchanged(kind: str) -> None:
    made, written_and_read = RECORDS[kind]

    @given(made)
    def survives(found: Any) -> None:
        assert written_and_read(found) == found

    survives()


def test_default_options_take_two_bytes() -> None:
    assert DEFAULT_OPTIONS.to_json() == b"{}"
    assert TaskOptions(attempts=4).to_json() == b'{"attempts":4}'


def test_an_empty_plan_record_is_refused() -> None:
    with pytest.raises(PayloadUndecodable, match="a plan record is not JSON"):
        PlanRecord.from_bytes(b"")


@pytest.mark.parametrize(
    "rest", [b"", b',"k":2', b',"entry":"5000-0000000002"', b',"k":-1,"entry":"5000-0000000002"']
)
def test_an_edge_without_its_k_and_entry_is_refused(rest: bytes) -> None:
    data = b'{"dep":"task-0000000002/dep-0000000003"%b}' % rest
    with pytest.raises(PayloadUndecodable, match="does not hold K and the entry"):
        Edge.from_bytes(data)


def test_an_empty_control_record_means_running_and_an_unreadable_one_paused() -> None:
    assert control_from_bytes(b"") == "running"
    for unreadable in (b"x", b"[]", b'{"state":"dancing"}', b'{"state":7}', b"{}", b"\xff"):
        assert control_from_bytes(unreadable) == "paused"


@given(st.lists(st.tuples(PRIORITIES, st.integers(0, 2**31 - 1)), min_size=2, max_size=10))
def test_names_sort_by_priority_then_by_age(tasks: list[tuple[int, int]]) -> None:
    names = [Entry(rank_of(priority), f"{number:010d}", 0, 0).name for priority, number in tasks]
    expected = sorted(tasks, key=lambda task: (-task[0], task[1]))
    assert [names[tasks.index(task)] for task in expected] == sorted(names)


@given(NAMES)
def test_a_name_is_parsed_only_if_it_is_the_canonical_name(name: str) -> None:
    entry, claim, later = parse_entry(name), parse_claim(name), parse_delayed(name)
    assert entry is None or entry.name == name
    assert claim is None or f"{claim.plan}-{claim.task}.{claim.n}.{claim.uid}" == name
    assert later is None or delayed_name(*later) == name


@pytest.mark.parametrize(
    "name",
    [
        *("pending-1", "5000-0000000012.1", "", "5000-000000001٢.1.0", "²"),
        # Numbers that int() would refuse, and names that equal another after parsing.
        f"5000-{TASK}.{ENDLESS}.0",
        f"5000-{TASK}.0.{ENDLESS}",
        f"5000-{TASK}.01.0",
        f"5000-{TASK}.1.0\n",
        f"5000-{TASK}.٣.0",
        f"{TASK}-{TASK}.{ENDLESS}.7f",
        f"{TASK}-{TASK}.1.",
        f"{TASK}000-{TASK}-5000-{TASK}.1.{ENDLESS}",
    ],
)
def test_names_similar_to_entries_are_not_parsed_as_entries(name: str) -> None:
    assert (parse_entry(name), parse_claim(name), parse_delayed(name)) == (None, None, None)


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
