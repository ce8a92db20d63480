"""The network of the simulation: who is answered when, and what gets lost on the way.

Every request of a step becomes a Call in the queue of its Client, which is first in, first out, as
the requests of a session are. Delivering a call is one moment: the tree executes it and the step
that waits for it goes on, up to its next request. An answer that takes long needs no state of its
own, because the step's next request waits in the queue for any time.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from zkplan.embedded import operations as server
from zkplan.embedded.tree import Tree
from zkplan.embedded.watches import ANY_WATCHES
from zkplan.protocol.history.segments import Recorder
from zkplan.protocol.requests import (
    Applied,
    Await,
    Check,
    Create,
    Delete,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    Request,
    Send,
    SetData,
    Step,
    Ticket,
    Unwatch,
)

from .sealing import Sealing
from .store import REQUESTS, WRITES, Blobs

_SERVER_OPS: dict[type, Callable[..., server.Op]] = {
    Create: server.Create,
    Delete: server.Delete,
    SetData: server.SetData,
    Check: server.Check,
}
_REASONS = {
    server.NoNodeError.code: Reason.NO_NODE,
    server.NodeExistsError.code: Reason.NODE_EXISTS,
    server.BadVersionError.code: Reason.BAD_VERSION,
    server.NotEmptyError.code: Reason.NOT_EMPTY,
    server.NoChildrenForEphemeralsError.code: Reason.EPHEMERAL_PARENT,
    server.LimitError.code: Reason.FULL,
}


class Observer(Protocol):
    """Called with every change of the tree, before anybody can act on it."""

    def applied(self, fiber: Fiber, ops: Sequence[Op], results: list[Any]) -> None: ...
    def expired(self, paths: list[str]) -> None: ...


class Faults(NamedTuple):
    """How likely a call meets each fault; all zero once the faults have stopped."""

    lost: float = 0.0  # the request never reaches the server
    mute: float = 0.0  # the server executes it, the answer is lost
    late: float = 0.0  # a copy stays in the network, and is executed at any later time
    full: float = 0.0  # the server refuses the request, having no room for its results
    shut: float = 0.0  # an access list refuses what the request writes into a history
    unheard: float = 0.0  # the event of a watch is lost, and the connection stands


CALM = Faults()


class Client:
    """The connection of one actor: its session and its requests in order.

    `events` are the paths of fired watches that have not arrived; None: the connection changed. The
    answer to a request comes after them. Only who has a `listener` leaves watches.
    """

    __slots__ = ("events", "fibers", "listener", "name", "queue", "session")

    def __init__(self, name: str, session: int) -> None:
        self.name = name
        self.session = session
        self.queue: deque[Call] = deque()
        self.fibers: list[Fiber] = []
        self.events: deque[str | None] = deque()
        self.listener: Callable[[str | None], None] | None = None

    def take_events(self) -> None:
        """The watches that have fired arrive."""
        while self.events:
            path = self.events.popleft()
            if self.listener is not None:
                self.listener(path)


class Fiber:
    """A step under way on a client. `under` maps task paths to the claims it relies on."""

    __slots__ = ("client", "kind", "step", "under")

    def __init__(self, client: Client, kind: str, step: Step[Any], under: dict[str, str]) -> None:
        self.client = client
        self.kind = kind
        self.step = step
        self.under = under


class Call:
    """A request on its way. `ticket` marks one that was sent without waiting; `then` gets the
    answer where no step of the network waits for it."""

    __slots__ = (
        *("answer", "awaited", "done", "fiber", "partial", "repeated", "request", "then"),
        "ticket",
    )

    def __init__(self, fiber: Fiber, request: Request, ticket: bool = False) -> None:
        self.fiber = fiber
        self.request = request
        self.ticket = ticket
        self.repeated = False
        self.done = False
        self.awaited = False
        self.answer: Any = None
        self.partial: list[Any] = []
        self.then: Callable[[Any], None] | None = None


class Late(NamedTuple):
    """A copy of a transaction that stayed in the network."""

    session: int
    call: Call


class Network:
    """The tree, the queues and the faults. `note` receives a line per event, for a replay."""

    def __init__(
        self, rng: random.Random, root: str, note: Callable[[str], None] | None = None
    ) -> None:
        self.rng, self.root = rng, root
        self.tree = Tree()
        self.observer: Observer | None = None
        self.faults = CALM
        #: The plans whose histories an access list has protected for a while: they miss events.
        self.shut: set[str] = set()
        #: The time of the server.
        self.clock: Callable[[], int] = lambda: 0
        self.split_reads = False
        self.late: list[Late] = []
        self.open: set[int] = set()
        self.blobs = Blobs()
        #: In a run with keys: what every client's steps go through.
        self.sealing: Sealing | None = None
        self.note = note
        #: A mutant changes operations here; it must keep their number, answers are by position.
        self.rewrite: Callable[[Fiber, Sequence[Op]], Sequence[Op]] | None = None
        self._sessions = 0
        self._recorders: dict[str, Recorder] = {}

    # Sessions.

    def connect(self, name: str) -> Client:
        return Client(name, self._new_session())

    def _new_session(self) -> int:
        self._sessions += 1
        self.open.add(self._sessions)
        return self._sessions

    def close(self, session: int) -> None:
        """End a session: its ephemerals go, and copies of its requests are dropped from now on."""
        if session in self.open:
            self.open.discard(session)
            paths = self.tree.close_session(session)
            self._fire()
            if self.note:
                self.note(f"session {session} ends: {' '.join(paths)}")
            if self.observer is not None:
                self.observer.expired(paths)

    def expire(self, client: Client) -> None:
        """The session ends unknown to its client, whose requests go to a new session."""
        self.close(client.session)
        client.session = self._new_session()
        self._break(client)

    def _fire(self) -> None:
        """Put the events of what has changed on their way."""
        unheard = self.faults.unheard
        for event in self.tree.watches.take_events():
            if unheard and self.rng.random() < unheard:
                continue
            if isinstance(event.watcher, Client):
                event.watcher.events.append(event.path)

    def crash(self, client: Client) -> int:
        """The process vanishes: what it sent may still arrive. Gives the session, still open."""
        for call in client.queue:
            if type(call.request) in (Multi, *WRITES) and self.rng.random() < 0.5:
                self.late.append(Late(client.session, call))
            if self.rng.random() < 0.3:
                break
        client.queue.clear()
        self._lose_watches(client)
        client.listener = None
        for fiber in client.fibers:
            fiber.step.close()
        client.fibers.clear()
        return client.session

    # Steps.

    def start(self, client: Client, kind: str, step: Step[Any], under: dict[str, str]) -> Fiber:
        if client.name not in self._recorders:
            self._recorders[client.name] = Recorder(self.root, client.name, lambda: 0.0)
        step = self._recorders[client.name].step(step)
        if self.sealing is not None:
            step = self.sealing.guarded(client.name, step)
        fiber = Fiber(client, kind, step, under)
        client.fibers.append(fiber)
        self._resume(fiber, None)
        return fiber

    def submit(self, fiber: Fiber, request: Request, then: Callable[[Any], None]) -> None:
        """Send one request; `then` gets its answer."""
        call = Call(fiber, request)
        call.then = then
        fiber.client.queue.append(call)

    def _resume(self, fiber: Fiber, answer: Any) -> None:
        queue = fiber.client.queue
        try:
            while True:
                request = fiber.step.send(answer)
                if type(request) is Send:
                    call = Call(fiber, request.request, ticket=True)
                    queue.append(call)
                    answer = Ticket(call)
                elif type(request) is Await:
                    call = request.ticket.slot
                    if not call.done:
                        call.awaited = True
                        return
                    answer = call.answer
                else:
                    queue.append(Call(fiber, request))
                    return
        except StopIteration:
            fiber.client.fibers.remove(fiber)

    # Deliveries.

    def deliver(self, client: Client) -> None:
        """The first request of a client's queue meets the server, or a fault."""
        client.take_events()
        call = client.queue[0]
        request = call.request
        if type(request) is Unwatch:
            client.queue.popleft()
            self._unwatch(client, request.path)
            self._answer(call, None)
            return
        if type(request) is not Multi and type(request) not in WRITES:
            self._read(client, call)
            return
        faults = self.faults
        if faults is not CALM:
            chance = self.rng.random()
            if chance < faults.lost:
                self._say(call, "is lost")
                self._break(client)
                return
            chance -= faults.lost
            if chance < faults.mute:
                self._execute_without_answer(client)
                self._break(client)
                return
            chance -= faults.mute
            if chance < faults.late:
                self._say(call, "stays in the network")
                self.late.append(Late(client.session, call))
                self._break(client)
                return
        if type(request) is not Multi:
            client.queue.popleft()
            self._say(call, "")
            self._answer(call, self.blobs.execute(request))
            return
        if self._is_full(call, request.ops):
            outcome: Applied | Refused = Refused(0, Reason.FULL, request.ops[0].path)
        elif (shut := self._shut(call, request.ops)) is not None:
            outcome = Refused(shut, Reason.NO_AUTH, request.ops[shut].path)
        else:
            outcome = self.execute(call.fiber, request.ops, client.session)
        client.queue.popleft()
        if call.repeated:
            outcome = outcome._replace(repeated=True)
        self._say(call, outcome)
        self._answer(call, outcome)

    def _is_full(self, call: Call, ops: Sequence[Op]) -> bool:
        """Results, entries and claims take room; every other reason to refuse comes first."""
        if not self.faults.full or call.fiber.kind not in ("commit", "claim", "publish"):
            return False
        if not any(map(_takes_room, ops)) or not all(map(self._seems_good, ops)):
            return False
        return self.rng.random() < self.faults.full

    def _shut(self, call: Call, ops: Sequence[Op]) -> int | None:
        """Which operation an access list of a history refuses; None: it refuses none."""
        if not self.faults.shut or call.repeated or self.rng.random() >= self.faults.shut:
            return None
        for at, op in enumerate(ops):
            is_told = type(op) is Create and op.path.endswith("/history/seg-")
            if is_told or (type(op) is SetData and op.path.endswith("/history/untold")):
                self.shut.add(op.path.partition("/history/")[0])
                return at
            if not self._seems_good(op):
                return None
        return None

    def _seems_good(self, op: Op) -> bool:
        if type(op) is Create:
            return op.sequence or self.tree.exists(op.path) is None
        return type(op) is SetData or self.tree.exists(op.path) is not None

    def deliver_late(self, at: int) -> None:
        """A copy that stayed in the network arrives; nobody waits for its answer."""
        copy = self.late.pop(at)
        request = copy.call.request
        if type(request) is not Multi:
            self._say(copy.call, f"(late copy) {self.blobs.execute(request)}")
        elif copy.session in self.open:
            outcome = self.execute(copy.call.fiber, request.ops, copy.session)
            self._say(copy.call, f"(late copy) {outcome}")

    def execute(self, fiber: Fiber, ops: Sequence[Op], session: int) -> Applied | Refused:
        """One transaction at the server; the observer sees it before the sender does."""
        if self.rewrite is not None:
            ops = self.rewrite(fiber, ops)
        try:
            made = [_SERVER_OPS[type(op)](*op[:4]) for op in ops]
            answers = self.tree.multi(made, session=session, now_ms=self.clock())
        except server.MultiFailed as failed:
            reason = _REASONS.get(failed.error.code, Reason.OTHER)
            return Refused(failed.index, reason, ops[failed.index].path)
        self._fire()
        results = [answer.version if type(answer) is server.Stat else answer for answer in answers]
        if self.observer is not None:
            seen = ops if self.sealing is None else self.sealing.as_meant(ops, results)
            self.observer.applied(fiber, seen, results)
        return Applied(results)

    def _execute_without_answer(self, client: Client) -> None:
        for call in client.queue:
            if type(call.request) is Multi:
                outcome = self.execute(call.fiber, call.request.ops, client.session)
                self._say(call, f"(answer lost) {outcome}")
            elif type(call.request) in WRITES:
                self._say(call, f"(answer lost) {self.blobs.execute(call.request)}")
            if self.rng.random() < 0.5:
                break

    def _break(self, client: Client) -> None:
        """The connection breaks: whatever was under way is sent again, identically, in order."""
        for call in client.queue:
            call.repeated = True
            call.partial.clear()
        if client.listener is not None:
            self._lose_watches(client)
            client.events.append(None)

    def _lose_watches(self, client: Client) -> None:
        """No connection keeps the watches of the one before."""
        self.tree.watches.drop(client)
        client.events.clear()

    def _unwatch(self, client: Client, path: str) -> None:
        with suppress(server.NoWatcherError):
            self.tree.watches.remove(path, client, ANY_WATCHES)

    def _read(self, client: Client, call: Call) -> None:
        request = call.request
        if type(request) is ReadMany:
            reads = request.reads
            partial = call.partial
            # A server without batch reads answers one by one, with others' writes in between.
            end = self.rng.randint(len(partial), len(reads)) if self.split_reads else len(reads)
            partial += [self._read_one(read, None) for read in reads[len(partial) : end]]
            if len(partial) < len(reads):
                return
            answer: Any = partial
        elif type(request) in REQUESTS:
            answer = self.blobs.execute(request)
        else:
            watcher = client if client.listener is not None and request.watch else None  # type: ignore[union-attr]
            answer = self._read_one(request, watcher)  # type: ignore[arg-type]
        client.queue.popleft()
        self._say(call, answer)
        self._answer(call, answer)

    def read_now(self, read: ReadData) -> Any:
        """What a znode holds now, for whoever judges."""
        return self._read_one(read, None)

    def _read_one(self, read: ReadData | ReadChildren, watcher: Client | None) -> Any:
        try:
            if type(read) is ReadChildren:
                return self.tree.children(read.path, watcher)[0]
            data, stat = self.tree.get(read.path, watcher)
        except server.NoNodeError:
            if type(read) is ReadData and watcher is not None:
                self.tree.exists(read.path, watcher)  # as a transport does: it waits for the znode
            return None
        times = stat.cversion, stat.ctime, stat.mtime, stat.pzxid, stat.czxid
        return Node(data, stat.version, stat.num_children, *times)

    def _answer(self, call: Call, answer: Any) -> None:
        if call.then is not None:
            call.then(answer)
            return
        if not call.ticket:
            self._resume(call.fiber, answer)
            return
        call.done, call.answer = True, answer
        if call.awaited:
            self._resume(call.fiber, answer)

    def _say(self, call: Call, outcome: object) -> None:
        if self.note:
            again = " (again)" if call.repeated else ""
            self.note(
                f"{call.fiber.client.name} {call.fiber.kind}{again} {call.request}\n     {outcome}"
            )


def _takes_room(op: Op) -> bool:
    places = ("/arg-", "/results/", "/runnable/", "/claims/")
    return type(op) is Create and any(place in op.path for place in places)
