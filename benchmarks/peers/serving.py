"""Serve runs of graphs in the process of another executor, and answer with the time of each.

This module and those that use it import only the other executor and the standard library, because
they run where zkplan is not installed.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..functions import depth, nothing, successor, total, zero

#: Runs the calls of a graph, and returns the values of its leaves, in their order.
Way = Callable[[Sequence[tuple[Callable[..., Any], list[int]]], list[int]], list[Any]]


def total_of(*values: int) -> int:
    return total(list(values))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "nothing": nothing,
    "zero": zero,
    "successor": successor,
    "depth": depth,
    "total": total_of,
}


def serve(
    start: Callable[[], None], ways: dict[str, Way], settle: Callable[[], None] = lambda: None
) -> None:
    """Answer each line of the input, a graph and the way to run it, with the time and the values.

    `settle` waits until nothing is left of a run that could disturb the next one.
    """

    def run(asked: dict[str, Any]) -> dict[str, Any]:
        calls = [(FUNCTIONS[name], needed) for name, needed in asked["calls"]]
        gc.collect()
        began = time.perf_counter()
        values = ways[asked["way"]](calls, asked["leaves"])
        seconds = time.perf_counter() - began
        settle()
        return {"seconds": seconds, "values": values}

    answer_lines(start, {"ways": list(ways)}, run)


def answer_lines(
    start: Callable[[], None],
    first: dict[str, Any],
    answer: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """Start, print `first`, and answer each line of the input until it ends."""
    # The prints of the peer go to standard error, so that standard output has only the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    start()
    _tell(answers, first)
    for line in sys.stdin:
        _tell(answers, answer(json.loads(line)))


def _tell(answers: Any, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
