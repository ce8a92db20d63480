"""The store beside the tree: blobs that are written, read and deleted by requests of their own.

They may be lost and late as transactions are. A reference is `STASK.N-DIGEST`; the definition of a
task refers to `add-NAME`, where its author has put it into the store.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zkplan.protocol.core.edges import outcome_in
from zkplan.protocol.history.compaction import Cut
from zkplan.protocol.requests import Create, Delete, Op, SetData
from zkplan.values import check_blobs as compare
from zkplan.values import store_maintenance as end

from .story import FAILED, SKIPPED, STORED, Meant, Violation, name_in, outcomes_in

if TYPE_CHECKING:
    from zkplan.protocol.core.load import Loaded

    from .world import World

Script = Generator[Any, Any, None]
#: The share of runs with a store.
SHARE = 0.3


class WriteBlob(NamedTuple):
    """Write one blob of a plan, whole. Answer: True. Of parts of histories alone the data count."""

    plan: str
    name: str
    data: bytes = b""


class ReadBlob(NamedTuple):
    """Answer: whether it is there."""

    plan: str
    name: str


class ListBlobs(NamedTuple):
    """Answer: the names of the plan's blobs, in order."""

    plan: str


class DeleteBlobs(NamedTuple):
    """Delete some; those that are gone are no error. Answer: True."""

    plan: str
    names: Sequence[str]


WRITES: tuple[type, ...] = (WriteBlob, DeleteBlobs)
REQUESTS: tuple[type, ...] = (*WRITES, ReadBlob, ListBlobs)


class Blobs:
    """What lies in the store. It judges S10 in every state: no reference without its blob."""

    def __init__(self) -> None:
        #: The tasks, as they were meant, by name.
        self.names: dict[str, Meant] = {}
        self.there: dict[tuple[str, str], bytes] = {}
        self._held_by: dict[str, tuple[str, str]] = {}
        self._holders: Counter[tuple[str, str]] = Counter()

    def execute(self, request: Any) -> Any:
        if type(request) is WriteBlob:
            self.there[request.plan, request.name] = request.data
        elif type(request) is ReadBlob:
            return (request.plan, request.name) in self.there
        elif type(request) is ListBlobs:
            return sorted(name for plan, name in self.there if plan == request.plan)
        else:
            for name in request.names:
                if self._holders[request.plan, name]:
                    raise Violation(f"S10 {name} is deleted, and the tree refers to it")
                self.there.pop((request.plan, name), None)
        return True

    def applied(self, op: Op, path: str, below: str) -> None:
        """An operation on a znode of a plan; `below` is its path from the plan's number on.

        A part of a history is held for ever: the next part refers to it.
        """
        if type(op) is Delete:
            held = self._held_by.pop(path, None)
            if held is not None:
                self._holders[held] -= 1
        elif type(op) is Create:
            plan, _, child = below.partition("/")
            task = self.names.get(op.data.decode()) if _is_task(child) else None
            for name in names_in(op.data, task):
                self._hold(path, plan, name)
                self._held_by[path] = plan, name
        elif type(op) is SetData and below[10:] == "/history":
            stored = Cut.from_bytes(op.data).stored
            if stored:
                self._hold(path, below[:10], stored)

    def _hold(self, path: str, plan: str, name: str) -> None:
        if (plan, name) not in self.there:
            raise Violation(f"S10 {path} refers to {name}, which is not in the store")
        self._holders[plan, name] += 1


def _is_task(child: str) -> bool:
    return child.startswith("task-") and "/" not in child


# What is stored.


def is_chosen(task: Meant) -> bool:
    """Two of three tasks of a run with a store have large values."""
    return zlib.crc32(task.record) % 3 > 0


def added_by(task: Meant) -> str:
    """The blob of its definition; empty if it is in the tree."""
    return f"add-{task.name}" if task.stored else ""


def sealed(task: Meant, key: str, outcome: bytes) -> bytes:
    """What stands in the tree for an outcome; `key` is TASK.N. A failure is never stored."""
    if not task.stored or outcome.startswith((FAILED, SKIPPED)):
        return outcome
    return STORED + f"{key}-".encode() + outcome[1:]


def names_in(data: bytes, task: Meant | None) -> list[str]:
    """What a znode refers to; `task` if it is the definition of that one."""
    if data[:10].isdigit():  # an argument
        data = outcome_in(data)
    if data.startswith(STORED):
        return [data[1:].decode()]
    name = added_by(task) if task is not None else ""
    return [name] if name else []


# Scripts.


def write_first(write: Script, send: Callable[[], None]) -> Script:
    """S10: what refers to the blobs is sent once they are written."""
    yield from write
    send()


def writes(plan: str, names: Sequence[str]) -> Script:
    for name in names:
        yield WriteBlob(plan, name)


def blobs_of(task: Meant, outcome: bytes) -> list[str]:
    """What a worker writes for a task that has run: its result, and the tasks that it adds."""
    result = [outcome[1:].decode()] if outcome.startswith(STORED) else []
    return result + [name for inner in task.adds if (name := added_by(inner))]


def opened(world: World, item: Loaded, task: Meant, claim_path: str) -> Generator[Any, Any, bool]:
    """Read what a task needs. False where it is gone, and with it the claim under which it runs:
    the task is not this worker's any more."""
    names = [added_by(task)] if added_by(task) else []
    names += [data[1:].decode() for data in outcomes_in(item) if data.startswith(STORED)]
    for name in names:
        if not (yield ReadBlob(item.claim.plan, name)):
            if claim_path in world.nodes and not task.removed:
                raise Violation(f"S10 {task.name} needs {name}, which is not in the store")
            return False
    return True


def sweep(world: World, plan: str) -> Script:
    """A plan is done."""
    names = yield ListBlobs(plan)
    if names:
        yield DeleteBlobs(plan, (yield from end.leftovers(world.paths.plan(plan), names)))


def check(world: World, plan: str) -> Script:
    """`zkplan plan check`."""
    names = yield ListBlobs(plan)
    found = yield from compare.compare(
        world.paths,
        plan,
        names,
        lambda data: names_in(data, world.names.get(name_in(data))),
    )
    yield DeleteBlobs(plan, found.unreferenced)
