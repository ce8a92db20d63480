"""Register the worker, know the others, and notice when ZooKeeper does not answer."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..basics.log import get_logger
from ..errors import TransactionRejected, ZooKeeperUnavailable
from ..protocol.core.workers import WorkerRecord, WorkerState, register, unregister, worker_state
from ..protocol.fields import Unproven
from ..protocol.layout import Paths
from ..protocol.requests import Node, Step
from ..protocol.transactions import Registration
from ..transport import Transport
from ..transport.server_clock import Clock, ServerClock
from .steps import Complaints, Steps


class Identity(NamedTuple):
    """Who this worker is: the ID of its first registration, its machine and its process."""

    worker: str
    host: str
    pid: int


def new_identity() -> Identity:
    """The identity of a new worker of this process."""
    host, pid = socket.gethostname(), os.getpid()
    return Identity(f"{host.split('.')[0][:20]}-{pid}-{os.urandom(4).hex()}", host, pid)


#: The longest delay, in seconds, before a refused registration is tried again.
REGISTER_REST_MAX_S = 5.0
logger = get_logger("zkplan.worker")


class Membership:
    """Registers the worker, and again after a lost session. Only the loop's thread calls it."""

    def __init__(
        self,
        *,
        transport: Transport,
        steps: Steps,
        paths: Paths,
        identity: Identity,
        threads: int,
        queues: Sequence[str],
        keys: str,
        version: str,
        isolation: str,
        clock: Clock,
        server_clock: ServerClock,
    ) -> None:
        self._transport, self._steps, self._paths = transport, steps, paths
        self._identity, self._clock = identity, clock
        #: The server's time, by the times of this worker's registrations.
        self.server_clock = server_clock
        #: Called with each new registration.
        self.registered: Callable[[Registration], None] = lambda me: None
        #: Called with an operator's order: to drain, to pause or to run on.
        self.ordered: Callable[[WorkerState], None] = lambda state: None
        #: After this many seconds without an answer, the session may have ended.
        self._silence_s = transport.session_timeout_s * 2 / 3
        self._threads, self._queues, self._keys = threads, queues, keys
        self._version, self._isolation = version, isolation
        #: The last order. The worker writes it into its next registrations, too.
        self.state: WorkerState = "running"
        #: The ID of the first registration; later ones get a suffix.
        self.worker = identity.worker
        #: The current registration, or None.
        self.me: Registration | None = None
        #: The record in the last registration.
        self.said: WorkerRecord | None = None
        #: The IDs of all registered workers, sorted.
        self.living: list[str] = []
        #: False: ZooKeeper has not answered for so long that the session may have ended unnoticed.
        self.answers = True
        #: The reasons logged for a missing connection, until ZooKeeper answers again.
        self._reasons = Complaints()
        self._registrations = 0
        self._registering = False
        self._sent_at = 0.0
        #: The delay after the last refused registration, in seconds.
        self._rest_s = 0.0

    @property
    def share(self) -> tuple[int, int]:
        """This worker's place among the living workers, and their number."""
        if self.me is None or self.me.worker not in self.living:
            return 0, 1
        return self.living.index(self.me.worker), len(self.living)

    @property
    def must_ask_at(self) -> float:
        """When to ask something (monotonic), if kazoo's pings are too rare to show that the server
        answers: it pings by the session time-out that the server has granted."""
        return self._transport.last_answer + 0.75 * self._silence_s

    def judge_connection(self, now: float) -> bool:
        """Judge whether ZooKeeper answers. Returns whether that has changed. Raises
        ZooKeeperUnavailable if the connection is lost for good."""
        transport = self._transport
        answers = now - transport.last_answer < self._silence_s
        if not answers and transport.has_ended:
            raise ZooKeeperUnavailable(
                f"the thread of this process that talks to ZooKeeper at {transport.hosts} has "
                "ended, out of memory or of tries (`connection_retry`): restart the process"
            )
        if not answers and (reason := transport.why_silent):
            # At each turn, because the reason may come later: a server that restarts refuses
            # connections before it says why.
            self._reasons.tell(f"no connection to ZooKeeper at {transport.hosts}{reason}")
        if answers == self.answers:
            return False
        self.answers = answers
        if answers:
            self._reasons = Complaints()
            logger.warning("ZooKeeper at %s answers again", transport.hosts)
        else:
            logger.warning(
                "no answer from ZooKeeper at %s for %.0f s: nothing is claimed until it answers",
                transport.hosts,
                now - transport.last_answer,
            )
        return True

    def register(self) -> None:
        """Start to register, unless a registration is under way or was refused just now."""
        if self._registering:
            return
        self._registering = True
        self._registrations += 1
        count = self._registrations
        worker = self.worker if count == 1 else f"{self.worker}-{count}"
        self.said = facts = WorkerRecord(
            id=worker,
            host=self._identity.host,
            pid=self._identity.pid,
            slots=self._threads,
            started=self._clock.wall(),
            queues=self._queues,
            keys=self._keys,
            version=self._version,
            isolation=self._isolation,
            state=self.state,
        )
        uids = (f"{number:x}" for number in itertools.count())
        step = register(self._paths, worker, facts.to_bytes(), uids)
        self._sent_at = self._clock.monotonic()
        self._steps.start(_or_refused(step), self._registered)

    def _registered(self, me: Registration | TransactionRejected | None) -> None:
        if isinstance(me, TransactionRejected):
            self._rest_s = min(REGISTER_REST_MAX_S, max(0.5, 2 * self._rest_s))
            self._steps.rest(self._clock.monotonic() + self._rest_s, self._rested, self._rested)
            self._steps.complaints.tell(
                f"this worker is not registered yet, and runs nothing: {me}"
            )
            self._registrations -= 1  # the ID is unused
            return
        self._registering = False
        self.me = me
        if me is not None:
            self._rest_s = 0.0
            self.server_clock.registered(me.worker_path, self._sent_at, self._clock.monotonic())
            self.registered(me)

    def _rested(self) -> None:
        self._registering = False

    def read(self, registration: Node) -> None:
        """Take an order that an operator has written into the registration, if it is new."""
        if registration.version == 0 or isinstance(registration.data, Unproven):
            return  # unchanged since this worker made it, or written without a key
        state = worker_state(registration.data)
        if state != self.state and self.state != "draining":
            self.state = state
            self.ordered(state)

    def lost(self, me: Registration) -> None:
        """Register under a new ID, as the session of `me` expired. The old claims stay until they
        are released.

        Several transactions under way may report this loss, even after the next registration. That
        one must not be given up: its znode would exist as long as this process, so its claims node
        could never be cleared.
        """
        if self.me is me:
            logger.warning("worker %s: its session expired; registering again", me.worker)
            self.me = None

    def leave(self) -> None:
        """End the registration, once this worker has no claims left."""
        if self.me is not None:
            me, self.me = self.me, None
            self._steps.start(unregister(me), lambda gone: None)


def _or_refused(
    step: Step[Registration | None],
) -> Step[Registration | TransactionRejected | None]:
    """Run `step`, and return a refusal by an access list or a full server, so that the worker tries
    again later instead of ending."""
    try:
        return (yield from step)
    except TransactionRejected as refused:
        return refused
