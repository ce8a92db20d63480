"""Define tasks: the operations that add them, and their definitions as bytes.

The numbers of the new tasks are predicted. If a prediction is wrong, `task-N/ready` has no parent
and the whole transaction is refused, so there is never a half-defined task.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import (
    PayloadTooLarge,
    PayloadUndecodable,
    PlanCancelled,
    PlanDrained,
    PlanNotFound,
    ResultNotKept,
)
from ..fields import as_queue, as_rank, as_text, as_whole_from_0, from_json, require_proven, to_json
from ..layout import (
    DEFAULT_QUEUE,
    INCOMPLETE,
    PLAN_FIXED,
    RANK_MIDDLE,
    TAKES_FAILURES,
    Entry,
    delayed_name,
    entry_path,
    gate_name,
    number_of,
    task_key,
)
from ..records import control_from_bytes, ready_to_bytes, was_cancelled
from ..requests import Create, Fact, Node, Op, ReadChildren, ReadData, ReadMany, SetData, Step
from ..transactions import GROUP_BYTES_MAX, READS_PER_REQUEST, REQUEST_BYTES_MAX
from .edges import argument_of, edge_ops, with_sources

#: For adds in whose transaction no task dies.
NOBODY: Mapping[str, bool] = {}


@dataclass(slots=True, eq=False)
class NewTask:
    """A task to be added.

    `deps` has a task number or another NewTask for each position. `known` maps the positions of
    finished dependencies to their sealed results. `number` is set once the transaction that creates
    the task was applied. `keep` is the option of the task, and `feeds` says that a task added after
    it takes its result: from these its author knows whether the result will be kept.
    `takes_failures`: the task runs even if tasks that it waits for fail for good. `name` is for the
    history. With a `key`, the plan has at most one task of that key; `existed`: the plan had it
    before. The task does not run before `not_before_ms`, in wall-clock time; 0 means at once.
    `gate` is the sealed condition of a gate, which has neither `deps` nor `not_before_ms`;
    `implied`: the author gave the gate as an argument.
    """

    label: str
    rank: str
    record: bytes
    deps: list[str | NewTask]
    known: dict[int, bytes] = field(default_factory=dict)
    number: str = ""
    keep: bool | None = None
    feeds: bool = False
    queue: str = DEFAULT_QUEUE
    key: str = ""
    existed: bool = False
    not_before_ms: int = 0
    gate: bytes = b""
    implied: bool = False
    takes_failures: bool = False
    name: str = ""

    @property
    def k(self) -> int:
        """The number of edges: the positions that still wait for a value."""
        return len(self.deps) - len(self.known)

    @property
    def op_count(self) -> int:
        more = bool(self.key) + bool(self.gate) + self.takes_failures
        return 4 + 2 * len(self.deps) + more

    @property
    def size(self) -> int:
        known = sum(map(len, self.known.values())) if self.known else 0
        own = 500 + len(self.record) + len(self.gate) + 2 * len(self.key)
        return own + 400 * len(self.deps) + known

    def is_there(self, data: bytes) -> None:
        """Take the number of the task that has the key, from the data of the key's znode."""
        self.number, self.existed = number_of(data[:10].decode(errors="replace")), True


def dep_number(dep: str | NewTask) -> str:
    return dep if isinstance(dep, str) else dep.number


def key_ops(plan_path: str, task: NewTask, number: str) -> list[Op]:
    """Give a task its key: refused if another task of the plan has it."""
    if not task.key:
        return []
    return [Create(task_key(plan_path, task.key), f"{number} {task.key}".encode())]


def task_ops(
    plan_path: str,
    task: NewTask,
    number: str,
    numbers: dict[NewTask, str],
    dying: Collection[str] = (),
    held: str = "",
) -> list[Op]:
    """Create one task with its edges, and publish it if it waits for nothing.

    `numbers` has the predictions for tasks of the same transaction. `dying` are sources that have
    not ended with their known outcomes. `held` names the task whose adds this one waits for: see
    `wide_adds`.
    """
    path = f"{plan_path}/task-{number}"
    k, queue = task.k + bool(held), task.queue
    sources = [dep if isinstance(dep, str) else numbers.get(dep) or dep.number for dep in task.deps]
    record = with_sources(task.record, [number] if task.gate else sources)
    ops: list[Op] = [
        Create(f"{plan_path}/task-", record, sequence=True, becomes=path),
        Create(f"{path}/ready", ready_to_bytes(k, queue)),
        *key_ops(plan_path, task, number),
    ]
    if task.takes_failures:
        ops.append(Create(f"{path}/{TAKES_FAILURES}"))  # for the check
    if task.gate:
        ops.append(Create(f"{path}/gate", task.gate))
    if held:
        ops.append(Create(f"{path}/{INCOMPLETE}", held.encode()))
    for position, source in enumerate(sources):
        value = task.known.get(position)
        if value is not None:
            argument = argument_of(source, value, ended=source not in dying)
            ops.append(Create(f"{path}/arg-{position:010d}", argument))
            continue
        edge = (source, number, position, k, task.rank, queue, task.takes_failures)
        ops += edge_ops(plan_path, *edge)
    if k == 0:
        ops.append(SetData(f"{path}/ready", ready_to_bytes(0, queue)))
        ops.append(Create(first_place(plan_path, task, number)))
    return ops


