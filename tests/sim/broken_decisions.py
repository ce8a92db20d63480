"""Broken variants of decisions about single tasks: the simulation must find each of them."""

from __future__ import annotations

from typing import Any

from zkplan.protocol import interference as late_copies
from zkplan.protocol.core import add as adding
from zkplan.protocol.core import claim as claiming
from zkplan.protocol.core import commit as committing
from zkplan.protocol.core import commit_part as parts
from zkplan.protocol.core import end_claims as ending
from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.features import decisions as deciding
from zkplan.protocol.features import update as updating
from zkplan.protocol.layout import Entry, parse_entry
from zkplan.protocol.requests import Await, Create, Delete, Op, Refused

from . import mixes
from .auditor import DECIDES
from .broken_runs import Answers
from .mutant import Mutant, only, without
from .mutants import answered
from .network import Fiber
from .world import ROOT, World


def _decision_keeps_n(world: World, fiber: Fiber, op: Op) -> Op:
    if fiber.kind != DECIDES or type(op) is not Create:
        return op
    head, _, name = op.path.rpartition("/")
    entry = parse_entry(name)
    if entry is None or not entry.n:
        return op
    return Create(f"{head}/{Entry(entry.rank, entry.task, entry.n - 1, entry.a).name}")


def _first_stands(names: Any, standing: Any) -> bool:
    """A batch counts as applied by its first claim alone, which an operator may have taken."""
    return names[0] in standing


def _read_before(*arguments: Any, **options: Any) -> Answers:
    """A batch that is found applied is run from what was read behind its first try."""
    step, answer, read = _real_claim(*arguments, **options), None, None
    while True:
        try:
            request = step.send(answer)
        except StopIteration as stop:
            found = stop.value
            return found._replace(read=found.read or read) if found.claims else found
        answer = yield request
        if type(answer) is list and type(request) is Await:
            read = answer


_real_claim = claiming.claim
_real_decide = deciding.decide


def _decided_repeat_is_refused(*arguments: Any, **options: Any) -> Answers:
    """After a lost answer the operator takes the refusal of the second copy at its word."""

    def as_first(_request: Any, answer: Any) -> Any:
        return answer._replace(repeated=False) if type(answer) is Refused else answer

    return answered(_real_decide(*arguments, **options), as_first)


def _tell_all(part: Part) -> list[Any]:
    """A dead task tells of its failure along all edges, and a retry finds none of them."""
    return part.loaded.edges


def _lend_all(plan_path: str, tasks: Any, first: int, finishing: Any, _dying: Any) -> list[Op]:
    """A dead task tells of its failure whoever is added in the same transaction."""
    return _real_added(plan_path, tasks, first, finishing)


_PART: Any = parts.Part
_real_added = adding.added_ops

#: Found by the simulation alone: real operators seldom meet a task at that moment.
OF_DECISIONS = (
    *only(
        lambda world: world.mix.decisions > 0,
        Mutant(
            "decision not fenced against the claim",
            without(
                lambda fiber, op: (
                    fiber.kind == DECIDES
                    and type(op) is Delete
                    and op.path.startswith(f"{ROOT}/claims/")
                )
            ),
        ),
        Mutant(
            "decision that leaves the entry",
            without(
                lambda fiber, op: (
                    fiber.kind == DECIDES and type(op) is Delete and "/runnable/" in op.path
                )
            ),
        ),
        Mutant(
            "decision that cuts one end of an edge",
            without(
                lambda fiber, op: (
                    fiber.kind == DECIDES and type(op) is Delete and "/prov-" in op.path
                )
            ),
        ),
        Mutant("decision that keeps N", _decision_keeps_n),
        Mutant(
            "refused repetition of a decision taken as refused",
            patches=((deciding, "decide", _decided_repeat_is_refused),),
        ),
        Mutant(
            "batch of claims known by its first one",
            patches=((late_copies, "stands_any", _first_stands),),
            mix=mixes.decided_meanwhile,
        ),
        Mutant(
            "batch of claims found applied and not read anew",
            patches=((claiming, "claim", _read_before),),
            mix=mixes.decided_meanwhile,
        ),
    ),
    # Not by decisions alone: whatever dies in a plan that holds.
    Mutant(
        "dead task that tells everybody",
        patches=((_PART, "edges", property(_tell_all)),),
        mix=mixes.told_of_failures,
    ),
    Mutant(
        "dead task that tells all that are added",
        patches=((committing, "added_ops", _lend_all), (updating, "added_ops", _lend_all)),
        mix=mixes.dying,
    ),
    Mutant(
        "dead task that keeps the mark of a delivery",
        patches=tuple((each, "undelivered_ops", lambda _: []) for each in (ending, parts)),
    ),
)
