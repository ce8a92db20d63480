"""What a fault is, and the catalogue that has them all by name."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..world.arena import ROLES, Actor, Arena, Role
from ..world.servers import KINDS, Kind
from .aim import EVERYBODY, Aim

#: What a fault may claim, besides what belongs to a role.
SHAPE, SERVERS = "shape", "servers"


def links_of(role: Role | None) -> frozenset[str]:
    """What is claimed by who changes the weather of that role's links; None: of all."""
    return frozenset(f"links of {each}" for each in (ROLES if role is None else (role,)))


def points_of(role: Role) -> frozenset[str]:
    """What is claimed by who arms points in that role: to arm some disarms all others."""
    return frozenset({f"points of {role}"})


def stops_of(role: Role) -> frozenset[str]:
    """What is claimed by who stops processes of that role: their healing lets all go on."""
    return frozenset({f"stops of {role}"})


class Fault:
    """One fault: `inject` breaks something, `heal` mends it; each instance is used once.

    `victims` are the actors that feel it, set by `inject`; none: everybody.
    """

    #: How long it lasts, in session time-outs, from when it was felt.
    lasts = (0.2, 1.0)
    #: How long it waits to be felt, in seconds, before it is healed all the same.
    waits_s = 0.0
    #: Whether that it was felt may show only some time after it was healed.
    shows_late = False
    #: The shape of the plan that makes it felt; empty: any.
    shape = ""
    #: Whether servers end by themselves by it: else one that does is a finding.
    breaks_servers = False
    #: Whether nobody has a server meanwhile: how soon plans go on afterwards is measured.
    is_outage = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.victims: list[Actor] = []

    @property
    def claims(self) -> frozenset[str]:
        """What it has for itself while it lasts: a round has no second fault that claims it too.

        One of both would undo what the other one has done, or replace it. Claimed are the shape of
        plans, all servers, the links of a role, its points, and who of it stands still.
        """
        return frozenset({SHAPE} if self.shape else ())

    def unable(self, arena: Arena) -> str:
        """Why it cannot be injected here and now; empty where it can."""
        return ""

    def inject(self, arena: Arena, chance: random.Random) -> None:
        raise NotImplementedError

    def aim(self) -> Aim:
        """Whom it may touch, once it is injected: only these may lose an attempt by it."""
        return Aim(names=[actor.name for actor in self.victims]) if self.victims else EVERYBODY

    def felt(self, arena: Arena) -> bool:
        """Whether it has hit what it aims at: one that nobody felt has proved nothing.

        Asked again and again from its injection on, and once more when it is to be healed.
        """
        raise NotImplementedError

    def heal(self, arena: Arena) -> None:
        raise NotImplementedError


class Sessions:
    """The sessions that some actors had, and whether each has another one by now.

    Only in the same process: whoever is started anew has a new session anyway.
    """

    def __init__(self, actors: Sequence[Actor]) -> None:
        self._had = {actor: (actor.pid, actor.link.session) for actor in actors}

    def are_over(self) -> bool:
        return all(
            had is not None and actor.pid == pid and actor.link.session not in (None, had)
            for actor, (pid, had) in self._had.items()
        )


@dataclass(frozen=True)
class Entry:
    """A fault of the catalogue. `case` is its number in the list of the README."""

    name: str
    case: str
    does: str
    make: Callable[[str], Fault]
    kinds: Sequence[Kind] = KINDS
    #: How often it is drawn, against the others.
    weight: int = 2

    def fault(self) -> Fault:
        return self.make(self.name)


CATALOGUE: dict[str, Entry] = {}


def enter(entries: Sequence[Entry]) -> None:
    """Put faults into the catalogue; a name is used once."""
    for entry in entries:
        if entry.name in CATALOGUE:
            raise ValueError(f"two faults are named {entry.name!r}")
        CATALOGUE[entry.name] = entry


def for_kind(kind: Kind) -> list[Entry]:
    """The faults that apply to that kind of server."""
    return [entry for entry in CATALOGUE.values() if kind in entry.kinds]
