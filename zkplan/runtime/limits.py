"""Know which limits have free permits, and when to try for a permit.

A worker reads and watches a limit only while entries that name the limit wait there. When a permit
becomes free, watches tell all workers that wait. The worker that gave the permit back takes it
again at once, unless it holds more than its share. A moment later the worker tries that a hash
prefers for the permit's number, and then the others try the permits that are still free. So few
transactions for one permit are refused.

A worker tries a permit of a rate when its period is over. No watch fires when another worker takes
such a permit over, so the others read the limit again before they try.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from ..protocol.core.claim import Permits
from ..protocol.features.limits import Limit, read_limit
from ..protocol.layout import PERMIT, Paths, limit_path
from ..protocol.requests import Step
from ..transport.server_clock import Clock
from .membership import Membership
from .steps import Steps

#: Seconds after a change of a limit until the preferred worker may try a free permit, until the
#: others may, and over which these others spread.
OWN_HEAD_START_S, HEAD_START_S, SPREAD_S = 0.01, 0.03, 0.06
#: Seconds between two reads of a limit that entries wait for, if no watch fires.
LOOK_S = 5.0
#: The shortest time between two reads of one limit.
REST_S = 0.005


@dataclass(eq=False)
class _State:
    limit: Limit | None = None
    known: bool = False
    looking: bool = False
    must_look: bool = True
    #: When to read the limit next if no watch fires, and the earliest time for any read.
    look_at: float = 0.0
    rest_until: float = 0.0
    #: When this worker may try the free numbers that it is preferred for, and when any number.
    preferred_at: float = float("inf")
    any_at: float = float("inf")
    #: Free numbers that this worker has just given back, and how many permits it holds.
    given_back: set[int] = field(default_factory=set)
    own: int = 0
    #: Numbers in the claim under way.
    tried: set[int] = field(default_factory=set)
    #: A rate whose free permits this worker has left to the preferred workers.
    left: bool = False


class Limits:
    """The limits that entries of one worker name; only the loop's thread calls it."""

    def __init__(
        self, *, steps: Steps, paths: Paths, membership: Membership, clock: Clock, chance: Random
    ) -> None:
        self._steps, self._paths, self._membership = steps, paths, membership
        self._clock, self._chance = clock, chance
        self._states: dict[str, _State] = {}
        #: Returns the paths of the limits that entries wait for.
        self.waited: Callable[[], set[str]] = set
        self.root = paths.root
        self._advanced = 0.0
        self._prefix = f"{paths.root}/limits/"

    def touched(self, path: str | None) -> bool:
        """Note a fired watch (None: the connection changed). True: it concerns only limits."""
        if path is None:
            for each in self._states.values():
                each.must_look = True
            return False
        state = self._states.get(path)
        if state is not None:
            state.must_look = True
        return path.startswith(self._prefix)

    def advance(self, now: float) -> None:
        """Read the limits that entries wait for and that may have changed."""
        self._advanced = now
        if not self._states:
            return
        due = [
            path
            for path, state in self._states.items()
            if (state.must_look or now >= state.look_at)
            and not state.looking
            and now >= state.rest_until
        ]
        waited = self.waited() if due else set()
        for path in due:
            if path in waited:
                self._look(path, self._states[path], now)
            else:
                del self._states[path]

    def next_event(self) -> float:
        """The monotonic time at which the next read or try becomes due."""
        due = float("inf")
        for state in self._states.values():
            if not state.looking:
                due = min(due, state.rest_until if state.must_look else state.look_at)
                # An entry that may be tried already waits for a slot or another limit, not for a
                # time.
                times = [at for at in (state.preferred_at, state.any_at) if at > self._advanced]
                if times and self._is_free(state):
                    due = min(due, *times)
        return due

    def _is_free(self, state: _State) -> bool:
        return state.limit is not None and bool(set(state.limit.free) - state.tried)

    def _look(self, path: str, state: _State, now: float) -> None:
        state.looking, state.must_look = True, False
        state.look_at, state.rest_until = now + LOOK_S, now + REST_S

        def read(found: Limit | None) -> None:
            state.looking, state.known = False, True
            if found != state.limit:
                state.preferred_at = now + OWN_HEAD_START_S
                state.any_at = now + HEAD_START_S + SPREAD_S * self._chance.random()
            if found is not None and found.period_ms:
                self._pace(state, found, now)
            state.limit = found
            state.given_back.intersection_update(found.free if found is not None else ())

        self._steps.start_contained(
            read_limit(path, self._server_ms, watch=True),
            *(read, f"{path} cannot be read"),
            instead=None,
        )

    def _server_ms(self) -> Step[float]:
        """The server's milliseconds; while they are unknown, minus infinity: no period is over."""
        clock = self._membership.server_clock
        yield from clock.measure()
        return 1000 * clock.now() if clock.is_known else float("-inf")

    def _pace(self, state: _State, found: Limit, now: float) -> None:
        """Set when to try for a permit of a rate, read at `now`, and when to read it again."""
        was_left, state.left = state.left, False
        if found.free:
            state.preferred_at, state.any_at = now, now if was_left else float("inf")
            if not was_left:
                state.left = True
                state.look_at = now + HEAD_START_S + SPREAD_S * self._chance.random()
        if found.held and self._membership.server_clock.is_known:
            over_at = self._membership.server_clock.monotonic_at(found.until_ms / 1000)
            state.look_at = min(state.look_at, over_at + REST_S)

    # ---- permits

    def are_full(self, plan: str, limits: str) -> bool:
        """Whether one of these limits is known to have no free permit, or not to exist."""
        for name in limits.split("~"):
            state = self._states.get(limit_path(self._paths.root, plan, name))
            if state is not None and state.known and (state.limit is None or not state.limit.free):
                return True
        return False

    def has_room(self, plan: str, names: list[str], now: float) -> bool:
        """Whether this worker may try an entry of the plan with these limits now."""
        return all(self._choose(limit_path(self._paths.root, plan, each), now) for each in names)

    def want(self, plan: str, names: list[str]) -> None:
        """Note that an entry waits for these limits."""
        for name in names:
            self._states.setdefault(limit_path(self._paths.root, plan, name), _State())

    def take(self, plan: str, names: list[str], now: float) -> tuple[str, ...] | None:
        """The paths of permits to try for an entry with these limits; None if one has none."""
        paths = [limit_path(self._paths.root, plan, name) for name in names]
        chosen = [self._choose(path, now) for path in paths]
        if not all(chosen):
            return None
        taken = []
        for path, numbers in zip(paths, chosen, strict=True):
            number = self._chance.choice(numbers)
            self._states[path].tried.add(number)
            taken.append(f"{path}/{PERMIT}{number}")
        return tuple(taken)

    def permits(self, taken: dict[str, tuple[str, ...]]) -> Permits:
        """The permits of `taken`, with the versions that a claim needs to check."""
        versions, starts = dict[str, int](), dict[str, int]()
        for paths in taken.values():
            for path in paths:
                limit, _, number = path.rpartition(f"/{PERMIT}")
                found = self._states[limit].limit
                versions[limit] = found.version if found is not None else -1
                if found is not None and found.period_ms:
                    starts[path] = found.versions.get(int(number), -1)
        return Permits(versions, taken, starts)

    def ended(self, permits: Permits, made: bool) -> None:
        """Note the answer to a claim that tried these permits. `made`: no entry was blocked."""
        for path in permits.versions:
            state = self._states.get(path)
            if state is None:
                continue
            if made and state.limit is not None:
                held = state.limit.held.union(state.tried)
                state.limit = state.limit._replace(held=held)
                if period_ms := state.limit.period_ms:
                    state.look_at = min(state.look_at, self._clock.monotonic() + period_ms / 1000)
                else:
                    state.own += len(state.tried)
            state.must_look = state.must_look or not made
            state.given_back -= state.tried
            state.tried.clear()

    def given_back(self, permits: Sequence[str]) -> None:
        """Note that a claim that held these permits has ended."""
        for permit in permits:
            path, _, number = permit.rpartition(f"/{PERMIT}")
            state = self._states.get(path)
            if state is None:
                continue
            state.own = max(0, state.own - 1)
            if state.limit is not None and number.isdecimal():
                state.limit = state.limit._replace(held=state.limit.held - {int(number)})
                state.given_back.add(int(number))

    def _choose(self, path: str, now: float) -> list[int]:
        """The permit numbers of a limit that this worker may try now."""
        state = self._states.get(path)
        if state is None or not state.known or state.limit is None:
            return []
        free = [number for number in state.limit.free if number not in state.tried]
        place, count = self._membership.share
        if state.given_back and state.own < -(-state.limit.size // count):
            # Even if the limit must be read again: its watch has fired because of this permit.
            return [number for number in free if number in state.given_back]
        if state.must_look:
            return []
        if now >= state.any_at:
            return free
        if now < state.preferred_at:
            return []
        salt = 0 if state.limit.period_ms else len(state.limit.held)
        return [
            number
            for number in free
            if zlib.crc32(f"{path} {number} {salt}".encode()) % count == place
        ]
