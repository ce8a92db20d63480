"""What broken variants of runs of pure tasks do: the simulation must find each (`mutants.py`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from zkplan.protocol.core import commit as committing
from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.core.load import Loaded
from zkplan.protocol.requests import Check, Delete, Multi, Op, ReadChildren, Refused

from . import store
from .network import Fiber
from .story import Meant, outcomes_in
from .world import ROOT, World

#: Stands where an operation was taken out: answers are by position.
NOTHING = Check(ROOT)
Answers = Generator[Any, Any, Any]
#: What a variant makes of an operation on its way to the server.
Rewrite = Callable[[World, Fiber, Op], Op]
_real_sort_out = committing._sort_out


class Unfenced(committing._Commit):
    """A run does not delete the claim of its first task: only what follows is in the way."""

    def __init__(self, me: Any, parts: Sequence[Part], allowance: Any) -> None:
        super().__init__(me, parts, allowance)
        runs = {part.loaded.claim.path for part in parts if part.run}
        self.ops = [NOTHING if type(op) is Delete and op.path in runs else op for op in self.ops]


class Unguarded(committing._Commit):
    """A run is committed whatever became of its plan meanwhile."""

    def __init__(self, me: Any, parts: Sequence[Part], allowance: Any) -> None:
        super().__init__(me, parts, allowance)
        if any(part.run for part in parts):
            self.ops = [
                NOTHING if type(op) is Check and op.path.endswith("/ready") else op
                for op in self.ops
            ]


def new_edges_go_too(
    report: Any, rest: list[Part], owner: int, answer: Refused, *others: Any
) -> Answers:
    """What came below a task of a run meanwhile is deleted with it, and nobody is given it."""
    run = rest[owner].run
    grown = [part for part in run if part.loaded.claim.task_path == answer.path]
    if not grown:
        yield from _real_sort_out(report, rest, owner, answer, *others)
        return
    loaded = grown[0].loaded
    edges = {name for name, _ in loaded.edges}
    loaded.others = [name for name in (yield ReadChildren(answer.path)) or () if name not in edges]


def fenced_goes_on(
    report: Any, rest: list[Part], owner: int, answer: Refused, *others: Any
) -> Answers:
    """A worker whose first task was taken away commits the next one of the run all the same."""
    part = rest[owner]
    if part.run and answer.path == part.loaded.claim.path:
        task = part.run[0].loaded.claim.task_path
        provs = [Delete(f"{task}/{name}") for name, _ in part.run[0].loaded.edges]
        yield Multi([*provs, *part.run[0].end_ops()])
    yield from _real_sort_out(report, rest, owner, answer, *others)


def write_ahead(task: Meant, item: Loaded) -> Generator[Any, Any, bytes]:
    """A task without a claim writes its result to the store, too."""
    outcome = store.sealed(task, f"{item.claim.task}.0", task.outcome(outcomes_in(item)))
    yield from store.writes(item.claim.plan, store.blobs_of(task, outcome))
    return outcome
