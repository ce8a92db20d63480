"""The demonstration's plan: chunks are parsed, a tree of merges combines them, one task reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import zkplan
from zkplan.demo import analysis
from zkplan.demo.analysis import Chunk
from zkplan.demo.journal import recorded


class Graph(NamedTuple):
    """The tasks of the plan, the last of which gives the report, and how many edges join them."""

    tasks: list[zkplan.Task]
    edges: int


def add_graph(plan: zkplan.Plan, folder: str, chunks: Sequence[Chunk], journal: str) -> Graph:
    """Add all in one call: a task per chunk, merges of at most FAN_IN parts, a report."""
    level = [
        zkplan.TaskSpec(
            recorded,
            (journal, analysis.analyse, folder, list(chunk.files)),
            name=f"parse {chunk.name}",
        )
        for chunk in chunks
    ]
    specs = list(level)
    edges = 0
    depth = 0
    while len(level) > 1:
        depth += 1
        edges += len(level)
        level = [
            zkplan.TaskSpec(
                recorded, (journal, analysis.merge, list(parts)), name=f"merge {depth}.{number}"
            )
            for number, parts in enumerate(analysis.batches(level, analysis.FAN_IN), start=1)
        ]
        specs += level
    specs.append(zkplan.TaskSpec(recorded, (journal, analysis.report, level[0]), name="report"))
    return Graph(plan.add_tasks(specs), edges + 1)
