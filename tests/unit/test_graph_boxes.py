"""The page groups the graph of a plan into few boxes that open down to single tasks (in node)."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from .in_node import MODULES, in_node

MODEL = MODULES / "graph/model.js"
BOXES_MAX, PARTS_MAX = 24, 12
#: Opens the largest box again and again, and prints what each picture has.
SCRIPT = f"""
import {{ GraphModel }} from "{MODEL.as_uri()}";
import {{ readFileSync }} from "node:fs";
const model = new GraphModel();
model.load(JSON.parse(readFileSync(0, "utf8")), 0);
const shown = [];
for (;;) {{
  const {{ nodes, edges, trail }} = model.picture();
  const inside = nodes.filter((node) => !node.isBeside);
  shown.push({{
    tasks: inside.reduce((sum, node) => sum + node.all, 0),
    boxes: inside.length,
    beside: nodes.length - inside.length,
    edges: edges.length,
    depth: trail.length,
    titles: inside.map((node) => node.title),
    notes: inside.map((node) => node.note),
  }});
  const larger = inside.filter((node) => !node.isOne).sort((a, b) => b.all - a.all);
  if (!larger.length) break;
  model.open(larger[0].id);
}}
model.close(0);
model.follow({{ whole: false, more: 0, added: 2, finished: 2, tasks: [] }}, 1);
const {{ nodes, trail }} = model.picture();
shown.push({{ notes: nodes.map((node) => node.note), depth: trail.length }});
console.log(JSON.stringify(shown));
"""


def node_of(number: int, function: str, state: str = "waiting") -> dict[str, Any]:
    name = f"{function} {number:05}"
    return {"name": name, "function": f"jobs.{function}", "state": state, "numbers": [number]}


def pictures(nodes: list[dict[str, Any]], edges: set[tuple[int, int]]) -> list[dict[str, Any]]:
    ways = [{"source": source, "target": target} for source, target in sorted(edges)]
    graph = {"grouped": False, "sampled": False, "nodes": nodes, "edges": ways}
    found: list[dict[str, Any]] = in_node(SCRIPT, graph)
    return found


def test_ten_thousand_tasks_make_few_boxes_that_open_down_to_single_tasks() -> None:
    chance = random.Random(7)
    layers, wide = 50, 200
    functions = ("load", "clean", "join", "write")
    nodes = [node_of(n, chance.choice(functions)) for n in range(layers * wide)]
    edges = {
        (wide * (layer - 1) + chance.randrange(wide), wide * layer + at)
        for layer in range(1, layers)
        for at in range(wide)
        for _ in range(2)
    }
    *opened, ended = pictures(nodes, edges)
    assert opened[0]["tasks"] == layers * wide
    assert 2 * len(functions) <= opened[0]["boxes"] <= BOXES_MAX
    assert [each["depth"] for each in opened] == list(range(len(opened)))
    assert all(each["boxes"] <= PARTS_MAX for each in opened[1:])
    assert all(small["tasks"] < large["tasks"] for large, small in pairwise(opened))
    assert "waiting" in opened[-1]["notes"][0]  # a task by itself
    assert ended["depth"] == 0
    assert all(note.endswith("finished") for note in ended["notes"])


def test_a_wide_map_opens_by_runs_of_its_tasks() -> None:
    many = 9_998
    nodes = [node_of(0, "split"), *(node_of(n, "part") for n in range(1, many + 1))]
    nodes += [node_of(many + 1, "reduce")]
    nodes[5]["state"], nodes[6]["state"] = "dead", "running"
    edges = {way for n in range(1, many + 1) for way in ((0, n), (n, many + 1))}
    whole, runs, *_, last, _ = pictures(nodes, edges)
    assert sorted(whole["titles"]) == ["part", "reduce 09999", "split 00000"]
    assert "9,998 left · 1 dead" in whole["notes"]
    assert (runs["boxes"], runs["beside"], runs["edges"]) == (PARTS_MAX, 2, 2 * PARTS_MAX)
    assert (runs["titles"][0], runs["titles"][-1]) == ("part 1\u2013834", "part 9,166\u20139,998")
    assert last["boxes"] <= PARTS_MAX
    assert last["titles"][0].startswith("part 0")