def first_place(plan_path: str, task: NewTask, number: str) -> str:
    """The first entry of a task that waits for no edge: runnable, delayed or gated."""
    entry = Entry(task.rank, number, 0, 0)
    root, _, plan = plan_path.rpartition("/")
    if task.gate:
        return f"{root}/gates/{gate_name(number_of(plan), entry, task.queue)}"
    if not task.not_before_ms:
        return entry_path(plan_path, task.queue, entry)
    name = delayed_name(task.not_before_ms, number_of(plan), entry, task.queue)
    return f"{root}/delayed/{name}"


def added_ops(
    plan_path: str,
    tasks: Sequence[NewTask],
    first: int,
    finishing: Mapping[str, bytes],
    dying: Mapping[str, bool] = NOBODY,
) -> list[Op]:
    """Create the tasks that a function added, numbered from `first`. See `names_of`.

    `finishing` maps the tasks that end in the same transaction to their outcomes. They can get no
    more edges, so their dependents get the outcome at once. Tasks in `dying` stay dead: True means
    that the failure cascades; False means that only tasks that take failures get it, and the others
    wait for a retry (S19).
    """
    ops: list[Op] = []
    numbers: dict[NewTask, str] = {}
    for offset, task in enumerate(tasks):
        numbers[task] = f"{first + offset:010d}"
        lent = [
            position
            for position, dep in enumerate(task.deps)
            if position not in task.known
            and (source := dep_number(dep)) in finishing
            and (task.takes_failures or dying.get(source, True))
        ]
        for position in lent:
            task.known[position] = finishing[dep_number(task.deps[position])]
        ops += task_ops(plan_path, task, numbers[task], numbers, dying)
        # If this transaction is refused, the other task may not finish in the next one.
        for position in lent:
            del task.known[position]
    return ops


def names_of(plan_path: str, tasks: Sequence[NewTask], first: int) -> dict[str, Fact]:
    """What the history records of tasks that are numbered from `first`."""
    return {
        f"{plan_path}/task-{number:010d}": Fact(task.name)
        for number, task in enumerate(tasks, first)
    }


def next_number(plan: Node) -> int:
    """The number of the next sequential child: the creates so far, since cversion is 2 * creates -
    children. It is a guess, which the transaction that uses it proves."""
    return (plan.cversion + plan.child_count) // 2


def task_count(plan: Node, *others: Node | None) -> int:
    """The number of unfinished tasks: the children of the plan, except the fixed children and the
    `others` that exist."""
    return plan.child_count - len(PLAN_FIXED) - sum(each is not None for each in others)


def read_all_finished(plan_path: str, tasks: Sequence[NewTask]) -> Step[None]:
    """As `read_finished`, for each of `tasks`."""
    for task in tasks:
        yield from read_finished(plan_path, task)


