"""Faults of the network: cut, lost, late, held, slow, half open; seen by one process or by all."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from zkplan.text import article

from ..world.arena import Actor, Arena, Role
from ..world.link import Loss, Weather
from .aim import NOBODY, Aim
from .fault import Entry, Fault, Sessions, enter, links_of

MakeWeather = Callable[[random.Random], Weather]


class BadWeather(Fault):
    """The links of one process, or of all of a role, or of everybody, have that weather."""

    def __init__(self, name: str, weather: MakeWeather, whose: Role | None = None) -> None:
        super().__init__(name)
        self.weather, self.whose = weather, whose

    @property
    def claims(self) -> frozenset[str]:
        return links_of(self.whose)

    def inject(self, arena: Arena, chance: random.Random) -> None:
        if self.whose is None:
            actors = arena.actors
        else:
            actors = [chance.choice(arena.of(self.whose))]
            self.victims = actors
        self._actors, self._before = actors, _struck(actors)
        for actor in actors:
            actor.link.change(self.weather(chance))

    def felt(self, arena: Arena) -> bool:
        return _struck(self._actors) > self._before

    def heal(self, arena: Arena) -> None:
        for actor in self._actors:
            actor.link.heal()


class Losing(BadWeather):
    """Some transactions get lost; those it waits for."""

    waits_s = 15.0


class WatchesLost(BadWeather):
    """What is lost stays lost: over a new connection everybody would look again."""

    def inject(self, arena: Arena, chance: random.Random) -> None:
        super().inject(arena, chance)
        self._lost_before = self._lost()

    def felt(self, arena: Arena) -> bool:
        return self._lost() > self._lost_before

    def _lost(self) -> int:
        return sum(actor.link.events_lost for actor in self._actors)

    def aim(self) -> Aim:
        return NOBODY

    def heal(self, arena: Arena) -> None:
        for actor in self._actors:
            actor.link.calm()


class HeldPastSession(BadWeather):
    """Long enough that the server ends the session meanwhile, if it hears nothing."""

    lasts = (1.4, 2.0)


class Silent(HeldPastSession):
    """The server hears nothing: the session is over."""

    shows_late = True

    def inject(self, arena: Arena, chance: random.Random) -> None:
        super().inject(arena, chance)
        self._sessions = Sessions(self._actors)

    def felt(self, arena: Arena) -> bool:
        return self._sessions.are_over()


def _struck(actors: Sequence[Actor]) -> int:
    return sum(actor.link.struck for actor in actors)


class Cut(Fault):
    """Every connection of one process, or of all, breaks once; all may come back at once."""

    lasts = (0.0, 0.1)

    def __init__(self, name: str, everyone: bool) -> None:
        super().__init__(name)
        self.everyone = everyone

    def inject(self, arena: Arena, chance: random.Random) -> None:
        actors = arena.actors if self.everyone else [chance.choice(arena.actors)]
        self.victims = [] if self.everyone else actors
        before = _struck(actors)
        for actor in actors:
            actor.link.cut()
        self._felt = _struck(actors) > before

    def felt(self, arena: Arena) -> bool:
        return self._felt

    def heal(self, arena: Arena) -> None:
        """Clients connect again by themselves."""


def flapping(chance: random.Random) -> Weather:
    """Five of a hundred transactions lose their request or their answer."""
    own = random.Random(chance.random())

    def lose(step: str, number: int) -> Loss | None:
        return own.choice(("request", "answer")) if own.random() < 0.05 else None

    return Weather(lose=lose)


def losing(loss: Loss, step: str, most: int) -> MakeWeather:
    """The first `most` transactions of that step lose it."""

    def make(chance: random.Random) -> Weather:
        count = 0

        def lose(seen: str, number: int) -> Loss | None:
            nonlocal count
            if seen != step or count >= most:
                return None
            count += 1
            return loss

        return Weather(lose=lose)

    return make


def _lost_entries() -> list[Entry]:
    found = []
    for step, role, case in (
        ("claim", "worker", "7"),
        ("commit", "worker", "8"),
        ("add", "author", "32"),
    ):
        whose: Role = "author" if role == "author" else "worker"
        for loss, most, does in (
            ("answer", 3, f"the answers of three {step}s are lost with their connections"),
            ("request", 3, f"three {step}s are lost with their connections"),
            ("late", 2, f"two {step}s reach the server after the client has connected again"),
            (
                "swallow",
                1,
                f"{article(step)} is applied, its answer and all later ones are swallowed",
            ),
        ):
            number = "9" if loss == "late" else case
            found.append(
                Entry(
                    f"{step} {loss} lost" if loss in ("answer", "request") else f"{step} {loss}",
                    number,
                    does,
                    partial(Losing, weather=losing(loss, step, most), whose=whose),  # type: ignore[arg-type]
                    weight=1,
                )
            )
    return found


def _steady(**facts: object) -> MakeWeather:
    return lambda chance: Weather(**facts)  # type: ignore[arg-type]


enter(_lost_entries())
enter(
    [
        Entry("link cut", "12", "the connection of a process breaks", partial(Cut, everyone=False)),
        Entry("all links cut", "12", "all connections break at once", partial(Cut, everyone=True)),
        Entry(
            "worker link flaps",
            "12",
            "5 of 100 transactions lose request or answer",
            partial(Losing, weather=flapping, whose="worker"),
        ),
        Entry(
            "all links flap",
            "12",
            "the same for everybody",
            partial(Losing, weather=flapping),
            weight=1,
        ),
        Entry(
            "worker link hangs",
            "13",
            "nothing passes, past the session, connections stay open",
            partial(
                Silent,
                weather=_steady(hold_requests=True, hold_answers=True),
                whose="worker",
            ),
        ),
        Entry(
            "worker requests held",
            "13",
            "half open: answers pass, requests do not",
            partial(Silent, weather=_steady(hold_requests=True), whose="worker"),
        ),
        Entry(
            "worker answers held",
            "13",
            "half open: requests pass, answers do not",
            partial(HeldPastSession, weather=_steady(hold_answers=True), whose="worker"),
        ),
        Entry(
            "author answers held",
            "13",
            "the same for the author",
            partial(HeldPastSession, weather=_steady(hold_answers=True), whose="author"),
        ),
        Entry(
            "waiter link hangs",
            "13",
            "nothing passes to the waiter",
            partial(
                Silent,
                weather=_steady(hold_requests=True, hold_answers=True),
                whose="waiter",
            ),
        ),
        Entry(
            "worker refused",
            "11",
            "a worker is cut off and cannot connect, past its session",
            partial(Silent, weather=_steady(refuse=True, hold_requests=True), whose="worker"),
        ),
        Entry(
            "worker link slow",
            "13",
            "each frame takes 50 ms more in each direction",
            partial(
                BadWeather,
                weather=_steady(request_delay_s=0.05, answer_delay_s=0.05),
                whose="worker",
            ),
        ),
        Entry(
            "all links slow",
            "13",
            "each answer takes 20 ms more",
            partial(BadWeather, weather=_steady(answer_delay_s=0.02)),
        ),
        Entry(
            "watches lost",
            "31",
            "no event of a watch reaches anybody",
            partial(WatchesLost, weather=_steady(drop_events=True)),
        ),
    ]
)
