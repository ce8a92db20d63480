"""A worker or an author with a broken protocol: python -m tests.chaos.mutated NAME worker ….

The broken variants are those of the simulation. Here they change what a real process sends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from kazoo.exceptions import KazooException

from tests.sim.mutants import MUTANTS, Mutant
from tests.sim.world import ROOT
from zkplan.cli import main as zkplan_main
from zkplan.keeper import Keeper
from zkplan.layout import parse_claim
from zkplan.requests import Create, Delete, Multi, Op

from . import author

#: Whose process is broken, where it is not a worker's.
OF_AUTHORS = ("add without identity", "wide join that settles all its positions")
FENCE = "commit fenced by owner only"
NAMES = tuple(mutant.name for mutant in MUTANTS)


def kind_of(ops: Sequence[Op]) -> str:
    """Which step of the simulation a transaction belongs to, as far as its mutants ask."""
    first = ops[0]
    if type(first) is Create and first.path.startswith(f"{ROOT}/worker/"):
        return "clear" if len(ops) > 1 and type(ops[1]) is Delete else "register"
    paths = [op.path for op in ops]
    if any("/arg-" in path and "/authors/" not in paths[0] for path in paths):
        return "commit"
    if any(type(op) is Delete and parse_claim(op.path.rpartition("/")[2]) for op in ops):
        made = [op.path for op in ops if type(op) is Create]
        if any("/runnable/" in path for path in made) and not any("/log-" in p for p in made):
            return "hand back"
        return "commit"
    return ""


def break_protocol(mutant: Mutant) -> None:
    """Everything that this process sends from now on is that of the mutant."""
    for module, name, instead in mutant.patches:
        _replace(getattr(module, name), instead)
    if mutant.name == FENCE:
        _rewrite(_claim_that_stands)
    elif mutant.rewrite is not None:
        rewrite = mutant.rewrite
        world: Any = SimpleNamespace()

        def change(keeper: Keeper, ops: Sequence[Op]) -> list[Op]:
            fiber: Any = SimpleNamespace(kind=kind_of(ops))
            return [rewrite(world, fiber, op) for op in ops]

        _rewrite(change)


def _rewrite(change: Callable[[Keeper, Sequence[Op]], list[Op]]) -> None:
    real = Keeper.submit

    def submit(self: Keeper, request: Any, done: Any) -> Any:
        if type(request) is Multi:
            request = Multi(change(self, request.ops))
        return real(self, request, done)

    Keeper.submit = submit  # type: ignore[method-assign]


def _claim_that_stands(keeper: Keeper, ops: Sequence[Op]) -> list[Op]:
    """A commit deletes whichever claim of its task stands, not the one it was made under."""
    if kind_of(ops) != "commit":
        return list(ops)
    changed: list[Op] = []
    for op in ops:
        claim = parse_claim(op.path.rpartition("/")[2]) if type(op) is Delete else None
        if claim is not None:
            op = Delete(_standing(keeper, claim.plan, claim.task, op.path))
        changed.append(op)
    return changed


def _standing(keeper: Keeper, plan: str, task: str, own: str) -> str:
    desks, client = f"{ROOT}/desk", keeper.client
    while True:
        try:
            if client.exists(own) is not None:
                return own
            for desk in client.get_children(desks):
                for name in client.get_children(f"{desks}/{desk}"):
                    claim = parse_claim(name)
                    if claim is not None and (claim.plan, claim.task) == (plan, task):
                        return f"{desks}/{desk}/{name}"
            return own
        except KazooException:
            continue  # a desk was cleared, or the session was lost: look again


def _replace(original: object, instead: object) -> None:
    """In every module of zkplan that has it: most have imported it by name."""
    for name, module in list(sys.modules.items()):
        if name == "zkplan" or name.startswith("zkplan."):
            for attribute, value in list(vars(module).items()):
                if value is original:
                    setattr(module, attribute, instead)


def main(arguments: list[str]) -> NoReturn:
    name, role, *rest = arguments
    break_protocol(next(mutant for mutant in MUTANTS if mutant.name == name))
    if role == "author":
        sys.exit(author.main(rest))
    zkplan_main([role, *rest])


if __name__ == "__main__":
    main(sys.argv[1:])
