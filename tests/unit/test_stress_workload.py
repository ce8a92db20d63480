"""The stress workload: a seeded graph, and an oracle that depends on everything on the way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zkplan.stress.workload import Workload, digest_of, random_graph, value_of

sizes = st.integers(min_value=0, max_value=40)


@given(sizes, st.integers(min_value=0, max_value=12), st.integers())
def test_each_task_depends_on_as_many_earlier_tasks_as_there_are(
    tasks: int, deps: int, seed: int
) -> None:
    graph = random_graph(tasks, deps, seed)

    assert len(graph) == tasks
    for task, needed in enumerate(graph):
        assert len(set(needed)) == len(needed) == min(deps, task)
        assert all(0 <= other < task for other in needed)


def test_a_seed_gives_the_same_graph_and_another_seed_another_one() -> None:
    assert random_graph(50, 3, seed=7) == random_graph(50, 3, seed=7)
    assert random_graph(50, 3, seed=7) != random_graph(50, 3, seed=8)


def test_the_oracle_gives_each_task_the_values_of_its_dependencies() -> None:
    workload = Workload([[], [0], [0, 1]])

    first = value_of(0, {})
    second = value_of(1, {0: first})
    assert workload.values == [first, second, value_of(2, {0: first, 1: second})]
    assert workload.digests == [
        digest_of({}),
        digest_of({0: first}),
        digest_of({0: first, 1: second}),
    ]


def test_a_digest_tells_apart_other_values_other_sources_and_missing_ones() -> None:
    digests = [
        digest_of({0: "a", 1: "b"}),
        digest_of({0: "b", 1: "a"}),
        digest_of({0: "a", 2: "b"}),
        digest_of({0: "a"}),
    ]

    assert len(set(digests)) == 4
    assert digest_of({1: "b", 0: "a"}) == digests[0]


def test_sinks_are_the_tasks_nobody_depends_on() -> None:
    workload = Workload([[], [0], [0], [1]])

    assert workload.sinks == [2, 3]
    assert (workload.tasks, workload.edges) == (4, 3)
