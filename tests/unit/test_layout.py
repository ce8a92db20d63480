"""Names of znodes are parsed back to what they were made of, and nothing else is taken for one."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkplan.errors import InvariantViolated
from zkplan.protocol import layout
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

NUMBERS = st.integers(0, 2**31 - 1).map(lambda n: f"{n:010d}")
PRIORITIES = st.integers(PRIORITY_MIN, PRIORITY_MAX)
COUNTS = st.integers(0, 10**6)


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(layout).failed == 0


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


@given(st.text(max_size=60) | st.text("0123456789-.", max_size=60))
def test_any_other_name_is_taken_for_nothing_or_parsed_exactly(name: str) -> None:
    """Names come from ZooKeeper, where anybody may create anything: no parser ever raises."""
    entry, claim, later = parse_entry(name), parse_claim(name), parse_delayed(name)
    if entry is not None:
        assert parse_entry(entry.name) == entry
    if claim is not None:
        assert len(claim.plan) == len(claim.task) == 10
    if later is not None:
        assert parse_delayed(delayed_name(later.due_ms, later.plan, later.entry)) is not None


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
