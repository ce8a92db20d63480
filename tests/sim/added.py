"""Tasks that functions add: what they depend on can be had until the last of them is added (S4)."""

from __future__ import annotations

from zkplan.errors import ZkplanError

from .story import Violation


def judge_lost(error: ZkplanError) -> bytes:
    """Functions add tasks only upon one another, and upon tasks whose outcomes are kept."""
    raise Violation(f"S4 what an added task depends on cannot be had any more: {error}")