def read_finished(plan_path: str, task: NewTask, among: Sequence[int] | None = None) -> Step[None]:
    """Read the kept results of finished dependencies of `task`, at the positions `among`, into
    `known`.

    Raises ResultNotKept if a dependency is gone without a result, PayloadRefused if a result is not
    sealed for its place, and PlanCancelled, PlanDrained or PlanNotFound if the plan has ended or is
    being removed.
    """
    positions = range(len(task.deps)) if among is None else among
    open_positions = [i for i in positions if i not in task.known and dep_number(task.deps[i])]
    for start in range(0, len(open_positions), READS_PER_REQUEST // 2):
        chunk = open_positions[start : start + READS_PER_REQUEST // 2]
        reads: list[ReadData | ReadChildren] = []
        for position in chunk:
            number = dep_number(task.deps[position])
            reads.append(ReadData(f"{plan_path}/task-{number}"))
            reads.append(ReadData(f"{plan_path}/results/{number}"))
        nodes = yield ReadMany(reads)
        for position, node, outcome in zip(chunk, nodes[::2], nodes[1::2], strict=True):
            if node is not None:
                continue
            number = dep_number(task.deps[position])
            if outcome is None:
                yield from _check_goes_on(plan_path)
                raise ResultNotKept(
                    task.label,
                    f"{task.label} depends on task {number} of {plan_path}, which has finished (or "
                    "was never added), and whose result was not kept; add that task with keep=True",
                )
            require_proven(outcome.data)
            if len(outcome.data) > REQUEST_BYTES_MAX // 2:
                raise PayloadTooLarge(
                    f"the kept result of task {number}, which {task.label} depends on,",
                    len(outcome.data),
                    REQUEST_BYTES_MAX // 2,
                )
            task.known[position] = outcome.data


def _check_goes_on(plan_path: str) -> Step[None]:
    """Raise if the plan takes no more tasks: that explains why a kept result is missing, because a
    removal cancels the plan before it deletes results."""
    parts = ("", "/ready", "/add-count")
    plan, ready, adds = yield ReadMany([ReadData(f"{plan_path}{part}") for part in parts])
    if plan is None:
        raise PlanNotFound(plan_path, f"{plan_path} was removed; create a new plan")
    if ready is not None and control_from_bytes(ready.data) == "cancelled":
        raise was_cancelled(plan_path, ready.data)
    if adds is None:
        raise PlanDrained(
            plan_path,
            f"{plan_path} has run all its tasks, or is being removed; create a new plan for more",
        )


def being_removed(plan_path: str) -> PlanCancelled:
    return PlanCancelled(
        plan_path, f"{plan_path} is being removed: its tasks can add no more tasks"
    )


# ---- Definitions of added tasks as bytes, which are staged below the task that adds them.


_LENGTHS = struct.Struct(">IIII")


def chunks_of(tasks: Sequence[NewTask]) -> Iterator[bytes]:
    """The tasks in order, as many in each chunk as a grouped transaction carries, at least one."""
    places = {task: place for place, task in enumerate(tasks)}
    chunk = bytearray()
    for task in tasks:
        packed = _packed(task, places)
        if chunk and len(chunk) + len(packed) > GROUP_BYTES_MAX:
            yield bytes(chunk)
            chunk.clear()
        chunk += packed
    yield bytes(chunk)


def tasks_of(chunks: Sequence[bytes]) -> list[NewTask]:
    """The tasks of all chunks, in order. Raises PayloadUndecodable for damaged ones."""
    tasks: list[NewTask] = []
    try:
        for chunk in chunks:
            at = 0
            while at < len(chunk):
                at = _unpack(chunk, at, tasks)
    except (IndexError, struct.error) as error:
        raise PayloadUndecodable(f"staged definitions of tasks are damaged: {error}") from None
    return tasks


def _packed(task: NewTask, places: dict[NewTask, int]) -> bytes:
    # A dependency takes four bytes, as a source does (`with_sources`). So a definition that fits a
    # transaction as a task fits one as a chunk. Numbers below 0 are places in the set.
    deps = [int(dep) if isinstance(dep, str) else ~places[dep] for dep in task.deps]
    head = to_json(
        {
            "label": task.label,
            "name": task.name,
            "rank": task.rank,
            "queue": task.queue,
            "not_before_ms": task.not_before_ms,
            "fails": task.takes_failures,
        }
    )
    lengths = _LENGTHS.pack(len(head), len(deps), len(task.record), len(task.gate))
    return b"".join((lengths, head, struct.pack(f">{len(deps)}i", *deps), task.record, task.gate))


def _unpack(chunk: bytes, at: int, tasks: list[NewTask]) -> int:
    """Append the task that begins at byte `at` of `chunk`. Returns where the next one begins."""
    lengths: tuple[int, int, int, int] = _LENGTHS.unpack_from(chunk, at)
    head_size, dep_count, record_size, gate_size = lengths
    at += _LENGTHS.size
    head = from_json(chunk[at : at + head_size], "the definition of an added task")
    at += head_size
    found = struct.unpack_from(f">{dep_count}i", chunk, at)
    at += 4 * dep_count
    record, gate = chunk[at : at + record_size], chunk[at + record_size :][:gate_size]
    task = NewTask(
        as_text(head.get("label")),
        as_rank(head.get("rank")) or f"{RANK_MIDDLE}",
        record,
        [f"{number:010d}" if number >= 0 else tasks[~number] for number in found],
        queue=as_queue(head.get("queue")),
        not_before_ms=as_whole_from_0(head.get("not_before_ms")) or 0,
        gate=gate,
        takes_failures=head.get("fails") is True,
        name=as_text(head.get("name")),
    )
    tasks.append(task)
    return at + record_size + gate_size
