"""Create a plan, and add tasks in pipelined, atomic, repeatable batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from ...errors import ZkplanError
from .. import failpoints
from ..core import repeatable_adds
from ..core.add import NewTask, dep_number, next_number, task_ops
from ..core.load import read_all
from ..core.plans_and_queues import make_queues
from ..core.repeatable_adds import AddChain
from ..fields import require_proven
from ..interference import skip_number
from ..layout import (
    DEFAULT_QUEUE,
    HISTORY,
    OWN_LIMIT,
    PLAN_FIXED,
    UNTOLD,
    Paths,
    limit_path,
    number_of,
    queue_in,
    task_key,
)
from ..records import PlanRecord
from ..requests import (
    NO_FACTS,
    Applied,
    Await,
    Create,
    Fact,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    Send,
    Step,
    Ticket,
)
from ..transactions import GROUP_BYTES_MAX, GUARD, Draft, ensure, rejected
from .bounds import refuse_if_spent, warning_of
from .decisions import send_failures

#: How many batches are under way at once, so that the server is busy while more are encoded.
WINDOW = 4
#: Operations in one batch. Larger batches are no faster; smaller ones cost a round trip each.
BATCH_OPS = 400


class Root(NamedTuple):
    """The root, and its bounds. None of what does not exist, or was just created."""

    node: Node | None
    bounds: Node | None


def ensure_root(paths: Paths) -> Step[Root]:
    """Create the root and its fixed children if they are missing. Returns what it has read."""
    wanted = [paths.workers, paths.claims, paths.delayed, paths.active]
    reads = [ReadData(path) for path in (*wanted, paths.root, paths.bounds)]
    *nodes, root, bounds = yield ReadMany(reads)
    if all(node is not None for node in nodes):
        return Root(root, bounds)
    parts = paths.root.split("/")
    above = ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
    for path in (*above, *wanted):
        answer = yield Multi([Create(path)])
        # This client may lack the right to create above the root: if the znode does not exist, the
        # next path is refused.
        known = (Reason.NODE_EXISTS, *([Reason.NO_AUTH] if len(path) < len(paths.root) else []))
        if isinstance(answer, Refused) and answer.reason not in known:
            raise rejected(f"creating {path}", answer)
    return Root(None, None)


def create_plan(
    paths: Paths,
    record: PlanRecord,
    children: Sequence[str] = PLAN_FIXED,
    warn: Callable[[str], None] = lambda warning: None,
) -> Step[str]:
    """Create a plan with these children in one transaction. Returns its number."""
    made = yield from create_plan_with(paths, record, lambda number: [], children, warn)
    assert isinstance(made, str)
    return made


def create_plan_with(
    paths: Paths,
    record: PlanRecord,
    more: Callable[[str], list[Op]],
    children: Sequence[str] = PLAN_FIXED,
    warn: Callable[[str], None] = lambda warning: None,
    facts: Callable[[str], Mapping[str, Fact]] = lambda number: NO_FACTS,
) -> Step[str | Refused]:
    """Create a plan with the operations that `more` gives for its number, and their `facts`. Calls
    `warn` if the budget is nearly spent.

    Returns the number, or the refusal of one of these operations. Then nothing was written, not
    even by an earlier copy, whose fixed children would refuse this copy. Raises BudgetSpent.
    """
    root, bounds_node = yield from ensure_root(paths)
    bounds = refuse_if_spent(paths, bounds_node)
    if bounds is not None and (warning := warning_of(paths, bounds)):
        warn(warning)
    if record.max_running:
        yield from ensure(f"{paths.root}/limits")
    while True:
        if root is None:
            root = yield ReadData(paths.root)
        if root is None:
            yield from ensure_root(paths)
            continue
        number = f"{next_number(root):010d}"
        path = paths.plan(number)
        ops: list[Op] = [
            Create(f"{paths.root}/plan-", record.to_bytes(), sequence=True, becomes=path)
        ]
        ops += [Create(f"{path}/{name}") for name in children]
        if record.history:
            ops += [Create(f"{path}/{HISTORY}"), Create(f"{path}/{HISTORY}/{UNTOLD}")]
        if record.max_running:
            size = b"%d" % record.max_running
            ops.append(Create(limit_path(paths.root, number, OWN_LIMIT), size))
        answer = yield Multi([*ops, *more(number)], facts(number))
        if isinstance(answer, Applied):
            return number_of(answer.results[0])
        refused: Refused = answer
        if refused.at >= len(ops):
            return refused
        # The prediction was wrong: another plan took the number.
        root = None
        if answer.reason not in (Reason.NO_NODE, Reason.NODE_EXISTS):
            raise rejected(f"creating a plan under {paths.root}", answer)
        if answer.repeated:
            # The first copy may have created it: its record holds the unique uid.
            node = yield ReadData(path)
            if node is not None and node.data == record.to_bytes():
                return number
        if answer.at == 0 and answer.reason is Reason.NODE_EXISTS:
            yield from skip_number(paths.root)


def first_task(record: PlanRecord) -> int:
    """The predicted number of the first task of a new plan: the creates in the plan before it."""
    return len(PLAN_FIXED) + record.history


class _Batch(NamedTuple):
    """Tasks that are being added, with their predicted numbers."""

    identity: str
    numbers: dict[NewTask, str]
    draft: Draft
    ticket: Ticket


class Author(AddChain):
    """Adds tasks to one plan, as one chain of adds. Not thread-safe."""

    #: Whether failures in this plan cascade, which is known once its record was read.
    cascades = False

    def add(self, tasks: Sequence[NewTask]) -> Step[None]:
        """Create `tasks`, in order, and set their numbers. Raises if an add is refused for good.

        Each batch is atomic. After an error the earlier batches stay: their tasks have numbers, and
        `added` of the error counts them.
        """
        try:
            yield from self._add_all(tasks)
            taking = [task for task in tasks if self.cascades or task.takes_failures]
            if sources := [dep_number(dep) for task in taking for dep in task.deps]:
                # Some were dead already, or died before their workers had read the new edge.
                root, _, name = self.plan_path.rpartition("/")
                yield from send_failures(Paths(root), number_of(name), sources)
        except ZkplanError as error:
            given = [bool(task.number) for task in tasks if not task.implied]
            error.added = sum(given)
            if error.added:
                count = f"{error.added} of the {len(given)} tasks of this add"
                error.args = (f"{error}; the first {count} are in the plan",)
            raise

    def _add_all(self, tasks: Sequence[NewTask]) -> Step[None]:
        for part in _without_twins(tasks):
            yield from self._find_keyed(part)
            new = [task for task in part if not task.number]
            yield from self._make_queues(new)
            yield from self._add_part(new)

    def _find_keyed(self, tasks: Sequence[NewTask]) -> Step[None]:
        """Set the numbers of tasks whose keys the plan already has."""
        keyed = [task for task in tasks if task.key]
        reads = [ReadData(task_key(self.plan_path, task.key)) for task in keyed]
        for task, node in zip(keyed, (yield from read_all(reads, None)), strict=True):
            if node is not None:
                require_proven(node.data)
                task.is_there(node.data)

    def _make_queues(self, tasks: Sequence[NewTask]) -> Step[None]:
        queues = {queue_in(task.queue) for task in tasks} - {DEFAULT_QUEUE}
        while not queues <= self.queues:
            took = yield from make_queues(self.plan_path, queues)
            if took is None:
                yield from self.explain_plan()
                continue  # it takes tasks by now
            if took:
                yield from self.learn(again=True)
            self.queues |= queues

    def _add_part(self, tasks: Sequence[NewTask]) -> Step[None]:
        for is_wide, run in groupby(tasks, lambda task: task.k > repeatable_adds.EDGES_PER_MULTI):
            if not is_wide:
                yield from self._add_run(list(run))
                continue
            for task in run:
                yield from repeatable_adds.add_wide_join(self, task)

    def _add_run(self, tasks: Sequence[NewTask]) -> Step[None]:
        flying: deque[_Batch] = deque()
        start = 0
        while start < len(tasks) or flying:
            if start < len(tasks) and len(flying) < WINDOW:
                yield from self.learn()
                batch = yield from self._send(tasks, start, flying)
                flying.append(batch)
                start += len(batch.numbers)
                continue
            answer = yield Await(flying[0].ticket)
            if isinstance(answer, Applied):
                self._take_numbers(flying.popleft())
                continue
            answers = [answer]
            for batch in list(flying)[1:]:
                answers.append((yield Await(batch.ticket)))  # noqa: PERF401 - cannot yield inside
            yield from self._recover(list(flying), answers)
            # Added tasks have numbers, also those that another author added under the same key.
            tasks, start = [task for task in tasks if not task.number], 0
            flying.clear()

    def _send(self, tasks: Sequence[NewTask], start: int, flying: deque[_Batch]) -> Step[_Batch]:
        draft = Draft()
        identity, draft.ops = self.begin(flying[-1].identity if flying else self.previous)
        draft.own(GUARD)
        known: dict[NewTask, str] = {}
        for batch in flying:
            known |= batch.numbers
        first, size, chosen = (self._next or 0) + len(known), 0, dict[NewTask, str]()
        for task in tasks[start:]:
            if chosen and (
                len(draft.ops) + task.op_count > BATCH_OPS or size + task.size > GROUP_BYTES_MAX
            ):
                break
            known[task] = number = f"{first + len(chosen):010d}"
            draft.ops += task_ops(self.plan_path, task, number, known)
            draft.facts[f"{self.plan_path}/task-{number}"] = Fact(task.name)
            draft.own(len(chosen))
            chosen[task] = number
            size += task.size
        failpoints.reach("add.before")
        return _Batch(identity, chosen, draft, (yield Send(draft.multi)))

    def _take_numbers(self, batch: _Batch) -> None:
        for task, number in batch.numbers.items():
            task.number = number
        self.applied(batch.identity, len(batch.numbers))

    def _recover(self, batches: list[_Batch], answers: list[Applied | Refused]) -> Step[None]:
        """Find which of `batches` were applied, and why the next one was not."""
        done = max((i + 1 for i, a in enumerate(answers) if isinstance(a, Applied)), default=0)
        if any(answer.repeated for answer in answers):
            # Each batch deletes the identity of the batch before it, so the tree holds the identity
            # of the last batch that was applied.
            standing = set((yield ReadChildren(f"{self.plan_path}/add-ids")) or ())
            done = max(
                [done, *(i + 1 for i, batch in enumerate(batches) if batch.identity in standing)]
            )
        for batch in batches[:done]:
            self._take_numbers(batch)
        if done == len(batches):
            return
        answer = answers[done]
        assert isinstance(answer, Refused)
        owner = batches[done].draft.owners[answer.at]
        tasks = list(batches[done].numbers)
        yield from self.explain(answer, None if owner == GUARD else tasks[owner])


def _without_twins(tasks: Sequence[NewTask]) -> Iterator[list[NewTask]]:
    """Split `tasks`, in order, so that no part has a key twice: the second task finds the first."""
    part, keys = list[NewTask](), set[str]()
    for task in tasks:
        if task.key and task.key in keys:
            yield part
            part, keys = [], set()
        if task.key:
            keys.add(task.key)
        part.append(task)
    yield part
