"""What broken variants of gates do: the simulation must find each (`mutants.py`)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from zkplan.protocol.core.add import NewTask
from zkplan.protocol.core.repeatable_adds import AddChain
from zkplan.protocol.features.gates import ARGUMENT, ensure_gates
from zkplan.protocol.layout import Entry, entry_path, is_gate_entry
from zkplan.protocol.requests import Check, Create, Delete, Op, Refused

from .network import Fiber
from .world import ROOT, World

_GATES = f"{ROOT}/gates/"
_real_explain = AddChain.explain
#: A class is patched as a module is.
CHAIN: Any = AddChain


def is_check(fiber: Fiber, op: Op) -> bool:
    """Of the znode that a gate waits for."""
    return fiber.kind == "gates" and type(op) is Check


def leaves_the_entry(fiber: Fiber, op: Op) -> bool:
    return type(op) is Delete and op.path.startswith(_GATES)


def at_any_version(world: World, fiber: Fiber, op: Op) -> Op:
    return Check(op.path) if is_check(fiber, op) else op


def run_at_once(plan_path: str, entry: Entry, queue: str) -> list[Op]:
    """A gate that is retried does not wait again."""
    return [
        Delete(f"{plan_path}/task-{entry.task}/{ARGUMENT}"),
        Create(entry_path(plan_path, queue, entry)),
    ]


def not_before(world: World) -> Generator[Any, Any, None]:
    yield from ()


def when_missed(
    chain: AddChain, answer: Refused, task: NewTask | None
) -> Generator[Any, Any, None]:
    """`gates` is made when an add was refused for want of it."""
    if is_gate_entry(answer.path, chain.plan_path):
        yield from ensure_gates(ROOT)
        yield from chain.learn(again=True)
    else:
        yield from _real_explain(chain, answer, task)
