"""Late copies: find which refused transaction of a step was applied after all.

A transaction whose answer was lost is sent again. The repetition may be refused for a reason that
passes, say a lease that is not empty yet, while the first copy is still under way. Then that copy
may be applied while the step tries something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from .requests import ReadChildren, Refused, Step

T = TypeVar("T")


class LateCopies(Generic[T]):
    """The transactions of one step that were refused after a lost answer."""

    def __init__(self, claims_path: str) -> None:
        """`claims_path` is the claims node of the worker that sends them."""
        self._claims_path = claims_path
        #: The names on the claims node when it was read last.
        self.standing: Sequence[str] = ()
        self._sent: list[tuple[Sequence[str], T]] = []

    def applied(self, answer: Refused, names: Sequence[str], sent: T) -> Step[T | None]:
        """Which transaction was applied: `sent`, which `answer` refuses, or one before it.

        To be asked after every refusal. `names` are those that `sent` makes on the claims node, and
        nobody but this step. Without names nobody is owed anything if it was applied, and it is not
        looked for. Where several make the same name, the first comes back: see `standing`.
        """
        if answer.repeated and names:
            self._sent.append((names, sent))
        if not self._sent:
            return None
        self.standing = (yield ReadChildren(self._claims_path)) or ()
        return next((sent for names, sent in self._sent if stands_any(names, self.standing)), None)


def stands_any(names: Sequence[str], standing: Sequence[str]) -> bool:
    """Whether any of `names` stands.

    Of the claims that a transaction has made, an operator may have taken some since. Where all were
    taken, nothing is left to do.
    """
    return not {*names}.isdisjoint(standing)
