"""Whom a fault may touch: everybody, or some processes in all their lives, or single lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Target:
    """Whom a fault may touch. The checks excuse a lost attempt of these alone.

    `names` are processes of the cluster in all their lives: a bad link is bad for whatever is
    started behind it. `pids` are single lives. `poke` is what the next task is told to do; the
    process that takes the poke names itself. `codes` are the exit codes with which it may end those
    processes (a signal is negative); a process that ends by another code died of something else.
    A fault that `hands_back` tells workers to stop: no attempt is used up by it. One that `refuses`
    may have the server refuse a commit: then that attempt has failed. One of the `store` keeps
    anybody from using it for a while, which uses up no attempt.
    """

    everybody: bool = False
    names: Sequence[str] = ()
    pids: Sequence[int] = ()
    poke: str = ""
    codes: Sequence[int] = ()
    hands_back: bool = False
    refuses: bool = False
    store: bool = False

    def facts(self) -> dict[str, Any]:
        """For the journal."""
        return asdict(self)


EVERYBODY = Target(everybody=True)
#: It ends no session and no process.
NOBODY = Target()
