"""Tasks that functions add: none runs before all of them are there (S4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkplan.errors import ZkplanError
from zkplan.protocol.layout import ADDS

from .story import Meant, Violation


def judge_lost(error: ZkplanError) -> bytes:
    """Functions add tasks only upon one another, and upon tasks whose outcomes are kept."""
    raise Violation(f"S4 what an added task depends on cannot be had any more: {error}")


def judge_placed(nodes: Mapping[str, Any], names: Mapping[str, Meant], task: Meant) -> None:
    """The task may run from now on."""
    adder = names.get(task.name.rpartition("+")[0])
    if adder is None or f"{adder.path}/{ADDS}" not in nodes:
        return
    missing = [each.name for each in adder.adds if not each.numbers]
    if missing:
        raise Violation(f"S4 {task.name} may run, and {missing} are not added yet")
