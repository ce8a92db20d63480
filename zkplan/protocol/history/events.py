"""Derive the events of a transaction from its operations.

So no step can forget an event, or record one that did not happen. An event is a list as it is
written: a letter, the number of the task, and more.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..core.edges import Edge
from ..layout import HISTORY, PENDING
from ..records import (
    UNCHANGED,
    control_from_bytes,
    count_from_bytes,
    queue_from_bytes,
    share_from_bytes,
)
from ..requests import NO_FACT, Check, Create, Delete, Fact, Op, Printed, SetData

RawEvent = list[Any]
#: A claim: its worker, the number of its plan, its task, its N.
_CLAIM = re.compile("([^/]*)/([0-9]{10})-([^/]{10})[.]([0-9]+)[.][^/]*").fullmatch


class _Move:
    """The changes of one task in one transaction.

    `left` is the letter of the place that the task leaves, `place` its new place; `rank` is the
    rank of its edges if they are replaced.
    """

    # Defaults of the class, because most transactions set few of them.
    left = place = worker = lane = ""
    added = cut = dead = deleted = fixed = kept = False
    logged = retried = started = unkept = False
    rank = ""
    k = n = size = 0
    fact = NO_FACT
    deps: list[int] | None = None

    def __init__(self, task: int) -> None:
        self.task = task


class _Plan:
    """The changes of one plan in one transaction.

    `closed` has, for each task, the dependents of its deleted edges. `is_untold`: the transaction
    has no events.
    """

    __slots__ = ("closed", "is_untold", "moves", "own", "sizes")

    def __init__(self) -> None:
        self.moves: dict[str, _Move] = {}
        self.own: list[RawEvent] = []
        self.closed: dict[str, list[str]] = {}
        #: The size of the outcome that each task has delivered.
        self.sizes: dict[str, int] = {}
        self.is_untold = False

    def deliver(self, task: str, dependent: str, size: int) -> None:
        if not (task.isdecimal() and dependent.isdecimal()):
            return
        self.closed.setdefault(task, []).append(dependent)
        self.sizes[task] = size

    def move(self, task: str) -> _Move:
        found = self.moves.get(task)
        if found is None:
            if not task.isdecimal():
                return _Move(-1)  # a znode that zkplan did not make
            found = self.moves[task] = _Move(int(task))
        return found


class _Plans(dict[str, _Plan]):
    """The changes of each plan in one transaction, by its number. Operations on plans `without` a
    history are skipped."""

    __slots__ = ("without",)

    def __init__(self, without: Collection[str]) -> None:
        self.without = without

    def __missing__(self, number: str) -> _Plan:
        found = self[number] = _Plan()
        return found


class EventDeriver:
    """Derives the events of transactions under one root, except for plans `without` a history: that
    set may change meanwhile."""

    def __init__(self, root: str, without: Collection[str] = ()) -> None:
        self._prefix = f"{root}/"
        self._cut = len(root) + 1
        self._without = without

    def derives_nothing(self, ops: Sequence[Op]) -> bool:
        """Whether `ops` surely have no events, as they change only plans without a history. It
        knows the paths that a commit changes, and is much quicker than `events`."""
        without, cut = self._without, self._cut
        if not without:
            return False
        #: Path prefixes of such plans: most operations change the same plan as the one before.
        found: tuple[str, ...] = ()
        for op in ops:
            path = op.path
            if path.startswith(found):
                continue
            head = path[cut : cut + 5]
            if head == "plan-":
                end = cut + 15
            elif head == "claim":  # a check, too: it may carry what the task prints
                end = path.rfind("/") + 11
                if path.startswith(PENDING, end - 10):
                    continue
            elif head == "worke" and type(op) is Check:
                continue
            else:
                return False
            if path[end - 10 : end] not in without:
                return False
            found = (*found[-3:], path[:end])
        return True

    def events(
        self, ops: Sequence[Op], facts: Mapping[str, Fact], by: str, now: float = 0.0
    ) -> Iterator[tuple[str, list[RawEvent]]]:
        """The number of each plan that the transaction changes, and its events in order. An event
        leaves out its worker if that is `by`. `now` is monotonic."""
        plans, without, cut = _Plans(self._without), self._without, self._cut
        #: Where in a path the number of a task begins and ends, and the name of its child begins.
        begin, end, child = cut + 21, cut + 31, cut + 32
        #: The worker or lease that is proved to be gone; the dependent of the last edge; the task
        #: that lost a `prov-` without a delivery.
        gone = last_dep = unsaid = ""
        argument = 0
        #: The plan of the operation before, and the prefix of the paths of its tasks.
        plan: _Plan
        tasks = "\0"
        for op in ops:
            path, kind = op.path, type(op)
            if not path.startswith(tasks):
                head = path[cut : cut + 5]
                if head != "plan-":
                    gone = _beside_plans(plans, op, path, head, cut, facts) or gone
                    continue
                number = path[cut + 5 : cut + 15]
                if number in without or not path.startswith(self._prefix) or len(path) < cut + 15:
                    continue
                found = plans[number]
                if path[cut + 15 : begin] != "/task-":
                    _in_plan(found, op, path[cut + 16 :])
                    continue
                plan, tasks = found, path[:begin]
            first = path[child : child + 1]
            # A child of a task. The first branches are by far the most frequent.
            if type(op) is Create:
                if first == "a":
                    argument = len(op.data)
                elif first == "p":
                    if path[:-6] == unsaid:
                        edge = Edge.from_bytes(op.data)  # another rank of a waiting task
                        plan.move(edge.task).rank = edge.rank
                elif first != "o":
                    _created(plan, op, path, path[begin:end], path[child:], facts)
            elif kind is not Delete:
                pass
            elif first == "d" and len(path) == cut + 46:
                last_dep = path[begin:end]
            elif first == "p":
                if last_dep:
                    plan.deliver(path[begin:end], last_dep, argument)
                    last_dep = ""
                else:
                    unsaid = path[:end]
            elif not first:
                move = plan.move(path[begin:end])
                move.deleted = True
                if facts:
                    move.fact = facts.get(path, move.fact)
        for number, plan in plans.items():
            if not plan.is_untold and (events := list(_events(plan, by, gone, now))):
                yield number, events


def _beside_plans(
    plans: _Plans, op: Op, path: str, head: str, cut: int, facts: Mapping[str, Fact]
) -> str:
    """An operation outside of plans. Returns the worker or the lease that it proves to be gone."""
    if head == "claim":
        if type(op) is Check and "/" not in path[cut + 7 :]:
            return path[cut + 7 :]  # a lease whose time is over
        _claim(plans, op, path, cut, facts)
    elif type(op) is Check:
        pass
    elif head == "delay":
        name = path[cut + 8 :]
        if len(name) > 40 and "/" not in name:
            _entry(plans, op, name[14:24], name[25:], f"d{name[:13]}-")
    elif head == "gates":
        name = path[cut + 6 :]
        if len(name) > 26 and "/" not in name:
            _entry(plans, op, name[:10], name[11:], "g")
    elif head == "worke" and type(op) is Create:
        return path[cut + 8 :]
    return ""


def _entry(plans: _Plans, op: Op, number: str, entry: str, before: str) -> None:
    """An entry under `delayed` or `gates`."""
    if number in plans.without:
        return
    move = plans[number].move(entry[5:15])
    if type(op) is Delete:
        move.left = before[0]
    elif type(op) is Create:
        move.place = f"{before}{entry[:4]}{entry[15:]}"


def _claim(plans: _Plans, op: Op, path: str, cut: int, facts: Mapping[str, Fact]) -> None:
    kind = type(op)
    if kind is SetData or (kind is Check and not facts):
        return
    # Not a claims node, a pending record, or a znode below a claim.
    claim = _CLAIM(path, cut + 7)
    if claim is None:
        return
    worker, number, task, n = claim.groups()
    if number in plans.without:
        return
    move = plans[number].move(task)
    move.worker, move.n = worker, int(n)
    if kind is Create:
        move.place = "c"
    elif kind is Delete:
        move.left = "c"
    if facts:
        move.fact = facts.get(path, move.fact)


def _in_plan(plan: _Plan, op: Op, rest: str) -> None:
    kind = type(op)
    if kind is Check:
        return
    first, _, name = rest.partition("/")
    if first == "runnable" or first == "queues":
        queue = ""
        if first == "queues":
            queue, _, name = name.partition("/")
            queue = f"/{queue}"
        if len(name) > 15 and "/" not in name:
            move = plan.move(name[5:15])
            if kind is Delete:
                move.left = "r"
            elif kind is Create:
                move.place = f"r{name[:4]}{name[15:]}{queue}"
    elif first == "dead" or first == "results":
        if len(name) != 10:
            return
        move = plan.move(name)
        if first == "results":
            move.kept, move.unkept = kind is not Delete, kind is Delete
            if type(op) is Create or type(op) is SetData:
                move.size = len(op.data)
        elif kind is Delete:
            move.left = "x"
        else:
            move.place, move.dead = "x", True
    elif first == "ready" and not name and (type(op) is Create or type(op) is SetData):
        share = share_from_bytes(op.data)
        event: RawEvent = ["S", control_from_bytes(op.data)]
        if share[:2] != UNCHANGED[:2]:
            event += share[:2]
        plan.own.append(event)
    elif first == "done":
        # Create and delete in one transaction only prove that the plan is not done.
        if kind is Create:
            plan.own.append(["D"])
        elif kind is Delete and ["D"] in plan.own:
            plan.own.remove(["D"])
        elif kind is Delete:
            plan.own.append(["R"])
    elif first == HISTORY and kind is Delete:
        plan.is_untold = True  # a removal, or a merge of segments
    elif not rest and kind is SetData:
        plan.is_untold = True  # an import, whose plan has no history yet, or a moved key


def _created(
    plan: _Plan, op: Create, path: str, task: str, child: str, facts: Mapping[str, Fact]
) -> None:
    """The create of a task, or of a child other than an argument, a `prov-` or the owner."""
    if not child:
        if op.becomes:
            move = plan.move(op.becomes[-10:])
            move.added, move.fact = True, facts.get(op.becomes, NO_FACT)
    elif child[:4] == "dep-":
        if op.data:
            move = plan.move(task)
            move.deps = move.deps or []
            move.deps.append(int(op.data))
    else:
        _made(plan.move(task), child, op, path, facts)


def _made(move: _Move, child: str, op: Create, path: str, facts: Mapping[str, Fact]) -> None:
    if child == "ready":
        move.k, move.lane = count_from_bytes(op.data), queue_from_bytes(op.data)
    elif child == "result":
        move.fixed, move.size = True, len(op.data)
        move.fact = facts.get(path, move.fact)
    elif child == "cut":
        move.cut = True
    elif child[:4] == "log-":
        move.logged = True
    elif child[:6] == "retry-":
        move.retried = True
    elif child[:8] == "started-":
        move.started = True


def _events(plan: _Plan, by: str, gone: str, now: float) -> Iterator[RawEvent]:
    moves = plan.moves
    for source, targets in plan.closed.items():
        # The end of a task delivers along all its edges, and a decision cuts all edges of a task.
        found = moves.get(source)
        if found is None or not found.deleted:
            of = [int(each) for each in targets if each not in moves or not moves[each].fixed]
            if of:
                yield ["e", int(source), of]
    for number, move in moves.items():
        if not move.size and number in plan.sizes:
            move.size = plan.sizes[number]
        if move.fact.printed is not None:
            yield _printed(move, move.fact.printed, by)
        event = _event(move, by, gone, now)
        if event is not None:
            # Leave out defaults at the end of the event: -1, and false values except 0.
            last = event[-1]
            while last == -1 or (not last and last != 0):
                del event[-1]
                last = event[-1]
            yield event
    yield from plan.own


def _printed(move: _Move, printed: Printed, by: str) -> RawEvent:
    worker = [] if move.worker == by else [move.worker]
    return ["p", move.task, move.n, printed.at, printed.text, *filter(None, worker)]


def _event(move: _Move, by: str, gone: str, now: float) -> RawEvent | None:
    place, fact, task = move.place, move.fact, move.task
    worker = "" if move.worker == by else move.worker
    ago_ms = int(1000 * (now - fact.ended)) if fact.ended else -1
    if move.added:
        lane = "" if move.lane == "default" else move.lane
        return ["a", task, fact.name, place, move.deps or [], lane, move.k or None]
    if move.deleted:
        flags = move.kept + 2 * fact.skips + 4 * bool(fact.error) + 8 * move.dead
        return ["k", task, flags, move.size, fact.ran_ms, ago_ms, fact.error, worker]
    if move.fixed and place[:1] == "r":
        return ["o", task, place, move.left, int(fact.skips) or None]
    if move.fixed:
        return ["v", task, move.size, fact.ran_ms, ago_ms]
    if move.left == "c":
        if place == "x":
            return ["x", task, fact.error, fact.ran_ms, ago_ms, worker]
        if fact.error:
            return ["f", task, place, fact.error, fact.ran_ms, ago_ms]
        if not place:
            return None  # the task and its claim are gone
        return ["l" if gone and gone == move.worker else "h", task, place, worker]
    if place == "c":
        return ["c", task, move.n or None, worker]
    if place:
        if move.left == "x":
            return ["t", task, place]
        letter = {"d": "u", "g": "g", "r": "m"}.get(move.left, "r")
        return ["m" if place[0] == move.left else letter, task, place]
    if move.left == "x":
        return ["w", task, move.deps or []]
    if move.rank:
        return ["m", task, "", move.rank]
    if move.deps:
        return ["j", task, move.deps]
    if move.started:
        return ["s", task]
    if move.logged:
        return ["n", task]
    return None
