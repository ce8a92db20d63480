"""The check finds a cycle exactly where there is one, whatever else the plan has."""

from __future__ import annotations

import itertools
import tracemalloc
from array import array
from graphlib import CycleError, TopologicalSorter

from hypothesis import given
from hypothesis import strategies as st

from zkplan.protocol.features.task_cycles import Feeds

TASKS = array("Q", [3, 5, 8, 9, 9_999_999_999])
EDGES = st.lists(st.tuples(st.sampled_from(TASKS), st.sampled_from(TASKS)), max_size=9)
CHAIN = 50_000


def feeds(*edges: tuple[int, int]) -> Feeds:
    made = Feeds(TASKS)
    for source, target in edges:
        made.add(source, target)
    return made


@given(EDGES)
def test_a_cycle_is_found_exactly_where_there_is_one(edges: list[tuple[int, int]]) -> None:
    found = feeds(*edges).cycle()
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for source, target in edges:
        sorter.add(target, source)
    try:
        sorter.prepare()
    except CycleError:
        assert found[0] == found[-1]
        assert set(itertools.pairwise(found)) <= set(edges)
        assert len(found) > 1
    else:
        assert found == []


def test_what_a_cycle_feeds_and_what_feeds_it_is_not_named() -> None:
    found = feeds((3, 5), (5, 8), (8, 5), (8, 9)).cycle()
    assert found in ([5, 8, 5], [8, 5, 8])


def test_edges_of_tasks_that_are_not_listed_are_ignored() -> None:
    assert feeds((4, 5), (5, 4), (10_000_000_000, 3), (3, 2)).cycle() == []


def test_a_long_chain_takes_little_memory() -> None:
    tasks = array("Q", range(CHAIN))
    tracemalloc.start()
    made = Feeds(tasks)
    for number in range(CHAIN - 1):
        made.add(number, number + 1)
    assert made.cycle() == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * CHAIN
