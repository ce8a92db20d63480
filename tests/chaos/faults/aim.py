"""Whom a fault may touch: everybody, or some actors, or some of their processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Aim:
    """Whom a fault may touch.

    `names` are those of actors, in all lives that they have meanwhile: what is wrong with a link is
    wrong for whoever is started behind it. `pids` are single lives. `poke` is what the nearest task
    is told to do, which names its process itself.
    """

    everybody: bool = False
    names: Sequence[str] = ()
    pids: Sequence[int] = ()
    poke: str = ""

    def facts(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "everybody": self.everybody,
            "names": list(self.names),
            "pids": list(self.pids),
            "poke": self.poke,
        }


EVERYBODY = Aim(everybody=True)
#: It ends no session and no process.
NOBODY = Aim()
