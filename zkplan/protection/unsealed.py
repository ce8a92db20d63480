"""Find what lies in a plan and is not sealed for its place: the part of a check that needs keys.

It reads all that keys cover: the plan's record and state, definitions, arguments, results, dead
letters, logs, history; and edges. A batch is dropped once it was looked at, so it takes little
memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.layout import Paths, parse_task
from ..protocol.load import VALUES_FIRST, values_next
from ..protocol.requests import ReadChildren, ReadData, ReadMany, Step
from ..protocol.unproven import Unproven
from .guard import Guard
from .misdirected import Directions

#: Tasks, or other znodes with children, whose children are listed at a time.
LISTED_PER_BATCH = 300
#: Values of one request. One may be as large as a request, and the sizes of the next are unknown.
READS_MAX = 100
#: After so many problems the search ends: with a wrong key nothing at all can be opened.
PROBLEMS_MAX = 1000

_FORGED = (
    "put back what its author or a worker wrote there, or remove the plan and create it anew; "
    "`zkplan root show` tells who else may write here"
)
_FORGED_END = "delete it: who finds no task left writes it anew, sealed"


def find_unsealed(guard: Guard, paths: Paths, plan: str) -> Step[list[str]]:
    """What is wrong, and what to do, for each of its znodes that is not sealed for its place."""
    plan_path = paths.plan(plan)
    problems: list[str] = []
    directions = Directions(plan_path)
    names = (yield ReadChildren(plan_path)) or []
    yield from _look(guard, [plan_path], problems, directions)
    for start in range(0, len(names), LISTED_PER_BATCH):
        batch = [f"{plan_path}/{name}" for name in names[start : start + LISTED_PER_BATCH]]
        listed = yield ReadMany([ReadChildren(path) for path in batch])
        inside = [
            f"{path}/{name}"
            for path, found in zip(batch, listed, strict=True)
            for name in found or ()
        ]
        yield from _look(guard, sorted([*batch, *inside], key=_kind), problems, directions)
        if len(problems) >= PROBLEMS_MAX:
            break
    problems += [f"{told}; {_FORGED}" for told in directions.wrong()]
    if len(problems) >= PROBLEMS_MAX:
        del problems[PROBLEMS_MAX:]
        problems.append(f"the search ended after {PROBLEMS_MAX} of these: there may be more")
    return problems


def _kind(path: str) -> tuple[int, str]:
    """Data of one kind are of similar sizes, and these decide how many are asked for at a time."""
    depth, name = path.count("/"), path.rpartition("/")[2]
    return depth, "task" if parse_task(name) else name.partition("-")[0]


def _look(
    guard: Guard, wanted: Sequence[str], problems: list[str], directions: Directions
) -> Step[None]:
    covered = [path for path in wanted if guard.covers(path) or "/prov-" in path]
    at, values = 0, VALUES_FIRST
    while at < len(covered) and len(problems) < PROBLEMS_MAX:
        batch = covered[at : at + values]
        nodes = yield ReadMany([ReadData(path) for path in batch])
        at, values = at + len(batch), min(values_next(nodes), READS_MAX)
        for path, node in zip(batch, nodes, strict=True):
            if node is None:
                continue
            if isinstance(node.data, Unproven):
                problems.append(_problem(path, node.data))
            elif told := directions.see(path, node.data):
                problems.append(f"{told}; {_FORGED}")


def _problem(path: str, refused: Unproven) -> str:
    if not refused.is_forged:
        return str(refused.error)  # its key is unknown here, which the error says, and what to do
    return f"{refused.error}; {_FORGED_END if path.endswith('/done') else _FORGED}"
