"""Read plans and their queues: which plans run, what is runnable, and what has become due."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...errors import OtherFormat, PayloadUndecodable, PlanNotFound
from ..fields import Unproven
from ..layout import (
    DEFAULT_QUEUE,
    QUEUES,
    Delayed,
    Entry,
    Paths,
    entry_path,
    number_of,
    parse_entry,
    parse_number,
    parse_plan,
    parse_queue,
    queue_in,
    queue_path,
)
from ..records import UNCHANGED, PlanRecord, Share, State, control_from_bytes, share_from_bytes
from ..requests import (
    Applied,
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
    Step,
)
from ..transactions import REFUSALS_MAX, children_watched, rejected
from .load import read_all


class PlanLook(NamedTuple):
    """A plan as a worker reads it. `state` is None if the plan is not marked ready or does not
    exist.

    `names` are the runnable names of `queue`, unordered, or None if there is no such queue. `more`
    are the other queues that were read, in order.
    """

    state: State | None
    version: int
    names: Sequence[str] | None
    queue: str = DEFAULT_QUEUE
    more: Sequence[tuple[str, Sequence[str] | None]] = ()
    share: Share = UNCHANGED

    @property
    def listed(self) -> Sequence[tuple[str, Sequence[str] | None]]:
        """Each queue that was read, with its names."""
        return ((self.queue, self.names), *self.more)


def list_plans(paths: Paths, watch: bool = False) -> Step[list[str]]:
    """The numbers of all plans under the root, oldest first."""
    names = yield ReadChildren(paths.root, watch)
    return sorted(number for name in names or () if (number := parse_plan(name)) is not None)


def plan_records(paths: Paths) -> Step[list[tuple[str, PlanRecord | None]]]:
    """The paths and records of all plans under the root, oldest first. See `readable_record`."""
    found = [paths.plan(number) for number in (yield from list_plans(paths))]
    nodes = yield from read_all([ReadData(path) for path in found], strict=False)
    return [
        (path, readable_record(node.data))
        for path, node in zip(found, nodes, strict=True)
        if node is not None
    ]


def refuse_hidden(paths: Paths) -> Step[None]:
    """Raise AccessDenied if there is a plan under the root that this client may not read."""
    found = [paths.plan(number) for number in (yield from list_plans(paths))]
    nodes = yield from read_all([ReadData(path) for path in found], strict=False)
    for path, node in zip(found, nodes, strict=True):
        if node is None:
            yield ReadData(path)  # removed meanwhile, or refused


def plan_record(plan_path: str) -> Step[PlanRecord]:
    """The record of a plan. Raises PlanNotFound, and as `record_in`."""
    node = yield ReadData(plan_path)
    if node is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    return record_in(plan_path, node.data)


def record_in(plan_path: str, data: bytes) -> PlanRecord:
    """The record of a plan. Raises OtherFormat and PayloadUndecodable, which name the plan."""
    try:
        return PlanRecord.from_bytes(data)
    except OtherFormat as error:
        raise OtherFormat(f"plan {int(number_of(plan_path))} was {error}") from None
    except PayloadUndecodable as error:
        raise PayloadUndecodable(f"{plan_path}: {error}") from None


def require_known_format(plan_path: str, data: bytes) -> None:
    """Raises OtherFormat. A damaged record passes."""
    try:
        record_in(plan_path, data)
    except OtherFormat:
        raise
    except PayloadUndecodable:
        pass


def readable_record(data: bytes) -> PlanRecord | None:
    """The record of a plan, or None if it is damaged or of another format: such a plan is listed,
    and can be removed."""
    try:
        return PlanRecord.from_bytes(data)
    except PayloadUndecodable:
        return None


def index_names(plan_path: str, index: str) -> Step[list[str]]:
    """The sorted names in an index of the plan, such as `dead`. Raises PlanNotFound."""
    names = yield ReadChildren(f"{plan_path}/{index}")
    # Somebody may have deleted the index by hand; a check puts it back.
    if names is None and (yield ReadData(plan_path)) is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    return sorted(names or ())


def names_on_claims_nodes(paths: Paths, strict: bool | None = None) -> Step[list[tuple[str, str]]]:
    """All claims and pending records: the ID of the claims node, and the name. `strict`: see
    ReadMany."""
    workers = (yield ReadChildren(paths.claims)) or []
    held = yield ReadMany([ReadChildren(paths.claims_of(worker)) for worker in workers], strict)
    return [
        (worker, name) for worker, names in zip(workers, held, strict=True) for name in names or ()
    ]


def look(
    plan_path: str, watch: bool = False, queues: Sequence[str] = (DEFAULT_QUEUE,)
) -> Step[PlanLook]:
    """Read the state of a plan, and the runnable names of these queues. With `watch`, changes of
    both wake the worker. The names are listed after `ready`, whose version their claim checks."""
    found: list[Sequence[str] | None] = []
    if watch:
        ready = yield ReadData(f"{plan_path}/ready", watch=True)
        for queue in queues if ready else ():
            path = queue_path(plan_path, queue)
            if queue == DEFAULT_QUEUE:  # as old as the plan
                names = yield ReadChildren(path, watch=True)
            else:
                names = yield from children_watched(path)
            found.append(names)
    else:
        reads = [ReadChildren(queue_path(plan_path, queue)) for queue in queues]
        ready, *found = yield ReadMany([ReadData(f"{plan_path}/ready"), *reads])
    if ready is None:
        return PlanLook(None, -1, None)
    listed = list(zip(queues, found, strict=True))
    state, (queue, names), more = control_from_bytes(ready.data), listed[0], listed[1:]
    return PlanLook(state, ready.version, names, queue, more, share_from_bytes(ready.data))


#: Versions and last changes of the znodes of a plan. They differ if the plan has changed.
Signs = tuple[int | None, ...]


class Swept(NamedTuple):
    """What a worker reads to find what no watch has announced.

    `active` has the names in the index of active plans, `folders` the last changes of each folder
    and of its children, and `plans` the signs of each plan. A change of `ready`, or of one of the
    queues that were asked for, changes one of the signs.
    """

    active: list[str]
    folders: list[Signs]
    plans: list[Signs]


def sweep(
    paths: Paths, folders: Sequence[str], plans: Sequence[str], queues: Sequence[str]
) -> Step[Swept]:
    """Read the index of active plans, and the signs of these folders and plans, in one request."""
    reads: list[ReadData | ReadChildren] = [ReadChildren(paths.active), *map(ReadData, folders)]
    for plan in plans:
        path = paths.plan(plan)
        reads += (ReadData(f"{path}/ready"), *(ReadData(queue_path(path, q)) for q in queues))
    active, *nodes = yield ReadMany(reads)
    changes: list[Signs] = [
        (node.pzxid, node.version) if node is not None else () for node in nodes[: len(folders)]
    ]
    del nodes[: len(folders)]
    signs: list[Signs] = []
    for start in range(0, len(nodes), 1 + len(queues)):
        ready, *found = nodes[start : start + 1 + len(queues)]
        version = ready.version if ready is not None else None
        signs.append((version, *(node.pzxid if node is not None else None for node in found)))
    numbers = [name for name in active or () if parse_number(name) is not None]
    return Swept(numbers, changes, signs)


def promote(paths: Paths, due: list[tuple[str, Delayed]]) -> Step[dict[str, str]]:
    """Make due entries runnable. Any worker may try; each entry is moved once. Returns why entries
    cannot be moved, such as an access list, by name."""
    todo, shut = list(due), dict[str, str]()
    while todo:
        ops: list[Op] = []
        for name, later in todo:
            ops.append(Delete(f"{paths.delayed}/{name}"))
            ops.append(Create(entry_path(paths.plan(later.plan), later.queue, later.entry)))
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            break
        name, later = todo.pop(answer.at // 2)
        if answer.at % 2 and answer.reason in (Reason.NO_NODE, Reason.NODE_EXISTS):
            # The plan was removed, or the entry exists already.
            yield Multi([Delete(f"{paths.delayed}/{name}")])
        elif answer.reason is not Reason.NO_NODE:  # another worker has moved it
            shut[name] = answer.why
    return shut


def ended_at(ready: Node | None, done: Node | None) -> tuple[str, float]:
    """`done` or `cancelled`, and when, in seconds since 1970 of the server. Empty for a plan that
    may still run, and for one whose end is forged."""
    if ready is None or (done is not None and isinstance(done.data, Unproven)):
        return "", 0.0  # not marked ready yet, or being removed
    if done is not None:
        return "done", done.created_ms / 1000
    if control_from_bytes(ready.data) == "cancelled":
        return "cancelled", ready.modified_ms / 1000
    return "", 0.0


# ---- The queues of a plan: make them, and read what is runnable in all of them.


def list_queues(plan_path: str) -> Step[list[str]]:
    """The queues of a plan, sorted, without the default one."""
    names = (yield ReadChildren(f"{plan_path}/{QUEUES}")) or ()
    return sorted(name for name in names if parse_queue(name) is not None)


def make_queues(plan_path: str, wanted: Iterable[str]) -> Step[bool | None]:
    """Make the queues in `wanted` that the plan lacks. Returns whether that took a task number;
    None if the plan takes no tasks now. Raises TransactionRejected, ServerFull."""
    made = False
    missing = sorted({*map(queue_in, wanted)} - {DEFAULT_QUEUE})
    for _ in range(REFUSALS_MAX if missing else 0):
        names = yield ReadChildren(f"{plan_path}/{QUEUES}")
        missing = [queue for queue in missing if queue not in (names or ())]
        if not missing:
            break
        # A plan is open for adds as long as `add-count` exists.
        ops: list[Op] = [Check(f"{plan_path}/add-count")]
        if names is None:
            ops.append(Create(f"{plan_path}/{QUEUES}"))
        ops += [Create(f"{plan_path}/{QUEUES}/{queue}") for queue in missing]
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            return made or names is None
        if answer.at == 0:
            return None
        # The first copy of a repeated transaction may have taken the number.
        made = made or names is None
        if answer.reason not in (Reason.NODE_EXISTS, Reason.NO_NODE):
            raise rejected(f"making the queues {', '.join(missing)} of {plan_path}", answer)
    return made


def make_and_count(plan_path: str, queues: Iterable[str]) -> Step[tuple[Node | None, bool]]:
    """Make the queues of tasks that are about to be added. Returns the plan with its counters, and
    whether the queues exist.

    The counters are read first. If the plan refuses the queues and takes tasks again just after
    that, the counters are stale: the add is refused, and this is called again. So no task is added
    to a queue that does not exist.
    """
    plan = yield ReadData(plan_path)
    took = yield from make_queues(plan_path, queues)
    if took:
        plan = yield ReadData(plan_path)
    return plan, took is not None


def read_names(plan_path: str) -> Step[list[tuple[str, Sequence[str]]]]:
    """The runnable names of each queue, not parsed: there may be very many."""
    runnable, queues = yield ReadMany(
        [ReadChildren(f"{plan_path}/runnable"), ReadChildren(f"{plan_path}/{QUEUES}")]
    )
    listed: list[tuple[str, Sequence[str]]] = [(DEFAULT_QUEUE, runnable or ())]
    queues = [queue for queue in queues or () if parse_queue(queue) is not None]
    if queues:
        found = yield ReadMany([ReadChildren(queue_path(plan_path, queue)) for queue in queues])
        listed += [(queue, names or ()) for queue, names in zip(queues, found, strict=True)]
    return listed


def read_entries(plan_path: str) -> Step[list[tuple[str, Entry]]]:
    """The runnable entries of all queues, each with its lane."""
    return [
        (queue + name[len(entry.name) :], entry)
        for queue, names in (yield from read_names(plan_path))
        for name in names
        if (entry := parse_entry(name)) is not None
    ]


def read_queues(plan_path: str) -> Step[dict[str, Node]]:
    """The znode of each queue of the plan."""
    runnable, queues = yield ReadMany(
        [ReadData(f"{plan_path}/runnable"), ReadChildren(f"{plan_path}/{QUEUES}")], strict=True
    )
    found = {} if runnable is None else {DEFAULT_QUEUE: runnable}
    if queues:
        reads = [ReadData(queue_path(plan_path, queue)) for queue in queues]
        nodes = yield ReadMany(reads, strict=True)
        found |= {
            queue: node for queue, node in zip(queues, nodes, strict=True) if node is not None
        }
    return found
