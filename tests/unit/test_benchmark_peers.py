"""The graphs given to other executors in benchmarks, and the rows made of their results."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from benchmarks import shapes
from benchmarks.peers.comparison import Graph, graphs, rows_of
from benchmarks.peers.graph import plain_graph
from benchmarks.peers.peer import Kind, version_of
from benchmarks.peers.serving import FUNCTIONS
from benchmarks.shapes import Shape, WrongResult

SHAPES = [shape for shape, _ in graphs(lambda full, quick: quick)]
TOOK = {
    "zookeeper": [1.0, 9.0, 2.0],
    "embedded": [4.0, 4.0, 4.0],
    "dask": [8.0, 8.0, 8.0],
    "ray": [4.0, 9.0, 5.0],
}


def values_of(shape: Shape) -> list[Any]:
    """What an executor without any machinery makes of the plain graph."""
    graph, values = plain_graph(shape), list[Any]()
    for name, needed in graph["calls"]:
        values.append(FUNCTIONS[name](*[values[index] for index in needed]))
    return [values[index] for index in graph["leaves"]]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_plain_graph_of_each_shape_computes_its_expected_values(shape: Shape) -> None:
    shape.check_values(values_of(shape))


def test_a_wrong_or_missing_value_is_refused() -> None:
    shape = shapes.random(30, 3)
    values = values_of(shape)
    for wrong in ([*values[:-1], -1], values[:-1]):
        with pytest.raises(WrongResult):
            shape.check_values(wrong)


def test_each_row_has_the_median_and_each_ratio_the_better_peer() -> None:
    graph = Graph("independent 200", 200, "tasks/s", 2.5)
    rows = rows_of(graph, TOOK, {"dask": "by submit"}, is_judged=True)
    figures = {(row.full_name, row.values, row.target, row.met) for row in rows}
    name = graph.name
    assert figures == {
        (f"{name} (zookeeper)", 100.0, "", None),
        (f"{name} (embedded)", 50.0, "", None),
        (f"{name} (dask)", 25.0, "", None),
        (f"{name} (ray)", 40.0, "", None),
        (f"{name}: zookeeper / ray", 2.5, "≥ 2.5", True),
        (f"{name}: embedded / ray", 1.25, "", None),
        (f"{name}: embedded / zookeeper", 0.5, "≥ 0.8", False),
    }
    assert [row.note for row in rows if row.server == "dask"] == ["by submit"]


def test_without_a_peer_only_the_servers_are_compared() -> None:
    graph = Graph("chain 20", 20, "ms/hop", 1.0)
    took = {name: TOOK[name] for name in ("zookeeper", "embedded")}
    rows = rows_of(graph, took, {}, is_judged=False)
    assert [row.name for row in rows if row.unit == "ratio"] == ["chain 20: embedded / zookeeper"]
    assert all(row.met is None for row in rows)


def test_a_peer_that_is_not_installed_has_no_version() -> None:
    absent = Kind("absent", "", "zkplan-has-no-such-peer", "")
    assert version_of(absent, sys.executable) is None
    present = Kind("present", "", "pytest", "")
    assert version_of(present, sys.executable) == pytest.__version__
