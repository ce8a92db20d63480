"""One finished task in a commit: its operations and their size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..layout import ADDS, DEFAULT_QUEUE, DELIVERED, queue_in
from ..requests import Create, Delete, Fact, Op, SetData
from ..transactions import GROUP_BYTES_MAX, GROUP_OPS_MAX, OP_OVERHEAD
from .add import NewTask, dep_number
from .edges import Edge, argument_of
from .end_claims import undelivered_ops
from .load import Loaded


@dataclass(slots=True, eq=False)
class Part:
    """One finished task: its sealed outcome, and what its commit does besides delivering it.

    With `keep` None an outcome is kept if it went to no dependent. `dead` is the dead letter of a
    failure that goes along edges. `adds` are the tasks that the function added. `run` are the pure
    tasks that this worker has run after it, in order. They have no claims, so they are committed
    with this part while the `ready` of the plan has that `version`, or not at all.
    """

    loaded: Loaded
    outcome: bytes
    keep: bool | None = None
    dead: bytes = b""
    adds: list[NewTask] = field(default_factory=list)
    #: The task stays, dead. If it cascades, its failure goes along all edges; if not, only to
    #: dependents that take failures.
    holds: bool = False
    cascades: bool = False
    skips: bool = False
    run: Sequence[Part] = ()
    version: int = -1
    #: A run was dropped, though an earlier copy of the transaction may have committed it.
    was_cut: bool = False
    #: How often the task was read again because it had changed.
    reloads: int = 0
    #: Whether the queues of the added tasks exist.
    queues_made: bool = False
    #: The last refusal: the path of a znode, and why.
    refused_by: str = ""

    def lacks_queues(self) -> set[str]:
        """The queues that must exist before the tasks are added."""
        if self.queues_made or not self.adds:
            return set()
        return {queue_in(task.queue) for task in self.adds} - {DEFAULT_QUEUE}

    @property
    def edges(self) -> list[tuple[str, Edge]]:
        """The edges along which the outcome goes."""
        edges, all_of_them = self.loaded.edges, self.cascades or not self.holds
        return edges if all_of_them else [item for item in edges if item[1].fails]

    def argument(self) -> bytes:
        """The data of the arguments. Raises PayloadRefused for an outcome that was refused."""
        return argument_of(self.loaded.claim.task, self.outcome, ended=not self.holds)

    @property
    def kept(self) -> bool:
        """Whether the commit keeps the outcome under `results`."""
        if self.dead or self.keep is not None:
            return bool(self.dead or self.keep)
        # `delivered`: a wide delivery has deleted edges.
        loaded = self.loaded
        feeds = bool(loaded.edges)
        if loaded.torn:
            feeds = any(not loaded.leads_nowhere(edge) for _, edge in loaded.edges)
        return not (feeds or self._lent or DELIVERED in loaded.others)

    @property
    def last(self) -> Part:
        """The part whose outcome goes along edges: the last of the run, or this one."""
        return self.run[-1] if self.run else self

    @property
    def fact(self) -> Fact:
        """What the history records of this task."""
        fact = self.loaded.claim.fact
        return fact._replace(skips=True) if self.skips else fact

    @property
    def ended_by(self) -> str:
        """The znode whose deletion ends the attempt."""
        claim = self.loaded.claim
        return claim.path if self.holds else claim.task_path

    @property
    def may_end_plan(self) -> bool:
        if self.holds and not self.cascades:
            return False
        return not self.last.loaded.edges or self.was_cut

    def cut(self) -> None:
        """Drop the results of the run: its tasks are pure, so they can run again."""
        self.was_cut = self.was_cut or bool(self.run)
        self.run = ()

    @property
    def op_count(self) -> int:
        loaded = self.loaded
        count = 8 + 9 * len(self.edges) + len(loaded.others)
        if self.run or self.adds:
            count += sum(part.op_count for part in self.run)
            count += sum(task.op_count for task in self.adds)
        return count

    @property
    def size(self) -> int:
        """An upper bound for the bytes of its operations."""
        return self._size(self.op_count)

    def _size(self, ops: int) -> int:
        edges = len(self.edges)
        per_op = OP_OVERHEAD + len(self.loaded.claim.task_path) + 40
        size = per_op * ops + len(self.outcome) * (edges + 2 + self._lent) + 60 * edges
        printed = self.loaded.claim.fact.printed
        if printed is not None:
            size += printed.end - printed.at
        if self.run or self.adds:
            size += sum(task.size for task in self.adds)
            size += sum(part.size for part in self.run)
        return size

    @property
    def growth(self) -> int:
        """About how many bytes its commit adds to the tree."""
        taken = len(self.outcome) * (len(self.edges) + self.kept)
        freed = len(self.loaded.record) + sum(map(len, self.loaded.arguments))
        return taken + sum(task.size for task in self.adds) - freed

    @property
    def _lent(self) -> int:
        """How many of the added tasks get this result without an edge."""
        if not self.adds:
            return 0
        own = self.loaded.claim.task
        return sum(own in map(dep_number, task.deps) for task in self.adds)

    def end_ops(self) -> list[Op]:
        """Keep the outcome, if it is kept, and delete the task with its children."""
        loaded, claim = self.loaded, self.loaded.claim
        ops: list[Op] = []
        if self.kept:
            ops.append(Create(f"{claim.plan_path}/results/{claim.task}", self.outcome))
        if self.dead:
            ops.append(Create(f"{claim.plan_path}/dead/{claim.task}", self.dead))
        if self.holds:
            return ops + self._hold_ops()
        if self.skips:
            ops.append(SetData(f"{claim.plan_path}/results"))  # its version counts skips
        ops += [Delete(f"{claim.task_path}/{name}") for name in loaded.others]
        if loaded.result is not None:
            ops.append(Delete(f"{claim.task_path}/result"))
        ops.append(Delete(claim.task_path))
        return ops

    @property
    def weight(self) -> tuple[int, int, bool]:
        """`op_count`, `size` and `fits`, counted once."""
        ops = self.op_count
        size = self._size(ops)
        fits = ops <= 4 * GROUP_OPS_MAX and size <= 2 * GROUP_BYTES_MAX
        return ops, size, fits and ADDS not in self.loaded.others

    @property
    def fits(self) -> bool:
        """Whether one transaction can carry it. Otherwise it needs wide delivery."""
        return self.weight[2]

    def _hold_ops(self) -> list[Op]:
        """Leave the task dead and otherwise as it was, so that a retry can run it."""
        path = self.loaded.claim.task_path
        ops: list[Op] = [Create(f"{path}/log-", self.outcome, sequence=True)]
        if self.loaded.result is not None:
            ops.append(Delete(f"{path}/result"))
        if DELIVERED in self.loaded.others:
            # Another outcome goes along the edges that are left.
            ops.append(Delete(f"{path}/{DELIVERED}"))
        elif self.loaded.result is not None:
            # If the mark was made since, this is refused, and the task is read again.
            ops += undelivered_ops(path)
        return ops


def first_group(parts: Iterable[Part]) -> int:
    """How many of these parts one transaction commits, from the first on.

    A part that needs wide delivery comes alone: in a shared transaction, the tasks that its
    function added would be lost with the definitions staged below it.
    """
    ops = size = count = 0
    for part in parts:
        more_ops, more_bytes, fits = part.weight
        ops, size = ops + more_ops, size + more_bytes
        if count and (ops > GROUP_OPS_MAX or size > GROUP_BYTES_MAX or not fits):
            break
        count += 1
        if not fits:
            break
    return count


def outcomes(parts: Sequence[Part]) -> tuple[dict[str, bytes], dict[str, bool]]:
    """The outcomes by task, and for each task that stays dead, whether its failure cascades."""
    dying = {part.loaded.claim.task: part.cascades for part in parts if part.holds}
    return {part.loaded.claim.task: part.outcome for part in parts}, dying
