"""Faults of the links of processes: cut, lost, late, held, slow, half open, another session."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..cluster.cluster import Cluster, Process, Role
from ..cluster.link import LinkState, Loss
from .fault import LINKS_OF, Fault, Sessions, article, enter
from .processes import PAST_SESSION
from .target import NOBODY, Target

#: For a transaction to lose, or a new session.
_WAITS_S = 15.0
MakeState = Callable[[random.Random], LinkState]


class BadLink(Fault):
    """The link of one process of a role, or of everybody, gets that state."""

    #: Whether the healing keeps the connections of now, and delivers what was held.
    keeps_connections = False

    def __init__(
        self, name: str, state: MakeState, whose: Role | None = None, waits_s: float = 0.0
    ) -> None:
        super().__init__(name)
        self.state, self.whose, self.locks = state, whose, LINKS_OF[whose]
        self.waits_s = waits_s

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        self._hit = cluster.processes
        if self.whose is not None:
            self.victims = self._hit = [chance.choice(cluster.of(self.whose))]
        self._before = _affected(self._hit)
        for process in self._hit:
            process.link.change(self.state(chance))

    def took_effect(self, cluster: Cluster) -> bool:
        return _affected(self._hit) > self._before

    def heal(self, cluster: Cluster) -> None:
        for process in self._hit:
            (process.link.restore if self.keeps_connections else process.link.heal)()


class WatchesLost(BadLink):
    """Watch events get lost for good: over a new connection everybody would look again."""

    keeps_connections = True

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        super().inject(cluster, chance)
        self._lost_before = self._lost()

    def took_effect(self, cluster: Cluster) -> bool:
        return self._lost() > self._lost_before

    def _lost(self) -> int:
        return sum(process.link.events_lost for process in self._hit)

    def target(self) -> Target:
        return NOBODY


class HeldPastSession(BadLink):
    """For longer than the session, which ends if the server hears nothing."""

    lasts = PAST_SESSION


class Silent(HeldPastSession):
    """The server hears nothing, so the session ends."""

    shows_late = True

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        super().inject(cluster, chance)
        self._sessions = Sessions(self._hit)

    def took_effect(self, cluster: Cluster) -> bool:
        return self._sessions.are_over()


def _affected(processes: Sequence[Process]) -> int:
    return sum(process.link.affected for process in processes)


class Cut(Fault):
    """Every connection of one process, or of all, breaks once; all may connect again at once."""

    lasts = (0.0, 0.1)

    def __init__(self, name: str, everyone: bool) -> None:
        super().__init__(name)
        self.everyone = everyone

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        processes = cluster.processes if self.everyone else [chance.choice(cluster.processes)]
        self.victims = [] if self.everyone else processes
        before = _affected(processes)
        for process in processes:
            process.link.cut()
        self._did_cut = _affected(processes) > before

    def took_effect(self, cluster: Cluster) -> bool:
        return self._did_cut

    def heal(self, cluster: Cluster) -> None:
        """Clients connect again by themselves."""


class SessionReplaced(Silent):
    """The connection breaks; the next one has another session, while the old one still stands.

    So the old ephemeral znodes stay until the time-out, and then go without a word, as with
    ClickHouse Keeper. Nothing in zkplan may rely on its session.
    """

    lasts = (0.3, 2.0)
    shows_late = False
    # The new session is as good as any.
    keeps_connections = True

    def inject(self, cluster: Cluster, chance: random.Random) -> None:
        super().inject(cluster, chance)
        for process in self._hit:
            process.link.cut()


def flapping(chance: random.Random) -> LinkState:
    """Five of a hundred transactions lose their request or their answer."""
    own = random.Random(chance.random())

    def lose(step: str, number: int) -> Loss | None:
        return own.choice(("request", "answer")) if own.random() < 0.05 else None

    return LinkState(lose=lose)


def losing(loss: Loss, step: str, most: int) -> MakeState:
    """The first `most` transactions of that step are lost in that way."""

    def make(chance: random.Random) -> LinkState:
        left = iter(range(most))
        return LinkState(lose=lambda seen, number: lost(seen, left))

    def lost(seen: str, left: Iterator[int]) -> Loss | None:
        return loss if seen == step and next(left, None) is not None else None

    return make


def _always(**facts: Any) -> MakeState:
    return lambda chance: LinkState(**facts)


for _step, _whose in (("claim", "worker"), ("commit", "worker"), ("add", "author")):
    for _loss, _most, _does in (
        ("answer", 3, f"the answers of three {_step}s are lost with their connections"),
        ("request", 3, f"three {_step}s are lost with their connections"),
        ("late", 2, f"two {_step}s reach the server after the client has connected again"),
        ("swallow", 1, f"{article(_step)} is applied, its answer and all later ones are swallowed"),
    ):
        _name = f"{_step} {_loss}" + (" lost" if _loss in ("answer", "request") else "")
        _state = losing(_loss, _step, _most)  # type: ignore[arg-type]
        enter(_name, _does, BadLink, _state, _whose, waits_s=_WAITS_S, weight=1)
enter("link cut", "the connection of a process breaks", Cut, False)
enter("all links cut", "all connections break at once", Cut, True)
_does = "5 of 100 transactions lose request or answer"
enter("worker link flaps", _does, BadLink, flapping, "worker", waits_s=_WAITS_S)
enter("all links flap", _does, BadLink, flapping, waits_s=_WAITS_S, weight=1)
_held = _always(hold_requests=True, hold_answers=True)
_does = "nothing passes, past the session; connections stay open"
enter("worker link hangs", _does, Silent, _held, "worker")
enter("waiter link hangs", _does, Silent, _held, "waiter")
_does = "half open, past the session: answers pass, requests do not"
enter("worker requests held", _does, Silent, _always(hold_requests=True), "worker")
_does = "half open, past the session: requests pass, answers do not"
_held = _always(hold_answers=True)
enter("worker answers held", _does, HeldPastSession, _held, "worker")
enter("author answers held", _does, HeldPastSession, _held, "author")
_does = "a worker is cut off and cannot connect, past its session"
enter("worker refused", _does, Silent, _always(refuse=True, hold_requests=True), "worker")
_slow = _always(request_delay_s=0.05, answer_delay_s=0.05)
enter("worker link slow", "each frame takes 50 ms more in each direction", BadLink, _slow, "worker")
enter("all links slow", "each answer takes 20 ms more", BadLink, _always(answer_delay_s=0.02))
enter("watches lost", "no watch event reaches anybody", WatchesLost, _always(drop_events=True))
_does = "the same process gets a new session without being told; the old one ends later"
_state = _always(new_sessions=True)
enter("worker session replaced", _does, SessionReplaced, _state, "worker", _WAITS_S)
enter("author session replaced", _does, SessionReplaced, _state, "author", _WAITS_S, weight=1)
enter("all sessions replaced", _does, SessionReplaced, _state, None, _WAITS_S, weight=1)
