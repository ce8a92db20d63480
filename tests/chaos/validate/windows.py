"""When a fault was under way and whom it may touch; and who died by itself, as the cluster
wrote."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from ..faults.target import EVERYBODY
from ..faults.target import Target as Target


@dataclass
class Window:
    """A fault from its injection to its healing, and whom it may touch."""

    name: str
    begin: float
    aim: Target = EVERYBODY
    end: float = float("inf")

    def overlaps(self, begin: float, end: float) -> bool:
        return self.begin <= end and self.end >= begin


def aim_of(line: dict[str, Any]) -> Target:
    """As the cluster wrote it."""
    return Target(**{each.name: line[each.name] for each in fields(Target)})


class Death(NamedTuple):
    """A process that ended though nobody had ended it; `code` of a signal is negative."""

    name: str
    pid: int
    at: float
    code: int
    tail: str

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}) ended by itself, with {self.code}:\n{self.tail}"
