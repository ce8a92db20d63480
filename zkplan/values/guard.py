"""Seal every request on its way to ZooKeeper, and open every answer.

Steps know nothing of keys. The data that a step writes are sealed for their path. The data that it
reads were sealed for their path, or are an `Unproven`. This covers each feature that keeps records
below a plan or the root (see `sealed_places`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from ..basics.log import get_logger
from ..errors import InvariantViolated, PayloadRefused, PayloadUndecodable
from ..protocol.core.edges import ENDED, HEAD_BYTES, NUMBER_BYTES, outcome_in
from ..protocol.fields import Unproven, require_proven
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
from .keyring import NOT_FOR_HERE, Key, Ring
from .sealed_places import (
    ARG,
    ARGUMENT,
    END,
    LOG,
    NO_PLAN,
    OUTCOME,
    PUT_BACK,
    RECORD,
    TASK,
    UNNUMBERED,
    Life,
    Places,
    SealedPlace,
    death_in,
    death_of,
    is_failure,
    letter_path,
    of_death,
    open_argument,
    open_at,
    require_last_end,
    seal_argument,
    seal_at,
    with_plan,
)

logger = get_logger("zkplan.protection")
_checked: ContextVar[str] = ContextVar("zkplan_checked_plan", default="")
T = TypeVar("T")
#: How many plans are remembered, and how many logged refusals.
KNOWN_MAX = 10_000
#: Makes a named tuple in two thirds of the time of its `_make`.
_new = tuple.__new__


class _Gone(Exception):
    """The plan or the root of a znode that was read is gone, so the place is unknown."""


class Guard:
    """Seals and opens for the steps of one client under one root.

    Thread-safe: each access to its memory is one operation of a dict.
    """

    def __init__(self, keys: Sequence[Key], root: str) -> None:
        self._keys, self._places = keys, Places(root)
        self._ring: Ring | None = None
        #: By name of a plan.
        self._lives: dict[str, Life] = {}
        #: The CZXIDs of ordered znodes, by path.
        self._states: dict[str, int] = {}
        self._logged: set[tuple[str, int]] = set()
        #: If this is a list, it collects the opened znodes that are sealed with an older key.
        self.older: list[str] | None = None

    def covers(self, path: str) -> bool:
        """Whether the data of that znode are sealed, if it has any."""
        return self._places.of(path) is not None

    def step(self, step: Step[T]) -> Step[T]:
        """The same step, with its requests sealed and its answers opened."""
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

    # For most operations and answers all facts are known already. They then take a path without
    # reads and without a generator, which would cost as much as the proof itself.

    def _sealed(self, request: Multi) -> Step[tuple[Multi, list[Create]]]:
        """The transaction to send, and the states of plans in it that `_start` has to write."""
        ops: list[Op] | None = None
        begun: list[Create] = []
        #: The name of a plan that this transaction makes.
        born = ""
        #: The last argument with which a task ended, and its seal: it often goes to several tasks.
        #: Comparing the object is enough, because each outcome of a task makes a new one.
        last, sealed_last = b"", b""
        places = self._places
        group_at, child_at, open_in_task = places.group_at, places.child_at, places.open_in_task
        for at, op in enumerate(request.ops):
            if type(op) is Create:
                path = op.becomes or op.path
            elif type(op) is SetData:
                path = op.path
            else:
                continue
            data, sealed = op.data, None
            if not data:
                if not path.endswith("/ready"):
                    continue
            elif data is last:
                sealed = sealed_last
            elif path[group_at] == TASK:
                child = path[child_at]
                if child in open_in_task:
                    continue
                if not born:
                    sealed = self._seal_now(path, op)
                    if child == ARG and data[NUMBER_BYTES:HEAD_BYTES] == ENDED and sealed:
                        last, sealed_last = data, sealed
            if sealed is None:
                place = places.of(path)
                if place is None:
                    continue
                plan, rest, kind = place
                if type(op) is Create:
                    if kind.introduces:
                        continue
                    if op.sequence and not op.becomes and not rest.endswith(UNNUMBERED):
                        raise _unpredicted(path)
                    if not plan and op.becomes:
                        born = rest
                    if kind.starts:
                        begun.append(op)
                life, ring = self._lives.get(plan), self._ring
                if kind is OUTCOME and is_failure(data):
                    place = yield from self._of_failure(place, request.ops)
                if (
                    kind in (RECORD, OUTCOME)
                    and life is not None
                    and ring is not None
                    and plan != born
                ):
                    sealed = seal_at(ring, life.prefix, place, op.data)
                else:
                    sealed = yield from self._seal(place, path, op, born)
            if ops is None:
                ops = list(request.ops)
            ops[at] = _new(type(op), (op.path, sealed) + op[2:])  # noqa: RUF005 - faster
        return (request if ops is None else Multi(ops)), begun

    def _seal_now(self, path: str, op: Create | SetData) -> bytes | None:
        """Seal data of a task in half the time of `_seal`. None if that needs a read first."""
        places = self._places
        life, ring = self._lives.get(path[places.plan_at]), self._ring
        if life is None or ring is None:
            return None
        data, child = op.data, path[places.child_at]
        require_proven(data)
        if type(op) is Create and op.sequence and not op.becomes and child != LOG:
            raise _unpredicted(path)
        if child == ARG:
            return seal_argument(ring, life.prefix, path[places.rest_at], data)
        rest = path[places.log_at if child == LOG else places.rest_at]
        return ring.seal(life.prefix + rest.encode(), data)

    def _seal(self, place: SealedPlace, path: str, op: Create | SetData, born: str) -> Step[bytes]:
        data = op.data
        require_proven(data)  # data that was refused is never sealed
        plan, rest, kind = place
        if kind.ordered and isinstance(op, SetData):
            if op.version < 0:
                raise InvariantViolated(f"{path} is written without its current version")
            if path not in self._states:
                node = yield ReadData(path)
                self._note(self._states, path, node.czxid if node is not None else 0)
            rest += f"@{self._states[path]:x}.{op.version + 1}"
        is_born = bool(plan) and plan == born and isinstance(op, Create)
        if kind.starts and isinstance(op, Create) and not is_born:
            # Its CZXID is not known yet. So this version lets nothing run, and `_start` writes the
            # real state. The `ready` of a schedule's plan is made with the plan and lets it run at
            # once, because nobody would go on if its maker died in between: it is valid only with
            # the CZXID of its plan.
            data = starting_control(data)
        begins = with_plan(plan) if is_born else (yield from self._life(plan)).prefix
        ring = yield from self._rings()
        return seal_at(ring, begins, (plan, rest, kind), data)

    def _of_failure(self, place: SealedPlace, ops: Sequence[Op]) -> Step[SealedPlace]:
        """The place of a failure: it names the dead letter in `ops`, or the one that exists."""
        path = letter_path(self._places.root, place)
        n = death_of(ops, path)
        if n is None:
            letter = yield from self._read(path)
            n = death_in(letter.data) if letter is not None else None
        return place if n is None else of_death(place, n)

    def _life(self, plan: str) -> Step[Life]:
        """The life of the plan, with CZXID 0 if there is no such plan; NO_PLAN for no name."""
        if not plan:
            return NO_PLAN
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
            # The uid of a root is made of numbers that the server assigns: nobody can choose it.
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
        """Open the answer to a read. If `request` is a list of begun states, write these."""
        kind = type(request)
        if kind is ReadData and answer is not None:
            now = self._open_now(request.path, answer)
            return now or (yield from self._open(request.path, answer, {}))
        if kind is ReadMany:
            open_now, later = self._open_now, []
            for at, read in enumerate(request.reads):
                if type(read) is ReadData and (node := answer[at]) is not None:
                    opened = open_now(read.path, node)
                    if opened is None:
                        later.append(at)
                    else:
                        answer[at] = opened
            if later:
                near = yield from self._letters([request.reads[at].path for at in later])
                for at in later:
                    path = request.reads[at].path
                    answer[at] = yield from self._open(path, answer[at], near)
        elif kind is list:
            for begun in request:
                yield from self._start(begun, answer)
        return answer

    def _open_now(self, path: str, node: Node) -> Node | None:
        """Open a znode. None if `_open` has to: for a read, a log line, or a rare place."""
        places, data = self._places, node.data
        # A gate may wait for any path, so this checks the root and the plan, too.
        if path[places.group_at] == TASK and path.startswith(places.plans):
            child = path[places.child_at]
            if child in places.open_in_task:
                return node
            plan = path[places.plan_at]
            rest = path[places.log_at if child == LOG else places.rest_at]
            kind = ARGUMENT if child == ARG else RECORD
        else:
            place = places.of(path)
            if place is None:
                return node
            plan, rest, kind = place
            if kind.ordered or kind is END:
                return None
            if not (data or kind.needed):
                return node
        life, ring = self._lives.get(plan), self._ring
        if life is None or ring is None or self.older is not None:
            return None
        is_born = node.czxid == life.czxid and not node.version
        begins = with_plan(plan) if is_born else life.prefix
        try:
            if kind is ARGUMENT:
                data = open_argument(ring, begins, rest, data)
            else:
                data = ring.open(begins + rest.encode(), data)
        except PayloadUndecodable:
            return None
        return _new(Node, (data,) + node[1:])  # noqa: RUF005 - faster

    def _read(self, path: str) -> Step[Node | None]:
        node = yield ReadData(path)
        return node and (self._open_now(path, node) or (yield from self._open(path, node, {})))

    def _letters(self, paths: Sequence[str]) -> Step[dict[str, Node | None]]:
        """The dead letters that belong to the outcomes among these znodes, by path."""
        places = [place for path in paths if (place := self._places.of(path)) is not None]
        wanted = [letter_path(self._places.root, each) for each in places if each[2] is OUTCOME]
        found: dict[str, Node | None] = {}
        if wanted:
            nodes = yield ReadMany([ReadData(path) for path in wanted])
            for path, node in zip(wanted, nodes, strict=True):
                found[path] = node and (
                    self._open_now(path, node) or (yield from self._open(path, node, {}))
                )
        return found

    def _open(self, path: str, node: Node, near: dict[str, Node | None]) -> Step[Node | None]:
        """The znode with its opened data, or with an `Unproven`; None if its plan is gone.

        `near` has znodes that were read in the same request, or after it. This adds each `ready`.
        """
        try:
            opened = yield from self._checked(path, node, near)
        except _Gone:
            return None
        if path.endswith("/ready"):
            near[path] = opened
        return opened

    def _checked(self, path: str, node: Node, near: dict[str, Node | None]) -> Step[Node]:
        place = self._places.of(path)
        if place is None:
            return node
        plan, rest, kind = place
        if kind.ordered:
            self._note(self._states, path, node.czxid)
        if not (node.data or kind.needed) or (kind.introduces and not node.version):
            return node
        if not plan and kind is RECORD:  # a read of the record means this very plan
            self._note(self._lives, rest, Life.of(rest, node.czxid))
        try:
            data: bytes = yield from self._proven(place, path, node, near)
        except PayloadRefused:
            if kind.undone:
                # A retry may have withdrawn it since the read.
                now = yield ReadData(path)
                if now is None:
                    raise _Gone from None
                if (now.czxid, now.version) != (node.czxid, node.version):
                    return (yield from self._checked(path, now, {}))
            # The root or the plan may have been replaced: read them once more.
            yield from self._forget(plan)
            try:
                data = yield from self._proven(place, path, node, {})
            except PayloadUndecodable as error:
                data = self._refused(path, node, error)
        except PayloadUndecodable as error:
            data = self._refused(path, node, error)
        return node._replace(data=data)

    def _proven(
        self, place: SealedPlace, path: str, node: Node, near: dict[str, Node | None]
    ) -> Step[bytes]:
        """The data that were sealed for this znode and not withdrawn. Raises as `Ring.open`."""
        plan, _, kind = place
        if kind is OUTCOME:
            at = letter_path(self._places.root, place)
            letter = near[at] if at in near else (yield from self._read(at))
            n = death_in(letter.data) if letter is not None else None
            if n is not None:
                with suppress(PayloadRefused):  # it is an outcome of another kind
                    return (yield from self._body(of_death(place, n), path, node))
        try:
            data = yield from self._body(place, path, node)
        except PayloadRefused as error:
            if kind is not OUTCOME or str(error) != NOT_FOR_HERE:
                raise
            raise PayloadRefused(f"{error}{PUT_BACK}") from None
        if kind is END:
            at = f"{self._places.root}/{plan}/ready"
            ready = near[at] if at in near else (yield from self._read(at))
            require_last_end(data, ready.data if ready is not None else None)
        return data

    def _body(self, place: SealedPlace, path: str, node: Node) -> Step[bytes]:
        plan, rest, kind = place
        if kind.ordered and node.version:
            rest += f"@{node.czxid:x}.{node.version}"
        life = yield from self._life(plan)
        if plan and not life.czxid:
            raise _Gone
        is_born = bool(plan) and not node.version and node.czxid == life.czxid
        begins = with_plan(plan) if is_born else life.prefix
        ring = yield from self._rings()
        if self._ring is None:
            raise _Gone
        body = open_at(ring, begins, (plan, rest, kind), node.data)
        sealed = outcome_in(node.data) if kind.argument else node.data
        if self.older is not None and not ring.is_current(sealed):
            self.older.append(path)
        return body

    def _forget(self, plan: str) -> Step[None]:
        self._ring = None
        self._lives.pop(plan, None)
        yield from self._rings()

    def _refused(self, path: str, node: Node, error: PayloadUndecodable) -> Unproven:
        refusal = type(error)(f"{path} is not used: {error}")
        key = path, hash(node.data)
        checked = _checked.get()
        is_reported = checked and (path == checked or path.startswith(f"{checked}/"))
        if not is_reported and key not in self._logged:
            if len(self._logged) >= KNOWN_MAX:
                self._logged.clear()
            self._logged.add(key)
            logger.warning("%s", refusal)
        return Unproven(refusal)

    def _start(self, op: Create, answer: Any) -> Step[None]:
        """Write the state that a `ready` was made for, now that its CZXID is known.

        Somebody may delete a `ready` and make it again with its first version. So the first version
        lets nothing run, and a state that lets tasks run is sealed for this very znode and the next
        version. If the maker dies in between, the next call that marks the plan ready goes on.
        """
        place = self._places.of(op.path)
        if place is None or not place[2].starts or control_from_bytes(op.data) != "running":
            return
        is_there = not isinstance(answer, Applied) and answer.path == op.path
        if not isinstance(answer, Applied) and not (
            is_there and answer.reason is Reason.NODE_EXISTS
        ):
            return
        node = yield from self._read(op.path)
        if node is None or node.version or node.data != starting_control(op.data):
            return
        state = SetData(op.path, op.data, 0)
        sealed, _ = yield from self._sealed(Multi([state]))
        yield sealed


@contextmanager
def reported(plan_path: str) -> Iterator[None]:
    """In this block and thread, do not log what is refused in that plan: a report names it."""
    before = _checked.set(plan_path)
    try:
        yield
    finally:
        _checked.reset(before)


def _unpredicted(path: str) -> InvariantViolated:
    return InvariantViolated(f"{path} is sealed for a number that was not predicted")
