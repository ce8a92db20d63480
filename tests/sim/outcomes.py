"""S4, S18, S19: which outcome a task may have, and who is told of a failure while it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .story import FAILED, SKIPPED, Meant, Violation


def fix(task: Meant, outcome: bytes) -> None:
    """S4: the tree has accepted `outcome` for good."""
    if task.verdict is not None and outcome != task.verdict:
        raise Violation(f"S18 {task.name} ends with {outcome!r}, decided was {task.verdict!r}")
    if task.fixed is None:
        if not task.may_be(outcome):
            raise Violation(f"S4 the outcome of {task.name} is {outcome!r}: not the oracle's")
        task.fixed = outcome
    elif task.fixed != outcome:
        raise Violation(f"S4 {task.name} has two outcomes: {task.fixed!r} and {outcome!r}")


def judge_told(task: Meant, dep: Meant, data: bytes, *, under: bool, cascades: bool) -> None:
    """S19: a dead task stays. Whoever takes failures gets its failure; others wait for its retry,
    but where failures cascade.

    `under`: the transaction ends a claim of `dep`.
    """
    if not (task.takes_failures or cascades):
        raise Violation(f"S19 {task.name} waits for a retry of {dep.name}, and is told")
    if not under and data != dep.verdict:
        raise Violation(f"S19 {task.name} is told of {dep.name}, which has not failed for good")
    if not dep.may_be(data):
        raise Violation(f"S19 {task.name} is told {data!r} of {dep.name}")


def judge_end(nodes: Mapping[str, Any], task: Meant) -> None:
    """S4: kept is an outcome that failed, that is to be kept, or that went to nobody."""
    fixed = task.fixed or b""
    asked = task.keep if task.keep is not None else not task.delivered
    is_kept = f"{task.path.rpartition('/')[0]}/results/{task.number}" in nodes
    if is_kept != (asked or fixed.startswith((FAILED, SKIPPED))):
        done = "kept" if is_kept else "not kept"
        raise Violation(
            f"S4 the outcome of {task.name} is {done}: keep={task.keep}, {task.delivered=}"
        )
