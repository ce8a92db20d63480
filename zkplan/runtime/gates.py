"""Watch the znodes that tasks wait for, and open a gate when its condition holds.

The first two living workers of a root watch all gates; if one dies, the next one takes its place.
Each znode has one watch, however many gates wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ..errors import PayloadUndecodable, ZkplanError
from ..gates import argument, opened_condition, too_late
from ..protocol.features.gates import (
    OPENED_PER_MULTI,
    Condition,
    Opened,
    Opening,
    Read,
    Seen,
    look_at,
    note_look,
    open_gates,
    read_gates,
    write_notes,
)
from ..protocol.fields import to_json
from ..protocol.layout import Paths, parse_gate
from ..protocol.requests import Op, Step
from ..protocol.transactions import GROUP_BYTES_MAX, children_watched, or_error
from ..transport.server_clock import Clock
from ..values.codec import Codec
from .lost_claims import HEAD_START_S
from .membership import Membership
from .steps import SAFETY_LOOK_S, Steps

#: How many workers watch the gates of a root. The second opens a gate only if the first does not.
WATCHERS = 2
#: Seconds between two looks at all znodes while a gate waits, because a watch may be lost with its
#: connection.
PERIOD_S = 10.0
#: The most looks at znodes under way at once, and, for very many znodes, in a second.
UNDER_WAY_MAX, LOOKS_PER_S = 50, 50
#: Seconds for which a gate that could not be opened is left alone.
REST_S = 5.0
#: Seconds between two checks whether this worker is one of the watchers now.
ROLE_PERIOD_S = 1.0
#: The same for a worker that has just registered.
SOON_S = 0.1
_NEVER = float("inf")


class Gate(NamedTuple):
    """A gate that waits. `told`: the note in its entry on what stops the gate; empty if none."""

    name: str
    condition: Condition
    created_s: float
    told: bytes


@dataclass(eq=False)
class GateWatch:
    """One worker's part in watching gates, which is one of its maintenance duties."""

    steps: Steps
    paths: Paths
    membership: Membership
    codec: Codec
    clock: Clock
    at: float = 0.0
    #: When to list the entries next, and when to look at all znodes again: monotonic.
    list_at: float = 0.0
    _sweep_at: float = 0.0
    _gates: dict[str, Gate] = field(default_factory=dict)
    #: The names of the gates that wait for each znode.
    _by_path: dict[str, set[str]] = field(default_factory=dict)
    #: Paths to look at now. True: then open gates at once, without the head start of others.
    _todo: dict[str, bool] = field(default_factory=dict)
    #: Paths to look at later, each with the monotonic time of the look.
    _later: deque[tuple[float, str]] = field(default_factory=deque)
    _looking: set[str] = field(default_factory=set)
    _opening: set[str] = field(default_factory=set)
    _is_listing: bool = False
    _swept: bool = True
    #: ZooKeeper's time minus the monotonic time here, in seconds; None until it is known.
    _clock_s: float | None = None
    _expiry_at: float = _NEVER

    @property
    def _place(self) -> int:
        """This worker's place among the living; WATCHERS while the place is unknown."""
        return self.membership.share[0] if self._is_known else WATCHERS

    @property
    def _is_known(self) -> bool:
        """Whether this worker has seen itself among the living."""
        me = self.membership.me
        return me is not None and me.worker in self.membership.living

    def touched(self, path: str | None) -> None:
        """A watch fired. None: the connection changed, so any watch may have fired."""
        if path is None or path == self.paths.gates:
            self.list_at = self.at = 0.0
        if path is None:
            self._sweep_at = 0.0
        elif path in self._by_path:
            self.at = 0.0
            self._touch(path)

    def run(self, now: float) -> None:
        if self._place >= WATCHERS:
            self._forget()
            soon = self.membership.me is not None and not self._is_known
            self.at = now + (SOON_S if soon else ROLE_PERIOD_S)
            return
        if now >= self.list_at and not self._is_listing:
            self._list(now)
        if now >= self._sweep_at and self._by_path:
            self._sweep_at = now + max(PERIOD_S, len(self._by_path) / LOOKS_PER_S)
            self._swept = False
            for path in self._by_path:
                self._touch(path)
        if now >= self._expiry_at:
            self._expire()
        while self._later and self._later[0][0] <= now:
            path = self._later.popleft()[1]
            if path in self._by_path:
                self._touch(path, late=True)
        while self._todo and len(self._looking) < UNDER_WAY_MAX:
            path = next(iter(self._todo))
            self._look(path, self._todo.pop(path))
        if not self._swept and not self._todo and not self._looking:
            self._swept = True
            self._note()
        self.at = self._next(now)

    def _next(self, now: float) -> float:
        later = self._later[0][0] if self._later else _NEVER
        listing = _NEVER if self._is_listing else self.list_at
        sweep = self._sweep_at if self._by_path else _NEVER
        return min(now + ROLE_PERIOD_S, later, listing, sweep, self._expiry_at)

    def _forget(self) -> None:
        """Forget all gates, which others watch now. Looks under way do no harm."""
        if self._gates:
            for each in (self._gates, self._by_path, self._todo, self._later):
                each.clear()
            self._expiry_at = _NEVER
        self.list_at = self._sweep_at = 0.0

    # ---- list the gates

    def _list(self, now: float) -> None:
        self._is_listing = True
        self.list_at = now + SAFETY_LOOK_S
        what = "the gates cannot be listed"
        step = self._listing(frozenset(self._gates))
        self.steps.start_contained(step, self._listed, what, instead=None)

    def _listing(self, known: frozenset[str]) -> Step[tuple[set[str], list[Read]]]:
        names = set((yield from children_watched(self.paths.gates)) or ())
        return names, (yield from read_gates(self.paths, sorted(names - known)))

    def _listed(self, listed: tuple[set[str], list[Read]] | None) -> None:
        self._is_listing = False
        self.at = 0.0
        if listed is None or self._place >= WATCHERS:
            return
        names, read = listed
        for name in self._gates.keys() - names:
            self._drop(name)
        refused = {}
        for each in read:
            try:
                condition = opened_condition(self.codec, each.sealed)
            except PayloadUndecodable as error:
                refused[each.name] = (each.note, str(error))
                continue
            self._gates[each.name] = Gate(each.name, condition, each.created_ms / 1000, each.note)
            self._by_path.setdefault(condition.path, set()).add(each.name)
            self._touch(condition.path)
        self._tell(refused)
        if self._gates:
            self.list_at = min(self.list_at, self.clock.monotonic() + PERIOD_S)
            if self._clock_s is None or read:
                self._note()

    def _drop(self, name: str) -> None:
        gate = self._gates.pop(name, None)
        if gate is None:
            return
        waiting = self._by_path[gate.condition.path]
        waiting.discard(name)
        if not waiting:
            del self._by_path[gate.condition.path]
            self._todo.pop(gate.condition.path, None)

    # ---- looking

    def _touch(self, path: str, late: bool = False) -> None:
        self._todo[path] = late or self._todo.get(path, False)

    def _look(self, path: str, late: bool) -> None:
        if path in self._looking:
            self._later.append((self.clock.monotonic() + 0.05, path))
            return
        self._looking.add(path)
        wanted = [self._gates[name].condition for name in self._by_path[path]]
        step = or_error(look_at(path, any(each.kind == "children" for each in wanted)))
        self.steps.start(step, partial(self._looked, path, late))

    def _looked(self, path: str, late: bool, seen: Seen | ZkplanError) -> None:
        self._looking.discard(path)
        self.at = 0.0
        gates = [self._gates[name] for name in self._by_path.get(path, ())]
        gates = [gate for gate in gates if gate.name not in self._opening]
        if isinstance(seen, ZkplanError):
            self._tell({gate.name: (gate.told, str(seen)) for gate in gates})
            self._open(
                [], [(gate, too_late(self.codec, gate.condition)) for gate in self._over(gates)]
            )
            return
        self._tell({gate.name: (gate.told, "") for gate in gates if gate.told})
        held = [gate for gate in gates if seen.fits(gate.condition)]
        if held and self._place and not late:
            self._later.append((self.clock.monotonic() + HEAD_START_S, path))
            return
        guards: dict[tuple[Op, ...], list[tuple[Gate, bytes]]] = {}
        for gate in held:
            guard = tuple(seen.guard(gate.condition))
            opening = gate, argument(self.codec, gate.condition, seen)
            guards.setdefault(guard, []).append(opening)
        for guard, openings in guards.items():
            self._open(guard, openings)
        over = self._over([gate for gate in gates if gate not in held])
        self._open([], [(gate, too_late(self.codec, gate.condition)) for gate in over])

    # ---- opening

    def _open(self, guard: Sequence[Op], gates: list[tuple[Gate, bytes]]) -> None:
        batch, size = list[Opening](), 0
        for gate, sealed in gates:
            entry = parse_gate(gate.name)
            if entry is None:
                continue
            if batch and (len(batch) == OPENED_PER_MULTI or size + len(sealed) > GROUP_BYTES_MAX):
                self._send(guard, batch, gate.condition.path)
                batch, size = [], 0
            batch.append(Opening(gate.name, entry, sealed))
            size += len(sealed)
        if batch:
            self._send(guard, batch, gates[0][0].condition.path)

    def _send(self, guard: Sequence[Op], batch: list[Opening], path: str) -> None:
        names = {opening.name for opening in batch}
        self._opening |= names

        def opened(done: Opened | None) -> None:
            self._opening -= names
            self.at = 0.0
            # Without an answer `start_contained` has logged the reason.
            shut = done.shut if done is not None else {}
            if done is not None and not done.changed:
                for name in names - shut.keys():
                    self._drop(name)
            for name, why in shut.items():
                gate = f"{self.paths.gates}/{name}"
                self.steps.complaints.tell(f"the gate {gate} cannot be opened: {why}")
            if done is None or shut:
                self._later.append((self.clock.monotonic() + REST_S, path))
            elif done.changed and path in self._by_path:
                self._touch(path, late=True)

        step = open_gates(self.paths, guard, batch)
        what = f"gates that wait for znode {path} cannot be opened"
        self.steps.start_contained(step, opened, what, instead=None)

    # ---- notes in the entries, and time-outs

    def _tell(self, told: dict[str, tuple[bytes, str]]) -> None:
        """Write into the entries what stops their gates, if that is new. By name, `told` has the
        note in the entry, and the error."""
        me = self.membership.me
        changed: dict[str, bytes] = {}
        for name, (before, error) in told.items():
            worker = me.worker if me is not None else ""
            after = to_json({"worker": worker, "error": error}) if error else b""
            if error:
                self.steps.complaints.tell(f"gate {self.paths.gates}/{name}: {error}")
            if after != before and self._place == 0:
                changed[name] = after
                if name in self._gates:
                    self._gates[name] = self._gates[name]._replace(told=after)
        if changed:
            what = "notes on what stops gates cannot be written"
            self.steps.start_contained(
                write_notes(self.paths, changed), lambda _: None, what, instead=None
            )

    def _note(self) -> None:
        """Note in ZooKeeper that all gates were looked at, and learn its time."""
        me = self.membership.me
        if me is not None and self._gates:
            step = note_look(self.paths, me.worker if self._place == 0 else "")
            what = "looks at gates cannot be noted"
            self.steps.start_contained(step, self._noted, what, instead=0)

    def _noted(self, server_ms: int) -> None:
        if server_ms:
            self._clock_s = server_ms / 1000 - self.clock.monotonic()
            ends = (
                gate.created_s + gate.condition.timeout - self._clock_s
                for gate in self._gates.values()
                if gate.condition.timeout is not None
            )
            # Gates whose time is over are being opened; try again after ROLE_PERIOD_S.
            soonest = self.clock.monotonic() + ROLE_PERIOD_S
            self._expiry_at = max(soonest, min(ends, default=_NEVER))
            self.at = 0.0

    def _over(self, gates: list[Gate]) -> list[Gate]:
        """The `gates` whose time is over, by the clock of ZooKeeper."""
        if self._clock_s is None:
            return []
        now = self.clock.monotonic() + self._clock_s
        return [
            gate
            for gate in gates
            if gate.condition.timeout is not None and gate.created_s + gate.condition.timeout <= now
        ]

    def _expire(self) -> None:
        """Look once more at the znodes of the gates whose time is over."""
        for gate in self._over(list(self._gates.values())):
            self._touch(gate.condition.path, late=True)
        # `_noted` finds the next time-out among the other gates.
        self._expiry_at = _NEVER
        self._note()
