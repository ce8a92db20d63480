"""Deliberately broken policies of the worker's loop: the simulation must find each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zkplan.protocol.core import idle_queue
from zkplan.protocol.core.idle_queue import Queue
from zkplan.protocol.layout import Paths
from zkplan.protocol.requests import ReadChildren, ReadData, Step
from zkplan.runtime.claims import Claims
from zkplan.runtime.idle_queue import IdleQueue
from zkplan.runtime.maintenance import Heartbeat, IdlePoll
from zkplan.runtime.plan_candidates import Candidates
from zkplan.runtime.plan_entries import LeftToOthers
from zkplan.runtime.plan_shares import Shares
from zkplan.runtime.plan_view import PlanView
from zkplan.runtime.poller import Poller
from zkplan.runtime.shutdown import Shutdown

from .loop_shares import ShareWorld
from .loop_world import LoopWorld
from .mutant import Mutant
from .world import World

_end_by = Claims.end_by


def _slot_never_freed(self: Claims, job: Any, make: Callable[[], Any]) -> None:
    _end_by(self, job, make)
    self.allowed += 1


def _whole_plan_rests(self: LeftToOthers, task: str) -> bool:
    self.tasks.add(task)
    return True


def _stop_overwritten(self: Shutdown, grace_s: float) -> None:
    """The last order to stop counts, also where an earlier one gave less time."""
    self.claims.draining = True
    self._hurry_at = self.clock.monotonic() + grace_s
    self._give_up_at = self._hurry_at + self.session_timeout_s


_hand_back = Claims.hand_back


def _held_past_a_drain(self: Claims, jobs: Any, log: bytes = b"") -> None:
    if not self.draining:
        _hand_back(self, jobs, log)


def _equal_rank(self: PlanView) -> int:
    return 5000


_passed = Shares._passed


def _by_half_the_weight(self: Shares, plans: Any, now: float) -> dict[str, float]:
    return _passed(self, [(number, max(1, weight // 2)) for number, weight in plans], now)


_touched = Poller.touched


def _deaf_after_a_reconnect(self: Poller, path: str | None) -> bool:
    if path is None and self._active:
        self.look_again = lambda: None  # type: ignore[method-assign]
        return False
    return _touched(self, path)


_look_again = Poller.look_again


def _folders_unswept(self: Poller) -> None:
    self.folder_watchers = ()
    _look_again(self)


def _looks_each_second(self: IdlePoll, now: float) -> None:
    self._last_at, self._delay_s = now, 1.0
    self.look_again()


def _deaf_to_orders(self: Heartbeat, path: str | None) -> None:
    """Nothing is watched, as if the looks without a watch were enough."""


def _first_or_unwatched(paths: Paths, group: str, place: str) -> Step[Queue | None]:
    """Asleep, and nobody wakes this worker when the one before it leaves."""
    names = sorted((yield ReadChildren(paths.idle)) or ())
    if (yield ReadData(place, watch=True)) is None:
        return None
    mine = [name for name in names if name.startswith(f"{group}-")]
    return Queue(f"{paths.idle}/{mine[0]}" == place, len(names))


def _stays_first(self: IdleQueue, now: float) -> bool:
    """Busy workers keep their places, and all others sleep on."""
    return False


def _leaves_nothing(self: Candidates) -> bool:
    return False


def _has_one_that_lacks_much(world: World) -> bool:
    return isinstance(world, LoopWorld) and world.lacking > 0.1 and len(world.workers) == 1


def _sleeps_and_lacks_much(world: World) -> bool:
    return isinstance(world, LoopWorld) and world.lacking > 0.1 and world.late_plans > 0


def _loses_events(world: World) -> bool:
    return isinstance(world, LoopWorld) and world.unheard > 0.0


def _stops_some(world: World) -> bool:
    return isinstance(world, LoopWorld) and world.stops > 0


OF_LOOPS = (
    Mutant(
        "a slot that is never freed",
        patches=((Claims, "end_by", _slot_never_freed),),
        makes=LoopWorld,
    ),
    Mutant(
        "a plan that rests for one task",
        patches=((LeftToOthers, "add", _whole_plan_rests),),
        makes=LoopWorld,
        needs=_has_one_that_lacks_much,
    ),
    Mutant(
        "an order to stop that is overwritten",
        patches=((Shutdown, "begin", _stop_overwritten),),
        makes=LoopWorld,
        needs=_stops_some,
    ),
    Mutant(
        "a claim held past a drain",
        patches=((Claims, "hand_back", _held_past_a_drain),),
        makes=LoopWorld,
        needs=_stops_some,
    ),
    Mutant(
        "a priority ignored",
        patches=((PlanView, "rank", property(_equal_rank)),),
        makes=LoopWorld,
    ),
    Mutant(
        "a share by half the weight",
        patches=((Shares, "_passed", _by_half_the_weight),),
        makes=ShareWorld,
    ),
    Mutant(
        "no look after a reconnect",
        patches=((Poller, "touched", _deaf_after_a_reconnect),),
        makes=LoopWorld,
    ),
    Mutant(
        "an idle loop that looks each second",
        patches=((IdlePoll, "run", _looks_each_second),),
        makes=LoopWorld,
    ),
    Mutant(
        "a lost event of a folder that no sweep makes up for",
        patches=((Poller, "look_again", _folders_unswept),),
        makes=LoopWorld,
        needs=_loses_events,
    ),
    Mutant(
        "a sleeper that does not watch the place before it",
        patches=((idle_queue, "line_up", _first_or_unwatched),),
        makes=LoopWorld,
    ),
    Mutant(
        "a busy first that keeps its place",
        patches=((IdleQueue, "_is_busy", _stays_first),),
        makes=LoopWorld,
    ),
    Mutant(
        "a first that others wait behind for what it cannot run",
        patches=((Candidates, "leaves_some", property(_leaves_nothing)),),
        makes=LoopWorld,
        needs=_sleeps_and_lacks_much,
    ),
    Mutant(
        "a registration that nobody watches",
        patches=((Heartbeat, "touched", _deaf_to_orders),),
        makes=LoopWorld,
    ),
)
