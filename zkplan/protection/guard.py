"""The one door: each step's requests are sealed on their way out, and its answers opened.

No step knows of keys. What it writes is sealed for the path that it writes to, and what it reads
was sealed for the path that it was read from, or is an `Unproven`. A feature that keeps a record of
its own below a plan or the root is covered by that alone (`places`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from ..errors import InvariantViolated, PayloadRefused, PayloadUndecodable
from ..log import get_logger
from ..protocol.records import control_from_bytes, starting_control
from ..protocol.requests import (
    Applied,
    Await,
    Create,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Send,
    SetData,
    Step,
    Ticket,
)
from ..protocol.sources import ENDED, HEAD_BYTES, NUMBER_BYTES, outcome_in
from ..protocol.unproven import Unproven, require_proven
from .keys import Key
from .places import RECORD, UNNUMBERED, Place, Places, place_of_argument
from .ring import Ring

logger = get_logger("zkplan.protection")
_checked: ContextVar[str] = ContextVar("zkplan_checked_plan", default="")
T = TypeVar("T")
#: The lives of so many plans, and so many refusals that were told of, are remembered.
KNOWN_MAX = 10_000
#: Makes a named tuple in two thirds of the time of its `_make`.
_new = tuple.__new__


class Life(NamedTuple):
    """Which plan of a name is meant: the CZXID of its znode, and what the places of all that lies
    in it begin with."""

    czxid: int
    prefix: bytes

    @classmethod
    def of(cls, plan: str, czxid: int) -> Life:
        return cls(czxid, f"{plan}@{czxid:x}/".encode())


#: Of what lies in no plan.
_NO_PLAN = Life(0, b"")


class _Gone(Exception):
    """What was read lay in a plan, or a root, that is not there any more: its place is unknown."""


class Guard:
    """Seals and opens for the steps of one client under one root.

    Thread-safe: each access to what it remembers is one operation of a dict.
    """

    def __init__(self, keys: Sequence[Key], root: str) -> None:
        self._keys, self._places = keys, Places(root)
        self._ring: Ring | None = None
        #: By name of a plan.
        self._lives: dict[str, Life] = {}
        #: By path of what is ordered: its CZXID.
        self._states: dict[str, int] = {}
        self._told: set[tuple[str, int]] = set()
        #: Where this is a list: the znodes that were opened and are sealed with an older key.
        self.older: list[str] | None = None

    def covers(self, path: str) -> bool:
        """Whether the data of that znode are sealed, if it has any."""
        return self._places.of(path) is not None

    def step(self, step: Step[T]) -> Step[T]:
        """The same step, whose requests and answers are sealed and opened."""
        sent: dict[Ticket, Any] = {}
        answer: Any = None
        failure: Exception | None = None
        try:
            while True:
                try:
                    request = step.send(answer) if failure is None else step.throw(failure)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
                answer, failure = None, None
                try:
                    asked: Any = request
                    if type(request) is Send:
                        asked = request.request
                        if type(asked) is Multi:
                            sealed, asked = yield from self._sealed(asked)
                            request = Send(sealed)
                        answer = yield request
                        sent[answer] = asked
                        continue
                    if type(request) is Await:
                        asked = sent.pop(request.ticket)
                    elif type(request) is Multi:
                        request, asked = yield from self._sealed(request)
                    answer = yield request
                    if type(asked) is not ReadChildren:
                        answer = yield from self._opened(asked, answer)
                except Exception as error:
                    failure = error
        finally:
            step.close()

    # ---- out

    # Most operations and answers need nothing that is not known yet. Those ask nobody, and take no
    # generator: each would cost them as much as the proof itself.

    def _sealed(self, request: Multi) -> Step[tuple[Multi, list[Create]]]:
        """The transaction as it is sent; and the states of plans in it that are begun only then."""
        ops: list[Op] | None = None
        begun: list[Create] = []
        #: The name of a plan that this very transaction makes.
        born = ""
        #: The last argument, and sealed: one outcome often goes to several tasks.
        last, sealed_last = ("", b""), b""
        place_of = self._places.of
        for at, op in enumerate(request.ops):
            if type(op) is Create:
                path = op.becomes or op.path
            elif type(op) is SetData:
                path = op.path
            else:
                continue
            data = op.data
            if not (data or path.endswith("/ready")):
                continue
            place = place_of(path)
            if place is None:
                continue
            plan, rest, kind = place
            if type(op) is Create:
                if kind.introduces:
                    continue
                if op.sequence and path is op.path and not rest.endswith(UNNUMBERED):
                    raise InvariantViolated(f"{path} is sealed for a number nobody has predicted")
                if not plan and op.becomes:
                    born = rest
                if kind.ordered:
                    begun.append(op)
            life, ring = self._lives.get(plan), self._ring
            if life is None or ring is None or kind.ordered or plan == born:
                sealed = yield from self._seal(place, path, op, born)
            elif kind.argument:
                if last != (plan, data):
                    sealed_last = _seal_at(ring, life.prefix, place, data)
                    # What a task has not ended with is sealed for each place by itself.
                    last = (plan, data) if data[NUMBER_BYTES:HEAD_BYTES] == ENDED else ("", b"")
                sealed = sealed_last
            else:
                require_proven(data)
                sealed = ring.seal(life.prefix + rest.encode(), data)
            if ops is None:
                ops = list(request.ops)
            ops[at] = _new(type(op), (op.path, sealed, *op[2:]))
        return (request if ops is None else Multi(ops)), begun

    def _seal(self, place: Place, path: str, op: Create | SetData, born: str) -> Step[bytes]:
        data = op.data
        require_proven(data)  # what was refused is never sealed anew
        plan, rest, kind = place
        if kind.ordered and isinstance(op, SetData):
            if op.version < 0:
                raise InvariantViolated(f"{path} is written without the version that it had")
            if path not in self._states:
                node = yield ReadData(path)
                self._note(self._states, path, node.czxid if node is not None else 0)
            rest += f"@{self._states[path]:x}.{op.version + 1}"
        is_born = bool(plan) and plan == born and isinstance(op, Create)
        if kind.ordered and isinstance(op, Create) and not is_born:
            # Nobody knows its CZXID yet. So it lets nothing run, and the state follows. That of a
            # schedule's plan is made with its plan, and runs at once: if its maker died in between,
            # nobody would go on. It counts only with the CZXID of its plan.
            data = starting_control(data)
        begins = _with_plan(plan) if is_born else (yield from self._life(plan)).prefix
        ring = yield from self._rings()
        return _seal_at(ring, begins, (plan, rest, kind), data)

    def _life(self, plan: str) -> Step[Life]:
        """That of the plan, or of none. Its CZXID is 0 if the plan is not there."""
        if not plan:
            return _NO_PLAN
        return self._lives.get(plan) or (yield from self._learn(plan))

    def _learn(self, plan: str) -> Step[Life]:
        node = yield ReadData(f"{self._places.root}/{plan}")
        life = Life.of(plan, node.czxid if node is not None else 0)
        if life.czxid:
            self._note(self._lives, plan, life)
        return life

    def _rings(self) -> Step[Ring]:
        ring = self._ring
        if ring is None:
            # No znode holds the uid of a root: the server gives it, and nobody can choose it.
            root = yield ReadData(self._places.root)
            ring = Ring(self._keys, b"%x.%x" % ((root.czxid, root.created_ms) if root else (0, 0)))
            if root is not None:
                self._ring = ring
        return ring

    def _note(self, known: dict[str, T], name: str, value: T) -> None:
        if len(known) >= KNOWN_MAX:
            known.clear()
        known[name] = value

    # ---- in

    def _opened(self, request: Any, answer: Any) -> Step[Any]:
        """`request` is one that reads, or the states that a transaction has begun."""
        kind = type(request)
        if kind is ReadData and answer is not None:
            now = self._open_now(request.path, answer)
            return now or (yield from self._open(request.path, answer))
        if kind is ReadMany:
            for at, read in enumerate(request.reads):
                node = answer[at]
                if node is not None and type(read) is ReadData:
                    now = self._open_now(read.path, node)
                    answer[at] = now or (yield from self._open(read.path, node))
        elif kind is list:
            for begun in request:
                yield from self._start(begun, answer)
        return answer

    def _open_now(self, path: str, node: Node) -> Node | None:
        """None if something has to be asked or told first, or its place is of a rare kind."""
        place = self._places.of(path)
        if place is None:
            return node
        plan, rest, kind = place
        data = node.data
        if not (data or kind.needed):
            return node
        life, ring = self._lives.get(plan), self._ring
        if life is None or ring is None or kind.ordered or self.older is not None:
            return None
        is_born = not node.version and node.czxid == life.czxid
        begins = _with_plan(plan) if is_born else life.prefix
        try:
            if kind.argument:
                return _new(Node, (_open_at(ring, begins, place, data), *node[1:]))
            return _new(Node, (ring.open(begins + rest.encode(), data), *node[1:]))
        except PayloadUndecodable:
            return None

    def _open(self, path: str, node: Node) -> Step[Node | None]:
        """The znode with what was sealed in it, or with an `Unproven`; None if its plan is gone."""
        try:
            return (yield from self._checked(path, node))
        except _Gone:
            return None

    def _checked(self, path: str, node: Node) -> Step[Node]:
        place = self._places.of(path)
        if place is None:
            return node
        plan, rest, kind = place
        if not (node.data or kind.needed):
            return node
        if kind.introduces and not node.version:
            self._note(self._states, path, node.czxid)
            return node
        if not plan and kind is RECORD:  # whoever reads a plan means this one
            self._note(self._lives, rest, Life.of(rest, node.czxid))
        try:
            data: bytes = yield from self._body(place, path, node)
        except PayloadRefused:
            # The root or the plan may be another one than it was: that is asked once.
            yield from self._forget(plan)
            try:
                data = yield from self._body(place, path, node)
            except PayloadUndecodable as error:
                data = self._refused(path, node, error)
        except PayloadUndecodable as error:
            data = self._refused(path, node, error)
        return node._replace(data=data)

    def _body(self, place: Place, path: str, node: Node) -> Step[bytes]:
        plan, rest, kind = place
        if kind.ordered:
            self._note(self._states, path, node.czxid)
            if node.version:
                rest += f"@{node.czxid:x}.{node.version}"
        life = yield from self._life(plan)
        if plan and not life.czxid:
            raise _Gone
        is_born = bool(plan) and not node.version and node.czxid == life.czxid
        begins = _with_plan(plan) if is_born else life.prefix
        ring = yield from self._rings()
        if self._ring is None:
            raise _Gone
        body = _open_at(ring, begins, (plan, rest, kind), node.data)
        sealed = outcome_in(node.data) if kind.argument else node.data
        if self.older is not None and not ring.is_current(sealed):
            self.older.append(path)
        return body

    def _forget(self, plan: str) -> Step[None]:
        self._ring = None
        self._lives.pop(plan, None)
        yield from self._rings()

    def _refused(self, path: str, node: Node, error: PayloadUndecodable) -> Unproven:
        told = type(error)(f"{path} is not used: {error}")
        key = path, hash(node.data)
        checked = _checked.get()
        if checked and (path == checked or path.startswith(f"{checked}/")):
            return Unproven(told)
        if key not in self._told:
            if len(self._told) >= KNOWN_MAX:
                self._told.clear()
            self._told.add(key)
            logger.warning("%s", told)
        return Unproven(told)

    def _start(self, op: Create, answer: Any) -> Step[None]:
        """Write the state that a `ready` was made for, now that its CZXID is known.

        A `ready` that somebody has deleted and made anew holds at most what its first version
        said. So that one lets nothing run; and a state that does is sealed for this very znode and
        the next version. Its maker may have died in between: then whoever marks the plan ready
        again goes on.
        """
        place = self._places.of(op.path)
        if place is None or not place[2].ordered or control_from_bytes(op.data) != "running":
            return
        is_there = not isinstance(answer, Applied) and answer.path == op.path
        if not isinstance(answer, Applied) and not (
            is_there and answer.reason is Reason.NODE_EXISTS
        ):
            return
        node = yield from self._opened(ReadData(op.path), (yield ReadData(op.path)))
        if node is None or node.version or node.data != starting_control(op.data):
            return
        state = SetData(op.path, op.data, 0)
        sealed, _ = yield from self._sealed(Multi([state]))
        yield sealed


@contextmanager
def reported(plan_path: str) -> Iterator[None]:
    """In this block and thread, what is refused in that plan is not logged: a report names it."""
    before = _checked.set(plan_path)
    try:
        yield
    finally:
        _checked.reset(before)


def _with_plan(plan: str) -> bytes:
    """How the place of what is made in the transaction that makes its plan begins: nobody knows the
    CZXID of that yet. It counts only where both have the same one."""
    return f"{plan}@new/".encode()


def _seal_at(ring: Ring, begins: bytes, place: Place, data: bytes) -> bytes:
    """`begins`: how places in this life of the plan begin."""
    require_proven(data)
    _, rest, kind = place
    if not kind.argument:
        return ring.seal(begins + rest.encode(), data)
    return data[:HEAD_BYTES] + ring.seal(begins + place_of_argument(rest, data), outcome_in(data))


def _open_at(ring: Ring, begins: bytes, place: Place, data: bytes) -> bytes:
    _, rest, kind = place
    if not kind.argument:
        return ring.open(begins + rest.encode(), data)
    return data[:HEAD_BYTES] + ring.open(begins + place_of_argument(rest, data), outcome_in(data))
