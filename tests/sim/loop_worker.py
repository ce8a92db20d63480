"""A worker of the simulation with the real loop: the policy of `zkplan/runtime/`, turn by turn.

The world draws what happens next: a turn of the loop, the end of a function, a watch that arrives,
or an answer. Only the transport, the clock and the slots are simulated.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any, cast

from zkplan.backoff import Backoff
from zkplan.protocol.history.segments import Recorder
from zkplan.protocol.transactions import Registration
from zkplan.runtime.assembly import Assembly
from zkplan.runtime.maintenance import POLL_MAX_S
from zkplan.runtime.membership import Identity
from zkplan.runtime.plan_shares import Policy
from zkplan.transport.server_clock import Clock

from .loop_slots import LoopCodec, LoopSlots
from .loop_transport import LoopTransport
from .network import Client
from .queues import draw_served, served

if TYPE_CHECKING:
    from .loop_world import LoopWorld

Event = Callable[[], None]
#: How long running tasks have when the worker is told to stop, in seconds.
GRACES_S = (0.0, 0.5, 30.0)


class Inbox:
    """A mailbox that never waits: between two turns the world decides how much time passes."""

    def __init__(self) -> None:
        self.items: deque[Event] = deque()

    def put(self, item: Event) -> None:
        self.items.append(item)

    def get(self, timeout: float) -> Event:
        return self.get_nowait()

    def get_nowait(self) -> Event:
        if not self.items:
            raise Empty
        return self.items.popleft()


class _Sweeper:
    """Nothing of the simulation's loops lies in a store."""

    has_store = False

    def plan_is_done(self, path: str) -> None: ...
    def history_is_merged(self, path: str) -> None: ...


class _Collector:
    """Retention is simulated elsewhere: here every plan stays."""

    failures = 0

    def start(self, plans: Any, now: Any, goes_on: Any, ended: Callable[[list[str]], None]) -> None:
        ended(list(plans))


class LoopWorker:
    """One process with the real loop; `client` is its connection."""

    def __init__(self, world: LoopWorld, name: str, client: Client) -> None:
        rng = world.rng
        self.world, self.name, self.client = world, name, client
        self.queues = served(world, draw_served(world.queues))
        self.inbox = Inbox()
        self.clock = Clock(monotonic=lambda: world.now / 1000, wall=lambda: world.now / 1000)
        recorder = Recorder(world.paths.root, name, self.clock.monotonic)
        world.network._recorders[name] = recorder
        self.transport = LoopTransport(
            network=world.network,
            client=client,
            recorder=recorder,
            now=self.clock.monotonic,
            relies_on=self._relies_on,
        )
        self._threads = rng.randint(1, 4)
        self.loop = Assembly(
            transport=cast("Any", self.transport),
            paths=world.paths,
            codec=cast("Any", LoopCodec()),
            clock=self.clock,
            chance=random.Random(rng.getrandbits(32)),
            inbox=self.inbox,
            make_pool=self._make_slots,
            identity=Identity(f"{name}.0", "sim", 1),
            queues=self.queues,
            kinds=(),
            keys="",
            version="sim",
            isolation="thread",
            backoff=Backoff(initial_s=0.5, max_s=POLL_MAX_S),
            share=cast("Policy", world.policy(rng)),
            max_abandoned=None,
            output_max=0,
            sweeper=cast("Any", _Sweeper()),
            collector=cast("Any", _Collector()),
            recorder=recorder,
        ).loop
        self.slots.starts_nothing = lambda: self.loop.claims.draining
        self.transport.begins = partial(world.policies.begins, self)
        #: When the loop turns next if nothing arrives, in milliseconds.
        self._wake_at = 0
        #: When it was told to stop and has to have ended, in milliseconds.
        self.must_end_at = float("inf")
        #: When the grace for its functions is over, in milliseconds.
        self.runs_nothing_at = float("inf")
        self.loop.begin()

    def _make_slots(self, parts: Assembly) -> LoopSlots:
        self.slots = LoopSlots(
            world=self.world,
            client=self.client,
            threads=self._threads,
            clock=self.clock,
            ended=parts.ended,
        )
        return self.slots

    def _relies_on(self) -> dict[str, str]:
        return {job.claim.task_path: job.claim.path for job in self.loop.claims.jobs.values()}

    @property
    def me(self) -> Registration | None:
        return self.loop.membership.me

    @property
    def stopping(self) -> bool:
        return self.loop.shutdown.begun

    @stopping.setter
    def stopping(self, _: bool) -> None:
        rng = self.world.rng
        self.stop(rng.choice(GRACES_S))
        if rng.random() < 0.5:
            self.stop(rng.choice(GRACES_S))  # a second signal: it can only shorten the grace

    def stop(self, grace_s: float) -> None:
        """Order the worker to stop."""
        self.loop.stop(grace_s)
        self.world.policies.ordered_to_stop(self, grace_s)

    # What may happen to it next.

    def next_at(self) -> float:
        """When something happens here by itself, in milliseconds."""
        return min(self._wake_at, self.slots.next_end())

    def start_something(self) -> bool:
        """Let one thing happen here; False where nothing can now."""
        now, options = self.world.now, list[Callable[[], None]]()
        if self.client.events:
            options.append(self.client.take_events)
        if self.slots.next_end() <= now:
            options.append(self.slots.end_one)
        if self.inbox.items or self._wake_at <= now:
            options.append(self._turn)
        if not options:
            return False
        self.world.rng.choice(options)()
        return True

    def _turn(self) -> None:
        self.loop.turn(0.0)
        self.world.policies.turned(self)
        if self.loop.shutdown.done():
            self.loop.end()
            self.world.policies.ended(self)
            self.world.leave(self)  # type: ignore[arg-type]
            return
        self._wake_at = self.world.now + max(1, math.ceil(1000 * self.loop.pause_s()))
