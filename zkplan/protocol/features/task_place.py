"""Where a task stands: what the indexes and its own znodes say, for one task or for many."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from ...errors import InvalidTask, PayloadUndecodable, PlanCancelled, PlanNotFound, TaskError
from ..core.edges import Edge
from ..core.load import read_all, read_small
from ..core.plans_and_queues import (
    names_on_claims_nodes,
    read_names,
    readable_record,
    require_known_format,
)
from ..layout import (
    DEFAULT_QUEUE,
    QUEUES,
    Paths,
    number_of,
    parse_claim,
    parse_delayed,
    parse_entry,
    parse_gate,
    parse_number,
    parse_queue,
    queue_path,
)
from ..records import Dead, control_from_bytes, count_from_bytes, queue_from_bytes
from ..requests import Node, ReadChildren, ReadData, ReadMany, Step
from ..transactions import REFUSALS_MAX, claim_facts
from .limits import left_permits

#: The rank of a task that has none in any record.
RANK = "5000"
#: How far N is raised if the znode that had it is gone: no task is claimed this often.
N_LOST = 1_000_000


class Place(NamedTuple):
    """Where one task stands.

    `state` is empty for a task that is in no index. An index shows it as `runnable`, `delayed`,
    `gated`, `running` (claimed) or `dead`; `path` is its znode there: an entry, a claim or a dead
    letter. `queue` is its lane. `n` is the number of its claim, or of the last or the next one; `a`
    is how many attempts are used up. `worker` has claimed it, `since` when (None: not read), `due`
    is when a delayed task becomes runnable; both are wall-clock seconds.

    `find_place` reads more. There `state` may also be `waiting` (for edges), `complete` (all edges
    have arrived, and it is not published yet) or `lost`: somebody has deleted the znode that said
    where the task stands, and `node` is the task as it was read before. `edges` has both ends of
    each edge that a waiting task waits for, `torn` the `dep-` of each edge whose other end somebody
    has deleted; `version` and `k` are from its `ready`. `data` is the data of a delayed entry.
    `permits` are the paths of the permits that a claim holds or has left behind. `cascaded`: the
    task is dead, and its failure has gone to its dependents: only a retry of the plan undoes that.
    """

    state: str = ""
    path: str = ""
    rank: str = RANK
    n: int = -1
    a: int = 0
    edges: tuple[tuple[str, str, Edge], ...] = ()
    version: int = 0
    k: int = 0
    has_owner: bool = False
    has_outcome: bool = False
    data: bytes = b""
    queue: str = DEFAULT_QUEUE
    permits: tuple[str, ...] = ()
    cascaded: bool = False
    torn: tuple[str, ...] = ()
    node: Node | None = None
    worker: str = ""
    since: float | None = None
    due: float | None = None

    @property
    def next_n(self) -> int:
        """The number of the next claim, which no earlier claim or entry had."""
        return self.n + 1


#: Places by the numbers of plan and task.
TaskPlaces = dict[tuple[str, str], Place]
#: The place of a task that is in no index.
NOWHERE = Place()
#: The states of unfinished tasks.
STATES = (
    *("being defined", "waiting", "gated", "runnable"),
    *("delayed", "running", "dead", "decided"),
)


def state_of(place: Place, children: Collection[str]) -> str:
    """The state of an unfinished task, one of STATES, by its place and the names of its
    children."""
    if place.state and (place.state != "runnable" or "result" not in children):
        return place.state
    if not place.state:
        if "incomplete" in children or "ready" not in children:
            return "being defined"
        if "owner" in children:
            return "running"
        if any(name.startswith("dep-") for name in children):
            return "waiting"
    # In no index and without `dep-`: a transaction is moving it just now.
    return "decided" if "result" in children else "runnable"


def placed(paths: Paths, plan: str) -> Step[dict[str, Place]]:
    """The places of all tasks of a plan that are in an index. See `read_places`."""
    found = yield from read_places(paths, [plan])
    return {task: place for (_, task), place in found.items()}


def read_places(paths: Paths, plans: Sequence[str], strict: bool | None = None) -> Step[TaskPlaces]:
    """The places of all tasks of these plans that are in an index, in a few reads.

    The indexes are read in the order in which tasks move, claims last: a task that is claimed
    meanwhile counts as claimed. A task that moves the other way may be missing. `strict` (see
    ReadMany) is for the reads below the plans themselves.
    """
    found = yield from read_unclaimed(paths, plans, strict)
    wanted = set(plans)
    for worker, name in (yield from names_on_claims_nodes(paths)):
        claim = parse_claim(name)
        if claim is not None and claim.plan in wanted:
            path = f"{paths.claims_of(worker)}/{name}"
            found[claim.plan, claim.task] = Place("running", path, n=claim.n, worker=worker)
    return found


def read_unclaimed(
    paths: Paths, plans: Sequence[str], strict: bool | None = None
) -> Step[TaskPlaces]:
    """As `read_places`, but without the claims: a claimed task may still seem runnable."""
    wanted, found = set(plans), TaskPlaces()
    delayed, gates = yield ReadMany([ReadChildren(paths.delayed), ReadChildren(paths.gates)])
    for name in delayed or ():
        later = parse_delayed(name)
        if later is not None and later.plan in wanted:
            (rank, task, n, a), due = later.entry, later.due_ms / 1000
            place = Place("delayed", f"{paths.delayed}/{name}", rank, n, a, queue=later.queue)
            found[later.plan, task] = place._replace(due=due)
    for name in gates or ():
        gate = parse_gate(name)
        if gate is not None and gate.plan in wanted:
            rank, task, n, a = gate.entry
            place = Place("gated", f"{paths.gates}/{name}", rank, n, a, queue=gate.queue)
            found[gate.plan, task] = place
    yield from _add_dead_and_runnable(paths, plans, strict, found)
    return found


def _add_dead_and_runnable(
    paths: Paths, plans: Sequence[str], strict: bool | None, found: TaskPlaces
) -> Step[None]:
    names = ("dead", "runnable", QUEUES)
    reads = [ReadChildren(f"{paths.plan(plan)}/{name}") for plan in plans for name in names]
    lists = yield from read_small(reads, strict)
    for plan, letters in zip(plans, lists[::3], strict=True):
        for task in letters or ():
            if parse_number(task) is not None:
                found[plan, task] = Place("dead", f"{paths.plan(plan)}/dead/{task}")
    listed = [(plan, DEFAULT_QUEUE) for plan in plans]
    others = [
        (plan, queue)
        for plan, queues in zip(plans, lists[2::3], strict=True)
        for queue in queues or ()
        if parse_queue(queue) is not None
    ]
    reads = [ReadChildren(queue_path(paths.plan(plan), queue)) for plan, queue in others]
    entries = [*lists[1::3], *(yield from read_small(reads, strict))]
    for (plan, queue), entry_names in zip(listed + others, entries, strict=True):
        at = queue_path(paths.plan(plan), queue)
        for name in entry_names or ():
            entry = parse_entry(name)
            if entry is not None:
                rank, task, n, a = entry
                lane = queue + name[len(entry.name) :]
                found[plan, task] = Place("runnable", f"{at}/{name}", rank, n, a, queue=lane)


def unplaced(paths: Paths, plan: str, tasks: array[int]) -> Step[array[int]]:
    """Find those of the sorted numbers `tasks` that are in no index: neither claimed, delayed,
    gated, runnable nor dead.

    The indexes are read in the order in which tasks move, from the claims on. So a task that is not
    claimed meanwhile is seen wherever it stands (see `interference.untouched`).
    """
    plan_path = paths.plan(plan)
    seen = bytearray(len(tasks))

    def note(found: Iterable[str]) -> None:
        for number in map(int, found):
            at = place_of(tasks, number)
            if at is not None:
                seen[at] = 1

    for _ in range(2):  # the second pass sees most tasks that are claimed meanwhile
        claims = [parse_claim(name) for _, name in (yield from names_on_claims_nodes(paths))]
        note(claim.task for claim in claims if claim is not None and claim.plan == plan)
        gates, later = yield ReadMany([ReadChildren(paths.gates), ReadChildren(paths.delayed)])
        gated = map(parse_gate, gates or ())
        note(item.entry.task for item in gated if item is not None and item.plan == plan)
        delayed = map(parse_delayed, later or ())
        note(item.entry.task for item in delayed if item is not None and item.plan == plan)
        for _, runnable in (yield from read_names(plan_path)):
            note(entry.task for entry in map(parse_entry, runnable) if entry is not None)
        dead = yield ReadChildren(f"{plan_path}/dead")
        note(name for name in dead or () if name.isascii() and name.isdecimal())
    return array("Q", (task for task, found in zip(tasks, seen, strict=True) if not found))


def find_place(paths: Paths, plan: str, task: str, hint: Place | None = None) -> Step[Place | None]:
    """Where the task stands now; None if it has finished, or if its outcome is fixed already.

    `hint` is its place as it was shortly before. Raises PlanNotFound, PlanCancelled, InvalidTask if
    the task was never added, and TaskError if it is still being defined or cannot be found.
    """
    plan_path = paths.plan(plan)
    path = f"{plan_path}/task-{task}"
    letter = Place("dead", f"{plan_path}/dead/{task}")
    before: Place | None = None
    for _ in range(REFUSALS_MAX):
        place, hint = hint or letter, None
        reads = [plan_path, f"{plan_path}/ready", path, f"{path}/ready", f"{path}/owner"]
        reads += [f"{path}/result", f"{path}/incomplete", f"{plan_path}/dead", place.path]
        # The outcome last: a task that dies between two reads must not look as if it had none.
        reads.append(f"{plan_path}/results/{task}")
        nodes = yield ReadMany([ReadData(each) for each in reads])
        root, control, node, ready, owner, result, incomplete, graves, stood, outcome = nodes
        _refuse(plan_path, task, root, control, node)
        if node is None or result is not None:
            return None
        # If somebody deleted `dead` by hand, whether the task is dead is not known.
        if incomplete is not None or graves is None:
            raise _undefined(task, path)
        if stood is not None:
            place = _complete(place, stood, owner is not None, outcome is not None)
            if place.state == "dead" and root is not None:
                record = readable_record(root.data)
                is_cascade = record is not None and record.on_failure == "cascade"
                place = place._replace(cascaded=is_cascade)
            if place.state == "running":
                held = claim_facts(stood.data).permit_paths(paths, plan)
                place = place._replace(permits=tuple(held))
            return place
        if ready is None:  # being defined, or deleted by hand once the task stood in an index
            hint = (yield from placed(paths, plan)).get(task)
            if hint is None:
                raise _undefined(task, path)
            continue
        k = count_from_bytes(ready.data)
        if ready.version == k:
            n, queue = (yield from last_n(path)), queue_from_bytes(ready.data)
            return Place("complete", f"{path}/ready", n=n, version=k, k=k, queue=queue)
        if ready.version < k:
            found = yield from _waiting(plan_path, path, task, ready)
            # A torn edge may just be moving: then it is whole on the next try.
            if found is not None and (len(found.edges) == k - found.version or found == before):
                return found
            before = found
        else:
            hint = (yield from placed(paths, plan)).get(task)
            if hint is None:
                found = yield from _lost(paths, plan, task, node, ready)
                if found is not None:
                    return found._replace(
                        has_owner=owner is not None, has_outcome=outcome is not None
                    )
    raise TaskError(
        task,
        f"{path} moves faster than it can be found: nothing was changed; try again, and if that "
        f"goes on, look at it with `zkplan plan check {int(plan)}`",
    )


def _undefined(task: str, path: str) -> TaskError:
    plan = int(path.rpartition("/")[0][-10:])
    return TaskError(
        task,
        f"{path} is still being defined, or its `ready` was deleted (`zkplan plan check {plan}` "
        "mends that): nothing was changed",
    )


def _lost(paths: Paths, plan: str, task: str, node: Node, ready: Node) -> Step[Place | None]:
    """The place of a published task that is in no index; None if it is in one."""
    if not (yield from unplaced(paths, plan, array("Q", [int(task)]))):
        return None
    path = paths.task(plan, task)
    n, queue = (yield from lost_n(path)), queue_from_bytes(ready.data)
    k = count_from_bytes(ready.data)
    permits = tuple((yield from left_permits(paths, plan, task, queue)))
    lost = Place("lost", path, n=n, version=ready.version, k=k, queue=queue, node=node)
    return lost._replace(permits=permits)


def last_n(task_path: str) -> Step[int]:
    """The number of the last claim of a task that waits or is complete; -1 if it had none.

    A task that failed and waits again had one: `retry-N` names it.
    """
    names = (yield ReadChildren(task_path)) or ()
    return _largest_n(names)


def lost_n(task_path: str) -> Step[int]:
    """An N that no claim or entry of a task has had, although the znode with its last N is gone
    (S8). Whoever puts the task back creates `retry-N` with it, so that the next N is larger."""
    owner, names = yield ReadMany([ReadData(f"{task_path}/owner"), ReadChildren(task_path)])
    named = owner.data.decode(errors="replace").rpartition(" ")[2] if owner is not None else ""
    largest = _largest_n(names or ())
    if named.isdecimal() and len(named) <= 10 and int(named) > largest:
        return int(named)
    return max(0, largest) + N_LOST


def _largest_n(names: Iterable[str]) -> int:
    found = [name.partition("-")[2] for name in names if name.startswith(("retry-", "started-"))]
    return max((int(n) for n in found if n.isdecimal() and len(n) <= 10), default=-1)


def never_was(plan_path: str, task: str) -> InvalidTask:
    """The error for a number that no task of the plan ever had."""
    plan = int(number_of(plan_path))
    return InvalidTask(
        task,
        f"plan {plan} ({plan_path}) has no task {int(task)}, and never had one; "
        f"`zkplan task ls {plan}` lists its tasks",
    )


def _refuse(
    plan_path: str, task: str, plan: Node | None, control: Node | None, node: Node | None
) -> None:
    if plan is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    require_known_format(plan_path, plan.data)
    if node is None and int(task) >= (plan.cversion + plan.child_count) // 2:
        raise never_was(plan_path, task)
    if control is not None and control_from_bytes(control.data) == "cancelled":
        raise PlanCancelled(plan_path, f"{plan_path} was cancelled: none of its tasks runs again")


def _complete(place: Place, node: Node, has_owner: bool, has_outcome: bool) -> Place:
    """`place`, completed by what its znode says."""
    if place.state == "running":
        facts = claim_facts(node.data)
        rank, a, queue = facts.rank, facts.a, facts.queue
        return place._replace(rank=rank, a=a, queue=queue, has_owner=has_owner)
    if place.state == "dead":
        letter = Dead.from_bytes(node.data)
        if letter.n < 0:
            # Without the number of its last claim, a runnable name might come back.
            raise PayloadUndecodable(f"{place.path}: {letter.error}; add its task again")
        rank, n, queue = letter.rank, letter.n, letter.queue
        return place._replace(rank=rank, n=n, queue=queue, has_outcome=has_outcome)
    return place._replace(data=node.data)


def _waiting(plan_path: str, path: str, task: str, ready: Node) -> Step[Place | None]:
    """The place of a waiting task, with the `dep-`, the `prov-` and the record of each open edge.

    None if edges come or go meanwhile. Raises TaskError if a `dep-` does not name its source.
    """
    names = yield ReadChildren(path)
    deps = [f"{path}/{name}" for name in sorted(names or ()) if name.startswith("dep-")]
    nodes = yield from read_all([ReadData(dep) for dep in deps])
    if any(node is None for node in nodes):
        return None
    sources = [parse_number(node.data.decode(errors="replace")) for node in nodes]
    if None in sources:
        raise TaskError(
            task,
            f"{path} has a `dep-` that does not name the task to wait for, so somebody changed it "
            "by hand: nothing was changed",
        )
    at_sources = [f"{plan_path}/task-{source}" for source in dict.fromkeys(sources)]
    listed = yield from read_all([ReadChildren(source) for source in at_sources])
    provs = [
        f"{source}/{name}"
        for source, children in zip(at_sources, listed, strict=True)
        for name in children or ()
        if name.startswith("prov-")
    ]
    records = yield from read_all([ReadData(prov) for prov in provs])
    ends = dict(ends_at(task, path, provs, records))
    edges = tuple((dep, *ends[dep]) for dep in deps if dep in ends)
    torn = tuple(dep for dep in deps if dep not in ends)
    rank, n = RANK, -1
    if edges:
        rank, n = edges[0][2].rank or RANK, edges[0][2].n - 1
    elif torn or ready.version < count_from_bytes(ready.data):
        n = yield from last_n(path)
    version, k, queue = ready.version, count_from_bytes(ready.data), queue_from_bytes(ready.data)
    place = Place("waiting", f"{path}/ready", rank, n, 0, edges, version, k, queue=queue)
    return place._replace(torn=torn)


def ends_at(
    task: str, path: str, provs: list[str], records: list[Node | None]
) -> Iterator[tuple[str, tuple[str, Edge]]]:
    """For each of `provs` that leads to the task at `path`: its `dep-`, itself and its record."""
    for prov, node in zip(provs, records, strict=True):
        if node is None:
            continue
        try:
            edge = Edge.from_bytes(node.data)
        except PayloadUndecodable:
            continue
        if edge.task == task:
            yield f"{path}/dep-{edge.position}", (prov, edge)


def place_of(tasks: array[int], number: int) -> int | None:
    """The index of `number` in the sorted `tasks`; None if it is not there."""
    at = bisect_left(tasks, number)
    return at if at < len(tasks) and tasks[at] == number else None
