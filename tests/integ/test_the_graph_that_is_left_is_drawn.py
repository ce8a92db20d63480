"""`zkplan plan graph` draws the unfinished tasks in every format, with similar tasks in one box."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.tools.support import Run, fail, wait_until
from zkplan import Client, Plan, PlanNotFound, TaskSpec, Worker
from zkplan.views import graph
from zkplan.views.graph import levels_of


@pytest.fixture
def plan(zkplan_client: Client) -> Plan:
    """One task, a hundred behind it, and one behind those."""
    with zkplan_client.create_plan() as made:
        first = made.add_task(int, name="first")
        parts = made.add_tasks([TaskSpec(str, [first]) for _ in range(100)])
        made.add_task(len, [parts])
    return made


def test_alike_tasks_of_one_level_are_one_box(plan: Plan, run: Run) -> None:
    found = plan.graph()
    assert [(box.level, box.function, box.state, len(box.tasks)) for box in found.boxes] == [
        (0, "builtins.int", "runnable", 1),
        (1, "builtins.str", "waiting", 100),
        (2, "builtins.len", "waiting", 1),
    ]
    assert found.edges == {(0, 1): 100, (1, 2): 100}
    drawn = run("plan", "graph", plan.number).out.splitlines()
    assert drawn == [
        "102 unfinished tasks: 1 runnable, 101 waiting; longest chain: 3 tasks",
        "level 0",
        f"  [1] builtins.int: task {int(found.boxes[0].tasks[0])}, runnable",
        "level 1",
        "  [2] builtins.str: 100 tasks, waiting  after [1] (100 edges)",
        "level 2",
        f"  [3] builtins.len: task {int(found.boxes[2].tasks[0])}, waiting  after [2] (100 edges)",
    ]
    assert run("plan", "graph", plan.number, "-o", "json").data["edges"] == [
        {"from": 0, "to": 1, "count": 100},
        {"from": 1, "to": 2, "count": 100},
    ]


def test_finished_tasks_are_not_drawn(zkplan_client: Client, worker: Worker) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        plan.add_task(max, [plan.add_task(int), plan.add_task(fail)])
    wait_until(lambda: plan.status().state == "failed", "only the dead task keeps it")
    boxes = [(box.function, box.state) for box in plan.graph().boxes]
    assert boxes == [("tests.tools.support.fail", "dead"), ("builtins.max", "waiting")]
    plan.remove()
    with pytest.raises(PlanNotFound):
        plan.graph()


def test_a_long_graph_is_drawn_without_levels(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(graph, "BOXES_MAX", 2)
    assert {box.level for box in plan.graph().boxes} == {None}
    assert run("plan", "graph", plan.number).out.splitlines()[1] == "all levels together"


def test_a_sampled_graph_shows_the_same_boxes_with_estimates(plan: Plan, run: Run) -> None:
    found = plan.graph(sample=10)
    told = {(box.function, box.state): found.tasks_of(box) for box in found.boxes}
    assert told == {
        ("builtins.int", "runnable"): 10,
        ("builtins.str", "waiting"): 92,
    }
    assert found.edges == {(0, 1): 92}
    drawn = run("plan", "graph", plan.number, "--sample", "10").out
    assert "builtins.str: about 92 tasks, waiting  after [1] (about 92 edges)" in drawn
    assert plan.graph(sample=102).boxes == plan.graph().boxes


def test_rare_functions_share_a_box_and_no_line_is_too_long(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    names = (f"{'package.' * 12}f{at:03}" for at in range(102))
    monkeypatch.setattr(graph, "_function", lambda *_: next(names))
    monkeypatch.setattr(graph, "BOXES_MAX", 8)
    drawn = run("plan", "graph", plan.number).out.splitlines()
    assert max(map(len, drawn)) <= 80
    text = " ".join(" ".join(drawn).split())
    assert f"[5] {graph.OTHERS}: 98 tasks, waiting after [1] (97 edges)" in text


def test_mermaid_and_dot_escape_their_special_characters(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    name = 'a"<b>\\#'
    monkeypatch.setattr(graph, "_function", lambda *_: name)
    mermaid = run("plan", "graph", plan.number, "--format", "mermaid").out
    assert mermaid.startswith('flowchart TD\n  n1["a#quot;#lt;b#gt;')
    assert "n1 -->|100| n2" in mermaid
    dot = run("plan", "graph", plan.number, "--format", "dot").out
    assert 'label="a\\"<b>\\\\' in dot
    assert 'n1 -> n2 [label="100"];' in dot
    assert 'label="102 unfinished tasks: 1 runnable, 101 waiting; longest chain: 3 tasks' in dot
    program = shutil.which("dot")
    svg = run("plan", "graph", plan.number, "--format", "svg")
    if program is None:
        assert (svg.code, "use --format dot or mermaid" in svg.err) == (2, True)
    else:
        subprocess.run([program, "-Tsvg"], input=dot, text=True, check=True, capture_output=True)
        assert "</svg>" in svg.out


def test_edges_that_would_overlap_are_left_out_and_counted(zkplan_client: Client, run: Run) -> None:
    """Eight functions on each of two levels, and all edges between them."""
    functions = [int, str, list, dict, set, float, bool, tuple]
    with zkplan_client.create_plan() as made:
        first = made.add_tasks([TaskSpec(each) for each in functions])
        made.add_tasks([TaskSpec(each, [], after=first) for each in functions])
    assert len(made.graph().edges) == 64
    drawn = run("plan", "graph", made.number).out
    assert drawn.count("after [1], [2], [3], [4], 4 other boxes") == 8
    dot = run("plan", "graph", made.number, "--format", "dot").out
    assert dot.count(" -> ") == 16
    assert "only the 2 strongest are drawn; 48 others are left out" in dot


def test_a_cycle_is_drawn_last() -> None:
    assert levels_of("abc", [("b", "c"), ("c", "b")]) == {"a": 0, "b": 1, "c": 1}
