"""Take a consistent snapshot of a plan while none of its tasks is claimed.

Everything is read twice, the second time only the structure. No part of a plan ever returns to an
earlier state, because numbers grow and names are never used again. So if both readings are equal,
nothing changed between them, and the snapshot shows one moment.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import PlanError, PlanNotFound
from ..protocol.core.add import next_number
from ..protocol.core.load import VALUES_FIRST, read_all, values_next
from ..protocol.core.plans_and_queues import list_queues, names_on_claims_nodes, read_entries
from ..protocol.history.compaction import Cut
from ..protocol.layout import (
    ADDS,
    HISTORY,
    PENDING,
    QUEUES,
    SHARED,
    STAGED,
    TASK_KEY,
    Delayed,
    Entry,
    Paths,
    active_entry,
    delayed_name,
    entry_path,
    gate_name,
    parse_claim,
    parse_delayed,
    parse_gate,
)
from ..protocol.records import (
    control_from_bytes,
    control_to_bytes,
    count_from_bytes,
    queue_from_bytes,
)
from ..protocol.requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    SetData,
    Step,
)
from ..protocol.transactions import READS_PER_REQUEST, pending_dependents

#: Tasks whose children are listed in one request.
TASKS_PER_READ = 300
#: The children of a plan that are created in the last transaction of its import, in this order.
LAST = ("add-count", "done", "ready")
#: In place of a due time, for the entry of a gate.
GATED = -1


class Znode(NamedTuple):
    """One znode of a plan: its path below the plan, its data, and for a task's `ready` its version.

    A gate is `gates/ENTRY`. A delayed entry is `delayed/DUE-ENTRY`, and its data are its delay. The
    entries lack the plan's number, because an import changes it.
    """

    path: str
    data: bytes = b""
    version: int = 0


Sink = Callable[[Znode], None]


class Stand(NamedTuple):
    """The control znodes of a plan: `ready` and `adds` are the versions of `ready` and `add-count`,
    -1 if the znode is missing."""

    state: str
    ready: int
    adds: int


class Survey(NamedTuple):
    """The facts of a plan before it is read.

    `creates` counts the children ever created, which is the number of the next task. `claimed` maps
    claimed tasks to their workers, and `ranks` maps the tasks that pending records name to ranks.
    """

    stand: Stand
    record: bytes
    creates: int
    claimed: dict[str, str]
    ranks: dict[str, str]


def survey(paths: Paths, plan: str) -> Step[Survey]:
    """Read the plan's state, then the claims on its tasks. Raises PlanNotFound.

    The claims nodes are read after `ready`, so that every claim made before the pause is seen. No
    claim is made after it.
    """
    path = paths.plan(plan)
    node, *control = yield ReadMany([ReadData(path), *(ReadData(f"{path}/{n}") for n in LAST)])
    if node is None:
        raise PlanNotFound(path, f"there is no plan {path}")
    adds, done, ready = control
    state = "defining" if ready is None else control_from_bytes(ready.data)
    versions = [znode.version if znode is not None else -1 for znode in (ready, adds)]
    claimed: dict[str, str] = {}
    pending_records: list[ReadData] = []
    for worker, name in (yield from names_on_claims_nodes(paths)):
        claim = parse_claim(name)
        if claim is not None and claim.plan == plan:
            claimed[claim.task] = worker
        elif name.startswith(PENDING):
            pending_records.append(ReadData(f"{paths.claims_of(worker)}/{name}"))
    ranks: dict[str, str] = {}
    for pending in (yield from read_all(pending_records, strict=False)):
        named = pending_dependents(pending.data) if pending is not None else []
        ranks.update((target.task, target.rank) for target in named if target.plan == plan)
    stand = Stand("done" if done is not None else state, *versions)
    return Survey(stand, node.data, next_number(node), claimed, ranks)


def read_plan(paths: Paths, plan: str, ranks: dict[str, str], sink: Sink | None) -> Step[bytes]:
    """Read the plan once, and return a digest of its structure. `sink`, if given, gets the znodes.

    A task that is complete but not published yet goes to the sink as published, because its pending
    record is on a claims node, which is not exported. Raises PlanError for a task that is still
    being defined.
    """
    path = paths.plan(plan)
    # Read `delayed` and `gates` first, so that an entry that becomes due meanwhile, or a gate that
    # opens, is seen in both places rather than in neither.
    names, delayed, gates = yield ReadMany(
        [ReadChildren(path), ReadChildren(paths.delayed), ReadChildren(paths.gates)]
    )
    runnable = yield from read_entries(path)
    indexes = ("dead", "results", "add-ids")
    dead, results, ids = yield ReadMany([ReadChildren(f"{path}/{name}") for name in indexes])
    queues = yield from list_queues(path)
    if names is None:
        raise PlanNotFound(path, f"there is no plan {path}")
    tasks = sorted(name for name in names if name.startswith("task-"))
    control = [name for name in LAST if name in names]
    later = [found for found in map(parse_delayed, delayed or ()) if found and found.plan == plan]
    entries = {(found.queue, found.entry): found.due_ms for found in later}
    gated = [found for found in map(parse_gate, gates or ()) if found and found.plan == plan]
    entries |= {(found.queue, found.entry): GATED for found in gated}
    entries |= dict.fromkeys(runnable, 0)
    dead = sorted(dead or ())
    placed = {entry.task for _, entry in entries}.union(dead)
    walk = _Walk(path, sink, ranks, entries, placed, queues, HISTORY in names)
    standing = sorted(f"{queue}/{entry.name}" for queue, entry in entries)
    walk.note(*control, "", *queues, "", *standing, "", *dead, "")
    waiting = [entry.name for (_, entry), due_ms in entries.items() if due_ms == GATED]
    walk.note(*sorted(waiting), "")
    for start in range(0, len(tasks), TASKS_PER_READ):
        yield from walk.read_tasks(tasks[start : start + TASKS_PER_READ])
    keys = sorted(name for name in ids or () if name.startswith((TASK_KEY, SHARED)))
    walk.note(*keys, "")
    yield from walk.copy([f"add-ids/{name}" for name in keys])
    kept = sorted(results or ())
    walk.note(*kept)
    yield from walk.copy([f"results/{name}" for name in kept])
    yield from walk.copy([f"dead/{name}" for name in dead])
    yield from walk.give_entries(paths, plan)
    yield from walk.copy(control)
    return walk.digest.digest()


@dataclass(slots=True)
class _Walk:
    """One reading of a plan.

    `entries` maps each entry to its due time in milliseconds, to 0 if it is runnable, or to GATED.
    `placed` has the tasks that are in an index.
    """

    path: str
    sink: Sink | None
    ranks: dict[str, str]
    entries: dict[tuple[str, Entry], int]
    placed: set[str]
    queues: list[str]
    has_history: bool
    digest: hashlib.blake2b = field(default_factory=hashlib.blake2b)

    def note(self, *words: str) -> None:
        self.digest.update("\n".join((*words, "")).encode())

    def read_tasks(self, tasks: list[str]) -> Step[None]:
        reads: list[ReadData | ReadChildren] = []
        for task in tasks:
            reads += (ReadData(f"{self.path}/{task}/ready"), ReadChildren(f"{self.path}/{task}"))
        answers = yield ReadMany(reads)
        wanted: list[str | Znode] = []
        for index, task in enumerate(tasks):
            ready, names = answers[2 * index : 2 * index + 2]
            if names is None:
                continue  # finished or removed meanwhile, so the second reading will differ
            if ready is None or "incomplete" in names:
                raise PlanError(
                    self.path,
                    f"{task} of {self.path} is still being defined: wait for its author to finish "
                    "(`zkplan plan check` shows more), then export again",
                )
            if ADDS in names:
                raise PlanError(
                    self.path,
                    f"{task} of {self.path} is still adding tasks: let a worker run the plan until "
                    "all of them are added, then export again",
                )
            # The `owner` mark of a worker, which may outlive its claim a little, is not part of the
            # plan. Neither are the adds that a lost claim has staged.
            children = sorted(
                name
                for name in names
                if name not in ("owner", "ready") and not name.startswith(STAGED)
            )
            self.note(task, ready.data.hex(), str(ready.version), *children, "")
            version = self._published(task, ready.data, ready.version, children)
            wanted += (task, Znode(f"{task}/ready", ready.data, version))
            wanted += [f"{task}/{name}" for name in children]
        yield from self.copy(wanted)

    def _published(self, task: str, k: bytes, version: int, children: list[str]) -> int:
        """The version of `ready`, plus one if the task is complete and not published yet."""
        number = task[5:]
        owed = count_from_bytes(k) == version and number not in self.placed
        if not owed or any(name.startswith("dep-") for name in children):
            return version
        # The task may have run before its plan was retried, and the name of an entry is never used
        # again.
        retries = [int(name[6:]) for name in children if re.fullmatch("retry-[0-9]+", name)]
        n = max(retries, default=-1) + 1
        entry = Entry(self.ranks.get(number) or "5000", number, n, 0)
        self.entries[queue_from_bytes(k), entry] = 0
        return version + 1

    def copy(self, wanted: Sequence[str | Znode]) -> Step[None]:
        """Give the wanted znodes to the sink, in order. Those given by name are read first.

        Nothing else limits the size of an answer, so the sizes of earlier answers decide how many
        values the next request asks for.
        """
        sink = self.sink
        if sink is None:
            return
        start, count = 0, VALUES_FIRST
        while start < len(wanted):
            batch = wanted[start : start + count]
            start += count
            reads = [ReadData(f"{self.path}/{item}") for item in batch if isinstance(item, str)]
            nodes = yield ReadMany(reads)
            count, left = values_next(nodes), iter(nodes)
            for item in batch:
                if not isinstance(item, str):
                    sink(item)
                elif (node := next(left)) is not None:  # else the second reading will differ
                    sink(Znode(item, node.data))

    def give_entries(self, paths: Paths, plan: str) -> Step[None]:
        """Give the entries to the sink. A delayed entry takes its delay along as data, because its
        due time may come from a wrong clock."""
        if self.sink is None:
            return
        if self.queues:
            self.sink(Znode(QUEUES))
        for queue in self.queues:
            self.sink(Znode(f"{QUEUES}/{queue}"))
        if self.has_history:
            # The history begins with the import, without earlier events of the imported tasks.
            self.sink(Znode(HISTORY, Cut(imported=True).to_bytes()))
        entries = list(self.entries.items())
        for start in range(0, len(entries), READS_PER_REQUEST):
            batch = entries[start : start + READS_PER_REQUEST]
            names = [
                delayed_name(due_ms, plan, entry, queue)
                for (queue, entry), due_ms in batch
                if due_ms > 0
            ]
            reads = [ReadData(f"{paths.delayed}/{name}") for name in names]
            nodes = iter((yield ReadMany(reads)) if reads else ())
            for (queue, entry), due_ms in batch:
                node = next(nodes) if due_ms > 0 else None
                place = entry_path("", queue, entry)[1:]
                if due_ms > 0:
                    name = delayed_name(due_ms, plan, entry, queue)
                    place = f"delayed/{name[:14]}{name[25:]}"
                elif due_ms == GATED:
                    place = f"gates/{gate_name(plan, entry, queue)[11:]}"
                self.sink(Znode(place, node.data if node is not None else b""))


def delayed_of(path: str, plan: str) -> Delayed | None:
    """The delayed entry that `delayed/DUE-ENTRY` of a snapshot means in the plan with the number
    `plan`.

    >>> delayed_of("delayed/0000000001000-5000-0000000012.1.1", "0000000003").entry.task
    '0000000012'
    """
    return parse_delayed(f"{path[8:21]}-{plan}{path[21:]}")


def retire(path: str, seen: Stand) -> Step[None]:
    """Cancel a plan if it is still as in the snapshot, so that it never runs again here.

    Raises PlanError if the plan has changed since, because a task that was added later would be
    lost.
    """
    if seen.state == "cancelled":
        return
    control = f"{path}/ready"
    cancelled = control_to_bytes("cancelled")
    end: Op = (
        SetData(control, cancelled, seen.ready) if seen.ready >= 0 else Create(control, cancelled)
    )
    ops = [end, Delete(f"{path}/add-count", seen.adds)] if seen.adds >= 0 else [end]
    if seen.state == "done":
        ops.append(Check(f"{path}/done"))  # a retry would delete `done`
    # Making an entry after this read also raises the version of `ready`.
    if (yield ReadData(active_entry(path))) is not None:
        ops.append(Delete(active_entry(path)))
    answer = yield Multi(ops)
    if isinstance(answer, Applied):
        return
    now = yield ReadData(control)
    if now is not None and control_from_bytes(now.data) == "cancelled":
        return  # an earlier copy of this transaction, or another client, has cancelled the plan
    raise PlanError(
        path,
        f"{path} was changed after its export (resumed, or tasks were added), so it was not "
        "removed. The file shows the earlier state: pause the plan and export it again",
    )
