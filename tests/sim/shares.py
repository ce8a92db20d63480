"""S21: who changes a plan's share leaves its state, and who changes its state leaves its share."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from zkplan.errors import PlanError
from zkplan.protocol.core import plan_life as share
from zkplan.protocol.records import Share, control_from_bytes, share_from_bytes

from .story import Violation

#: The kind of the fibers that change a share.
SHARES = "share"


def change(path: str, wanted: list[Share]) -> Generator[Any, Any, None]:
    """Change the share of a plan several times."""
    for each in wanted:
        try:
            yield from share.change_share(path, each)
        except PlanError:
            return  # not ready yet, done, cancelled or removed: a clear refusal


class Controls:
    """What stands in the `ready` of each plan."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def judge(self, kind: str, path: str, data: bytes) -> None:
        """A fiber of that kind has written `data` there."""
        before = self._known.get(path, b"")
        self._known[path] = data
        if kind == SHARES and control_from_bytes(data) != control_from_bytes(before):
            raise Violation(
                f"S21 a change of its share leaves {path} as {data!r}, after {before!r}"
            )
        if kind != SHARES and share_from_bytes(data)[:2] != share_from_bytes(before)[:2]:
            raise Violation(f"S21 {kind} loses the share: {path} is {data!r}, after {before!r}")
