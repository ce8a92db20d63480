"""What a fault is, and the catalogue of all faults by name."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..cluster.cluster import ROLES, Cluster, Process, Role
from ..cluster.servers import KINDS, Kind
from .target import EVERYBODY, Target

_READY_S, _POLL_S = 10.0, 0.05
#: Locks (see Fault.locks). Servers: the healing makes all of them serve. Links of a role: a new
#: state replaces the old one. Points: arming some disarms all others. Stops by signal: the healing
#: continues all processes of the role, and a stopped one does not end when it is told to.
SERVERS = frozenset({"servers"})
POINTS_OF = {role: frozenset({f"points of {role}"}) for role in ROLES}
STOPS_OF = {role: frozenset({f"stops of {role}"}) for role in ROLES}
LINKS_OF: dict[Role | None, frozenset[str]] = {
    role: frozenset({f"links of {role}"}) for role in ROLES
}
LINKS_OF[None] = frozenset().union(*LINKS_OF.values())


class Fault:
    """One fault: `inject` breaks something, `heal` mends it. Each instance is used once.

    `victims` are the processes it hits, set by `inject`; none: everybody.
    """

    #: How long it lasts from its effect on, in session time-outs: at least, at most.
    lasts = (0.2, 1.0)
    #: For how many seconds it is left in place until it takes effect; then it is healed anyway.
    waits_s = 0.0
    #: Whether its effect may show only after the healing, as a lost session does.
    shows_late = False
    #: The shape of plan in which it takes effect; empty: any.
    shape = ""
    #: Whether it makes servers end by themselves; without such a fault that is a violation.
    ends_servers = False
    #: What it has alone while it lasts; see `conflicts`.
    locks: frozenset[str] = frozenset()

    def __init__(self, name: str) -> None:
        self.name = name
        self.victims: list[Process] = []

    def conflicts(self, other: Fault) -> bool:
        """Whether they may not be in one round: one would undo or replace the other."""
        return bool(self.locks & other.locks) or bool(self.shape and other.shape)

    def unable(self, cluster: Cluster) -> str:
        """Why it cannot be injected here; empty where it can."""
        return ""

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        raise NotImplementedError

    def target(self) -> Target:
        """Whom it may touch, known once it is injected: only these may lose an attempt by it."""
        names = [process.name for process in self.victims]
        return Target(names=names) if self.victims else EVERYBODY

    def took_effect(self, cluster: Cluster) -> bool:
        """Whether it has broken what it aims at. A fault without an effect proves nothing.

        Asked again and again from the injection on, and once more before the healing.
        """
        raise NotImplementedError

    def heal(self, cluster: Cluster) -> None:
        raise NotImplementedError


class RoleFault(Fault):
    """A fault of one process, or of all, of a role."""

    def __init__(self, name: str, role: Role, everyone: bool = False) -> None:
        super().__init__(name)
        self.role, self.everyone = role, everyone

    def choose(self, processes: Sequence[Process], chance: random.Random) -> list[Process]:
        return list(processes) if self.everyone else [chance.choice(processes)]


class Sessions:
    """The sessions of some processes, and whether each has another one by now.

    Only within the same life: a process that is started anew has a new session anyway.
    """

    def __init__(self, processes: Sequence[Process]) -> None:
        self._had = {process: (process.pid, process.link.session) for process in processes}

    def are_over(self) -> bool:
        return all(
            had is not None and process.pid == pid and process.link.session not in (None, had)
            for process, (pid, had) in self._had.items()
        )


@dataclass(frozen=True)
class Entry:
    """A fault of the catalogue; `does` is its description, `weight` how often it is drawn.

    One that needs a run with a `store` is drawn in such a run alone.
    """

    name: str
    does: str
    make: Callable[[str], Fault]
    kinds: Sequence[Kind] = KINDS
    weight: int = 2
    store: bool = False

    def fault(self) -> Fault:
        return self.make(self.name)


CATALOGUE: dict[str, Entry] = {}


def enter(
    name: str,
    does: str,
    make: Callable[..., Fault],
    *arguments: Any,
    kinds: Sequence[Kind] = KINDS,
    weight: int = 2,
    store: bool = False,
    **more: Any,
) -> None:
    """Put the fault `make(name, *arguments, **more)` into the catalogue."""
    if name in CATALOGUE:
        raise ValueError(f"two faults are named {name!r}")
    made = partial(_made, make, arguments, more)
    CATALOGUE[name] = Entry(name, does, made, kinds, weight, store)


def _made(
    make: Callable[..., Fault], arguments: tuple[Any, ...], more: dict[str, Any], name: str
) -> Fault:
    return make(name, *arguments, **more)


def for_kind(kind: Kind, store: bool = False) -> list[Entry]:
    """The faults that apply to that kind of server; those of the store with one alone."""
    return [entry for entry in CATALOGUE.values() if kind in entry.kinds and store >= entry.store]


def wait_a_while(ready: Callable[[], bool]) -> None:
    """Wait during an injection, for 10 s at most, for what another fault may prevent."""
    until, pause = time.monotonic() + _READY_S, threading.Event()
    while not ready() and time.monotonic() < until:
        pause.wait(_POLL_S)


def article(noun: str) -> str:
    """The noun with its article, as in `an author`."""
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"
