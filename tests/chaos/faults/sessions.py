"""A server that replaces a session silently: a new one at the reconnect, and no word of it."""

from __future__ import annotations

import random
from functools import partial

from ..world.arena import Arena, Role
from ..world.link import Weather
from .fault import Entry, Fault, Sessions, enter, links_of


class SessionReplaced(Fault):
    """The connection breaks; the next one is of another session, while the old one stands.

    So the ephemeral znodes of before stay until the time-out, and then go without a word, as with
    ClickHouse Keeper. Nothing of zkplan may rest on the session.
    """

    lasts = (0.3, 2.0)
    waits_s = 15.0

    def __init__(self, name: str, whose: Role | None) -> None:
        super().__init__(name)
        self.whose = whose

    @property
    def claims(self) -> frozenset[str]:
        return links_of(self.whose)

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actors = arena.actors if self.whose is None else [chance.choice(arena.of(self.whose))]
        self.victims = [] if self.whose is None else actors
        self._actors, self._sessions = actors, Sessions(actors)
        for actor in actors:
            actor.link.change(Weather(new_sessions=True))
            actor.link.cut()

    def felt(self, arena: Arena) -> bool:
        return self._sessions.are_over()

    def heal(self, arena: Arena) -> None:
        """No cut: the session of now is as good as any."""
        for actor in self._actors:
            actor.link.calm()


enter(
    [
        Entry(
            "worker session replaced",
            "38",
            "a worker gets a new session without being told, and its old one ends later",
            partial(SessionReplaced, whose="worker"),
        ),
        Entry(
            "author session replaced",
            "38",
            "the same for the author",
            partial(SessionReplaced, whose="author"),
            weight=1,
        ),
        Entry(
            "all sessions replaced",
            "38",
            "the same for everybody at once",
            partial(SessionReplaced, whose=None),
            weight=1,
        ),
    ]
)
