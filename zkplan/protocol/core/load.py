"""Load all that running and committing a task needs, after its claim or before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import PayloadRefused, PayloadUndecodable
from .. import failpoints
from ..requests import (
    Applied,
    Create,
    Delete,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Step,
)
from ..transactions import READS_PER_REQUEST, Claim
from .edges import Edge, delivery_ops, misplaced

#: How many values a load reads at first, while their sizes are unknown.
VALUES_FIRST = 32
#: The most bytes of an answer, estimated by the largest value in the answer before.
ANSWER_BYTES_MAX = 4 * 1024 * 1024


@dataclass(slots=True)
class Loaded:
    """A claimed task and everything that was read of it.

    `edges` pairs each `prov-` with the edge to its dependent. `others` are the other children,
    which its commit deletes. `result` is set if the outcome is fixed already, by a wide delivery
    that has begun or by an operator: then the function does not run. `damage` describes a
    state that the protocol never leaves behind. `arguments` are as `edges.argument_of` makes them.
    `refused`: an argument has another source than the definition names.
    """

    claim: Claim
    record: bytes
    arguments: list[bytes]
    edges: list[tuple[str, Edge]]
    others: list[str] = field(default_factory=list)
    result: bytes | None = None
    owner: bool = True
    logs: list[bytes] = field(default_factory=list)
    damage: str = ""
    refused: PayloadRefused | None = None
    #: Znodes of dependents that refused a delivery, because somebody has deleted them by hand: a
    #: task, its `dep-` or its `ready`. The rest is delivered.
    torn: frozenset[str] = frozenset()

    def leads_nowhere(self, edge: Edge) -> bool:
        """Whether the dependent was deleted by hand. Its number never comes back."""
        return f"{self.claim.plan_path}/task-{edge.task}" in self.torn

    def counts(self, edge: Edge) -> bool:
        """Whether a delivery along that edge counts as an arrival."""
        if not self.torn:
            return True
        ready = f"{self.claim.plan_path}/task-{edge.task}/ready"
        return not (self.leads_nowhere(edge) or ready in self.torn)

    def tear(self, path: str) -> bool:
        """Whether a delivery was refused because somebody deleted `path` of a dependent. Leaves
        that znode out from now on: this task must not fail because another one was damaged."""
        for _, edge in self.edges:
            dependent = f"{self.claim.plan_path}/task-{edge.task}"
            if path == f"{dependent}/arg-{edge.position}":
                path = dependent
            elif path not in (f"{dependent}/dep-{edge.position}", f"{dependent}/ready"):
                continue
            is_new = path not in self.torn
            self.torn |= {path}
            return is_new
        return False

    def delivery_ops(self, prov: str, edge: Edge, argument: bytes) -> list[Op]:
        """Deliver along an edge. The last operation but one counts the arrival."""
        claim = self.claim
        ops = delivery_ops(claim.plan_path, claim.task_path, prov, edge, argument)
        if not self.torn:
            return ops
        if self.leads_nowhere(edge):
            return ops[-1:]
        made = list[Op]()
        for op in ops:
            # Prove that it is still missing: a check may have put it back (S2).
            made += [Create(op.path), Delete(op.path)] if op.path in self.torn else [op]
        return made

    def release_ops(self) -> list[Op]:
        """The fence: delete the claim, its mark and its permits."""
        ops: list[Op] = [Delete(self.claim.path)]
        if self.owner:
            ops.append(Delete(f"{self.claim.task_path}/owner"))
        return ops + self.claim.permit_ops


class Reading:
    """A task while it is read, before its claim is known."""

    __slots__ = (
        "arguments", "damage", "edges", "logs", "missing", "names", "others", "owner", "record",
        "refused", "result", "task_path",
    )  # fmt: skip

    def __init__(self, task_path: str, record: bytes, children: list[str]) -> None:
        self.task_path, self.record = task_path, record
        self.arguments: dict[str, bytes] = {}
        self.edges: list[tuple[str, Edge]] = []
        self.logs: list[bytes] = []
        self.missing: list[str] = []
        self.others: list[str] = []
        self.result: bytes | None = None
        self.owner = False
        self.damage = ""
        self.refused: PayloadRefused | None = None
        #: The children whose data is needed.
        self.names: list[str] = []
        for name in sorted(children):
            if name == "owner":
                self.owner = True
            elif name == "result" or name.startswith("prov-"):
                self.names.append(name)
            else:
                self.others.append(name)
                if name.startswith(("arg-", "log-")):
                    self.names.append(name)
                elif name.startswith("dep-"):
                    self.missing.append(name)

    def fill(self, nodes: list[Node | None]) -> None:
        """Take the data of `names`."""
        for name, node in zip(self.names, nodes, strict=True):
            if node is None:
                # An earlier worker may still deliver along the edges of this task.
                if not name.startswith("prov-"):
                    self.damage = f"{name} vanished while it was read"
            elif name.startswith("prov-"):
                try:
                    self.edges.append((name, Edge.from_bytes(node.data)))
                except PayloadUndecodable as error:
                    self.damage = f"{name}: {error}"
            elif name.startswith("arg-"):
                self.arguments[name[4:]] = node.data
            elif name == "result":
                self.result = node.data
            else:
                self.logs.append(node.data)

    def loaded(self, claim: Claim) -> Loaded:
        """What was read, as the task of `claim`."""
        positions = sorted(self.arguments)
        if self.result is not None:
            pass  # its function does not run, and an operator may have cut edges
        elif self.missing:
            self.damage = f"{self.missing[0]} is still missing"
        elif positions and not (
            positions[-1] == f"{len(positions) - 1:010d}"
            and all(len(position) == 10 and position.isdecimal() for position in positions)
        ):
            self.damage = f"it has arguments at {', '.join(positions[:5])}, with a gap"
        arguments = [self.arguments[position] for position in positions]
        if arguments and self.result is None and not self.missing and not self.damage:
            wrong = misplaced(self.record, arguments)
            self.refused = PayloadRefused(f"{self.task_path}/{wrong}") if wrong else None
        return Loaded(
            claim,
            self.record,
            arguments,
            self.edges,
            self.others,
            self.result,
            self.owner,
            self.logs,
            self.damage,
            self.refused,
        )

    def inherited(self, claim: Claim, position: str, argument: bytes) -> Loaded | None:
        """The task after the commit that delivered its last `argument` and claimed it; None if what
        was read ahead does not fit.

        S3: one transaction created the argument and the claim, and a definition never changes, so
        nothing needs to be read again.
        """
        if self.damage or self.owner or self.result or self.missing != [f"dep-{position}"]:
            return None
        self.others.remove(f"dep-{position}")
        self.others.append(f"arg-{position}")
        self.missing = []
        self.arguments[position] = argument
        self.owner = True
        return self.loaded(claim)

    def run_ahead(self, claim: Claim, position: str, argument: bytes) -> Loaded | None:
        """The task with its last `argument`, which no transaction has delivered yet; None if it
        cannot run ahead. No znode has the path of `claim`. The commit deletes the `dep-` with the
        other children."""
        if "incomplete" in self.others:
            return None
        loaded = self.inherited(claim, position, argument)
        if loaded is None or loaded.damage:
            return None
        loaded.others.remove(f"arg-{position}")
        loaded.others.append(f"dep-{position}")
        loaded.owner = False
        return loaded


def following(before: Claim, edge: Edge) -> Claim:
    """A stand-in for a claim while the dependent at `edge` runs ahead. No znode has its path."""
    return Claim(
        plan=before.plan,
        task=edge.task,
        rank=edge.rank,
        n=0,
        a=0,
        path=f"{before.path.rpartition('/')[0]}/ahead-{edge.task}",
        plan_path=before.plan_path,
        task_path=f"{before.plan_path}/task-{edge.task}",
        queue=edge.queue,
    )


#: The answers to `first_reads`.
FirstReads = list[Any]


def first_reads(claims: list[Claim]) -> list[ReadData | ReadChildren]:
    """Read the definition and the children of each task, then the claims nodes."""
    return _task_reads([claim.task_path for claim in claims]) + _claims_nodes(claims)


def _claims_nodes(claims: list[Claim]) -> list[ReadData | ReadChildren]:
    return [
        ReadChildren(claims_node)
        for claims_node in sorted({c.path.rpartition("/")[0] for c in claims})
    ]


def load(claims: list[Claim], read: FirstReads | None = None) -> Step[list[Loaded]]:
    """Read definitions, arguments and edges of `claims`, except claims that were lost meanwhile.

    S3: the claims node is listed after the last argument was read. If it still holds the claim,
    everything that was read belongs to this attempt. Deletes claims whose task was removed with its
    plan. Raises ZooKeeperError if an access list forbids a read.
    """
    answers = read if read is not None else (yield from read_all(first_reads(claims)))
    failpoints.reach("load.between")
    task_paths = [claim.task_path for claim in claims]
    readings, held = yield from _read_rest(task_paths, answers, _claims_nodes(claims))
    failpoints.reach("load.read")
    standing = {name for names in held for name in names or ()}
    loaded, suspects = [], []
    for claim, reading in zip(claims, readings, strict=True):
        if claim.name not in standing:
            continue
        item = reading.loaded(claim) if reading is not None else None
        if item is None or item.damage:
            suspects.append(claim)
        if item is not None:
            loaded.append(item)
    if suspects:
        removed = yield from drop_removed(suspects)
        loaded = [item for item in loaded if item.claim.path not in removed]
    return loaded


def load_ahead(plan_path: str, tasks: list[str]) -> Step[dict[str, Reading]]:
    """Read tasks that this worker may inherit soon. Returns existing tasks by number."""
    paths = [f"{plan_path}/task-{task}" for task in tasks]
    answers = yield from read_all(_task_reads(paths))
    readings, _ = yield from _read_rest(paths, answers, [])
    return {
        task: reading for task, reading in zip(tasks, readings, strict=True) if reading is not None
    }


def _task_reads(task_paths: list[str]) -> list[ReadData | ReadChildren]:
    return [read for path in task_paths for read in (ReadData(path), ReadChildren(path))]


def _read_rest(
    task_paths: list[str], answers: list[Any], last: list[ReadData | ReadChildren]
) -> Step[tuple[list[Reading | None], list[Any]]]:
    """Read the data of the children, then `last`."""
    readings: list[Reading | None] = []
    for path, node, children in zip(task_paths, answers[::2], answers[1::2], strict=False):
        exists = node is not None and children is not None
        readings.append(Reading(path, node.data, children) if exists else None)
    named = [reading for reading in readings if reading is not None and reading.names]
    if not named:
        return readings, answers[2 * len(task_paths) :]
    return readings, (yield from read_names(named, last))


def read_names(readings: list[Reading], last: list[ReadData | ReadChildren]) -> Step[list[Any]]:
    """Read the `names` of each reading, then `last`. Returns the answers to `last`."""
    reads: list[ReadData | ReadChildren] = [
        ReadData(f"{reading.task_path}/{name}") for reading in readings for name in reading.names
    ]
    answers = yield from read_all(reads + last)
    at = 0
    for reading in readings:
        reading.fill(answers[at : at + len(reading.names)])
        at += len(reading.names)
    return answers[at:]


def drop_claim(claim: Claim) -> Step[None]:
    """Delete a claim whose task is gone, with its permits."""
    while not isinstance(answer := (yield Multi([Delete(claim.path), *claim.permit_ops])), Applied):
        if not claim.lacks(answer):
            return


def drop_removed(claims: list[Claim]) -> Step[set[str]]:
    """Delete the claims whose task was removed, and return their paths. No commit deleted such a
    task, because that deletes the claim, too; and the number of a task is never used again."""
    removed = set()
    for claim in claims:
        if (yield ReadData(claim.task_path)) is None:
            yield from drop_claim(claim)
            removed.add(claim.path)
    return removed


def read_all(
    reads: Sequence[ReadData | ReadChildren], strict: bool | None = True
) -> Step[list[Any]]:
    """Read in batches whose answers fit the memory of the server.

    Nothing else limits the answer to a batch: a hundred results of half a megabyte crash a server
    with the usual heap. So the sizes read so far decide how many values the next batch reads.
    `strict`: see ReadMany.
    """
    answers: list[Any] = []
    values = VALUES_FIRST
    while len(answers) < len(reads):
        batch = _batch(reads, len(answers), values)
        found = yield ReadMany(batch, strict)
        answers += found
        if len(answers) < len(reads):
            values = values_next(found)
    return answers


def read_small(
    reads: Sequence[ReadData | ReadChildren], strict: bool | None = None
) -> Step[list[Any]]:
    """The answers to reads of small znodes, a thousand in each request. `strict`: see ReadMany."""
    answers: list[Any] = []
    for start in range(0, len(reads), READS_PER_REQUEST):
        answers += yield ReadMany(reads[start : start + READS_PER_REQUEST], strict)
    return answers


def values_next(found: Sequence[Any]) -> int:
    """How many values the next request may read after these answers."""
    largest = max((len(node.data) for node in found if isinstance(node, Node)), default=0)
    return max(1, min(READS_PER_REQUEST, ANSWER_BYTES_MAX // max(1, largest)))


def _batch(
    reads: Sequence[ReadData | ReadChildren], start: int, values: int
) -> Sequence[ReadData | ReadChildren]:
    """The next reads: at most `values` read users' data (definitions, arguments, logs)."""
    if len(reads) - start <= min(values, READS_PER_REQUEST):
        return reads[start:]
    end = start
    while end < len(reads) and end - start < READS_PER_REQUEST:
        read = reads[end]
        if type(read) is ReadData and not read.path.rpartition("/")[2].startswith("prov-"):
            values -= 1
            if values < 0:
                break
        end += 1
    return reads[start:end]
