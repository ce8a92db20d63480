"""The rows of the table: an honest history, one change, and the violation that it must give."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

S = TypeVar("S")


class Row(NamedTuple):
    """`given` are the arguments of the change. An empty `violation`: nothing may be found."""

    history: Callable[[Path], Any]
    change: Callable[..., None]
    given: dict[str, Any]
    violation: str

    def found_in(self, all_found: Iterable[str]) -> bool:
        """Whether one of them has all pieces of the violation, in their order."""
        pattern = re.compile(".*".join(map(re.escape, self.violation.split(" … "))), re.DOTALL)
        return any(pattern.match(text) for text in all_found)

    def __str__(self) -> str:
        given = ", ".join(f"{name} {value}" for name, value in self.given.items())
        name = f"{self.change.__name__.strip('_')} {given}".strip().replace("_", " ")
        return name if self.violation else f"{name}: allowed"


ROWS: list[Row] = []


def row(
    history: Callable[[Path], S], violation: str = "", **given: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put the function into the table: it changes that history. One function may have many rows.

    The violation is told from its beginning; ` … ` stands for what lies between two pieces of it.
    """

    def put(change: Callable[..., None]) -> Callable[..., None]:
        ROWS.append(Row(history, change, given, violation))
        return change

    return put
