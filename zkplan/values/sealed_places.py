"""Which znodes hold sealed data, the place and plan that each is sealed for, and what a retry
withdraws.

A place is text without null bytes, after the uid of the root:

    plan-NUMBER                                 the record of a plan
    plan-NUMBER@CZXID/…                         data in a plan: the path, with these exceptions
    plan-NUMBER@CZXID/task-NUMBER/outcome       each argument that is the outcome of that task;
                                                NUMBER is before the sealed part
    plan-NUMBER@CZXID/…/arg-POSITION<NUMBER     an argument with which that task has not ended
    plan-NUMBER@CZXID/task-NUMBER/log           each `log-` of a task: the server numbers them
    plan-NUMBER@CZXID/history/seg               each segment of its history, likewise
    plan-NUMBER@CZXID/results/TASK@N            a failure, which a retry withdraws; its dead letter
                                                has the same N
    plan-NUMBER@CZXID/limit                     the size of a plan's own limit
    plan-NUMBER@CZXID/ready@CZXID.VERSION       the state of a plan; see `Kind.ordered`
    workers/ID@CZXID.VERSION                    orders to a worker: each version but the first
    limits/NAME@CZXID.VERSION                   likewise a limit, the bounds of the root, and the
                                                next time of a schedule
    …                                           the path, for anything else below the root

CZXID is that of the plan's znode, because a plan that somebody makes again from a recording is
another plan. Znodes made by the transaction that makes the plan have `new` in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import PayloadRefused, PayloadUndecodable
from ..protocol.core.edges import ENDED, HEAD_BYTES, NOT_ENDED, NUMBER_BYTES
from ..protocol.fields import as_whole_from_0, from_json, require_proven
from ..protocol.formats import ENVELOPE
from ..protocol.layout import HISTORY, PLAN_FIXED, SEGMENT, SHARED, TASK_KEY, UPDATE, parse_plan
from ..protocol.records import Dead, is_starting, share_from_bytes
from ..protocol.requests import Create, Op, SetData
from .keyring import Ring

#: Only the names of znodes in these rooms matter: no key covers their data.
_OPEN_ROOMS = frozenset(("claims", "delayed", "active", "failed"))
_OPEN_IN_PLAN = frozenset(("runnable", "add-ids", "queues"))
#: Between the name of a plan and the number of a task, in the path of a task and of a result.
TASK, _RESULTS = "/task-", "/results/"
#: The first five letters after the path of a task, in the paths of its arguments and log entries.
ARG, LOG = "/arg-", "/log-"
#: The ends of places of children that the server numbers. All children of a task share one place.
UNNUMBERED = ("/log", "/seg")


class Kind(NamedTuple):
    """How data are sealed.

    `ordered`: the data change, and an older state must not come back. So they are sealed for the
    znode's own CZXID and for the version that the write makes. The first version, which may come
    back, lets nothing run: it is empty, or paused. `starts`: a second write sets the state that the
    znode is made for; see `Guard._start`. `needed`: the data are never empty. `introduces`: the
    first version is the registration of a worker, which is not sealed, because readers may have
    other keys, and which no reader acts on; later versions are orders. `argument`: the place is
    that of the outcome, the same in all tasks that get it; see `place_of_argument`. `undone`: a
    retry withdraws the data, which must not be put back after it.
    """

    ordered: bool = False
    starts: bool = False
    needed: bool = True
    introduces: bool = False
    argument: bool = False
    undone: bool = False


RECORD, _STATE, _OPTIONAL = Kind(), Kind(ordered=True, starts=True), Kind(needed=False)
#: The end of a plan, and the outcome of a task.
END, OUTCOME = Kind(undone=True), Kind(undone=True)
_SETTING = Kind(ordered=True, needed=False)
_INTRODUCTION = Kind(ordered=True, introduces=True)
ARGUMENT = Kind(argument=True)

#: Children of a plan that are never empty.
_IN_PLAN = {"ready": _STATE, "done": END}

#: Where a znode's data belong: the name of its plan, empty if it is in none, and the rest of its
#: path. A plain tuple, because each znode that is read or written makes one.
SealedPlace = tuple[str, str, Kind]


class Places:
    """The places below one root.

    Most reads and writes are of a task or a child of one. All numbers have ten digits, so the parts
    of such a path are always at the same letters, and these slices take half the time of a search
    for the slashes: `plan_at` the name of the plan, `group_at` what is `TASK`, `child_at` the first
    letters of the child, `rest_at` (of a log entry `log_at`) its place.
    """

    #: Children of a task that no key covers, by their first letters.
    open_in_task = frozenset(
        ("/read", "/dep-", "/prov", "/owne", "/inco", "/deli", "/star", "/retr", "/take", "/cut")
    )

    def __init__(self, root: str) -> None:
        self.root = root
        self._prefix, self.plans = f"{root}/", f"{root}/plan-"
        self._open = tuple(f"{root}/{room}/" for room in _OPEN_ROOMS)
        self._cut = cut = len(root) + 1
        task = cut + 16
        self.plan_at, self.rest_at = slice(cut, task - 1), slice(task, None)
        self.group_at = slice(task - 1, task - 1 + len(TASK))
        self._results = slice(task - 1, task - 1 + len(_RESULTS))
        self.child_at, self.log_at = slice(task + 15, task + 20), slice(task, task + 19)

    def of(self, path: str) -> SealedPlace | None:
        """The place of a znode; None if no key covers its data."""
        if path[self.group_at] == TASK and path.startswith(self.plans):
            child = path[self.child_at]
            if child in self.open_in_task:
                return None
            if child == ARG:
                return path[self.plan_at], path[self.rest_at], ARGUMENT
            return path[self.plan_at], path[self.log_at if child == LOG else self.rest_at], RECORD
        if path[self._results] == _RESULTS and path.startswith(self.plans):
            return path[self.plan_at], path[self.rest_at], OUTCOME
        if path.startswith(self._open) or not path.startswith(self._prefix):
            return None
        inside = path[self._cut :]
        plan, _, rest = inside.partition("/")
        if plan[:5] == "plan-":
            return _in_plan(plan, rest)
        if plan in _OPEN_ROOMS:
            return None
        if plan == "limits":
            return _of_limit(inside, rest)
        if plan == "bounds" or (plan == "schedules" and "/next-" in rest):
            return "", inside, _SETTING
        return "", inside, _INTRODUCTION if plan == "workers" and rest else _OPTIONAL


def place_of_argument(rest: str, argument: bytes) -> bytes:
    """The place of an argument, below its plan; `rest` is its path there.

    If its source task has not ended with it, the argument is valid only at its own path, because
    the task may end with another outcome. Raises PayloadRefused if the argument names no task.
    """
    number, mark = argument[:NUMBER_BYTES], argument[NUMBER_BYTES:HEAD_BYTES]
    if number.isdigit():
        if mark == ENDED:
            return b"task-" + number + b"/outcome"
        if mark == NOT_ENDED:
            return rest.encode() + b"<" + number
    raise PayloadRefused("it does not say whose outcome it is")


def _of_limit(inside: str, name: str) -> SealedPlace | None:
    if "/" in name:
        return None  # a permit
    # The limit of a plan never changes.
    return (name, "limit", RECORD) if parse_plan(name) else ("", inside, _SETTING)


def _in_plan(plan: str, path: str) -> SealedPlace | None:
    """The place of a znode that is not of a task. An empty path is the plan itself."""
    if not path:
        return "", plan, RECORD
    first, _, last = path.partition("/")
    if not last:
        if first in PLAN_FIXED or first in _OPEN_IN_PLAN:
            return None
        return plan, first, _IN_PLAN.get(first, _OPTIONAL)
    if first == "dead":
        return plan, path, RECORD
    if first == HISTORY and last.startswith(SEGMENT):
        return plan, f"{first}/seg", RECORD
    if first in _OPEN_IN_PLAN:
        # The names of keys, the records of updates, what tasks share. Others have no data.
        return (plan, path, RECORD) if last.startswith((TASK_KEY, UPDATE, SHARED)) else None
    return plan, path, _OPTIONAL


# ---- Seal and open the content of a plan, and tell it from other plans of the same name.


class Life(NamedTuple):
    """One of the plans that have had a name: the CZXID of its znode, the prefix of its places."""

    czxid: int
    prefix: bytes

    @classmethod
    def of(cls, plan: str, czxid: int) -> Life:
        return cls(czxid, f"{plan}@{czxid:x}/".encode())


#: For data in no plan.
NO_PLAN = Life(0, b"")


def with_plan(plan: str) -> bytes:
    """The prefix of places made by the transaction that makes their plan, whose CZXID is unknown
    then. It is valid only for znodes with the same CZXID as the plan."""
    return f"{plan}@new/".encode()


def seal_at(ring: Ring, begins: bytes, place: SealedPlace, data: bytes) -> bytes:
    """`begins`: the prefix of places in this life of the plan. Raises as `require_proven`."""
    require_proven(data)
    _, rest, kind = place
    if kind.argument:
        return seal_argument(ring, begins, rest, data)
    return ring.seal(begins + rest.encode(), data)


def seal_argument(ring: Ring, begins: bytes, rest: str, data: bytes) -> bytes:
    """Seal an argument, with the number of its source before the sealed part."""
    head = data[:HEAD_BYTES]
    return head + ring.seal(begins + place_of_argument(rest, head), data[HEAD_BYTES:])


def open_at(ring: Ring, begins: bytes, place: SealedPlace, data: bytes) -> bytes:
    """The reverse of `seal_at`. Raises as `Ring.open`."""
    _, rest, kind = place
    if kind.argument:
        return open_argument(ring, begins, rest, data)
    return ring.open(begins + rest.encode(), data)


def open_argument(ring: Ring, begins: bytes, rest: str, data: bytes) -> bytes:
    """The reverse of `seal_argument`. Raises as `Ring.open`."""
    head = data[:HEAD_BYTES]
    return head + ring.open(begins + place_of_argument(rest, head), data[HEAD_BYTES:])


# ---- What a retry withdraws: the failure of a task, and the end of a plan.
#
# Both stay authentic, so somebody who recorded one could put it back. So a failure is valid only
# with the dead letter that was made with it, and an end only until the next retry of the plan.


_FAILURE = ENVELOPE + b"E"
#: What else may be wrong with an outcome.
PUT_BACK = ", or is a failure that was put back after a retry"


def is_failure(outcome: bytes) -> bool:
    return outcome.startswith(_FAILURE)


def letter_path(root: str, place: SealedPlace) -> str:
    """The path of the dead letter that belongs to that outcome, if it is a failure."""
    plan, rest, _ = place
    return f"{root}/{plan}/dead/{rest.partition('/')[2]}"


def death_in(letter: bytes) -> int | None:
    """The number of the claim under which the task died."""
    n = Dead.from_bytes(letter).n
    return n if n >= 0 else None


def death_of(ops: Sequence[Op], path: str) -> int | None:
    """The same, if these operations make the dead letter at `path`."""
    for op in ops:
        if type(op) in (Create, SetData) and op.path == path:
            return death_in(op.data)  # type: ignore[union-attr]
    return None


def of_death(place: SealedPlace, n: int) -> SealedPlace:
    plan, rest, kind = place
    return plan, f"{rest}@{n}", kind


def require_last_end(done: bytes, ready: bytes | None) -> None:
    """Raises PayloadRefused unless the state `ready` says that the plan was not retried since the
    end `done`. Raises as `require_proven`."""
    if ready is None:
        raise PayloadRefused("the state of its plan, which says whether it was retried, is gone")
    require_proven(ready)
    if is_starting(ready):  # anybody can make the first version anew
        raise PayloadRefused("the state of its plan does not say yet whether it was retried")
    try:
        then = as_whole_from_0(from_json(done, "the end of a plan").get("retried")) or 0
    except PayloadUndecodable:
        then = 0
    if (share_from_bytes(ready).retried or 0) > then:
        raise PayloadRefused("it is an earlier end: the plan was retried after it")
