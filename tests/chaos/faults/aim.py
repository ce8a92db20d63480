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
    is told to do, which names its process itself. `codes` are the exit codes with which it may end
    those processes by themselves, that of a signal negative; none: whoever dies died of something
    else. One that `hands_back` tells them to stop: no attempt is used up by it.
    """

    everybody: bool = False
    names: Sequence[str] = ()
    pids: Sequence[int] = ()
    poke: str = ""
    codes: Sequence[int] = ()
    hands_back: bool = False

    def facts(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "everybody": self.everybody,
            "names": list(self.names),
            "pids": list(self.pids),
            "poke": self.poke,
            "codes": list(self.codes),
            "hands_back": self.hands_back,
        }


EVERYBODY = Aim(everybody=True)
#: It ends no session and no process.
NOBODY = Aim()
