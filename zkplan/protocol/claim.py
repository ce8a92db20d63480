"""Claim and load: take runnable tasks by a transaction, then read all that running them needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import PayloadUndecodable, TransactionRejected
from ..layout import parse_entry
from ..records import Edge
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
from .shared import READS_PER_REQUEST, Claim, Registration


class Claimed(NamedTuple):
    """The claims made. `plan_changed`: forget its candidates. `worker_gone`: register anew."""

    claims: list[Claim]
    conflicts: int = 0
    plan_changed: bool = False
    worker_gone: bool = False


def new_claim(me: Registration, plan: str, rank: str, task: str, n: int, a: int) -> Claim:
    paths = me.paths
    return Claim(
        plan=plan,
        task=task,
        rank=rank,
        n=n,
        a=a,
        path=paths.claim(me.worker, plan, task, n, next(me.uids)),
        plan_path=paths.plan(plan),
        task_path=paths.task(plan, task),
    )


def take_ops(me: Registration, claim: Claim, *, owner_stands: bool = False) -> list[Op]:
    """The claim and its visible mark; a left-over mark of a vanished session is replaced."""
    owner = claim.task_path + "/owner"
    ops: list[Op] = [Create(claim.path, claim.data)]
    if owner_stands:
        ops.append(Delete(owner))
    ops.append(Create(owner, f"{me.worker} {claim.n}".encode(), ephemeral=True))
    return ops


def claim(me: Registration, plan: str, ready_version: int, names: list[str]) -> Step[Claimed]:
    """Claim the entries `names` of one plan at once; those that others took are dropped.

    S9: the version of the plan's `ready` is checked, so nothing is claimed after a pause. L1: the
    worker's own registration is checked; without that a claim is released and made again for ever.
    """
    plan_path = me.paths.plan(plan)
    wanted = []
    for name in names:
        entry = parse_entry(name)
        if entry is not None:
            wanted.append((name, new_claim(me, plan, entry.rank, entry.task, entry.n, entry.a)))
    conflicts = 0
    standing: set[str] = set()
    orphans: list[str] = []
    claimed: list[Claim] = []
    while wanted:
        ops: list[Op] = [Check(me.worker_path), Check(plan_path + "/ready", ready_version)]
        tags: list[int] = [-1, -2]
        for index, (name, made) in enumerate(wanted):
            part = [
                Delete(f"{plan_path}/runnable/{name}"),
                *take_ops(me, made, owner_stands=name in standing),
            ]
            ops += part
            tags += [index] * len(part)
        answer = yield Multi(ops)
        applied = isinstance(answer, Applied)
        if not applied and answer.repeated:
            # The first copy may have been applied: our unique names tell, in the same session.
            applied = wanted[0][1].name in ((yield ReadChildren(me.desk_path)) or ())
        if applied:
            claimed = [made for _, made in wanted]
            break
        tag = tags[answer.at]
        if tag == -1 or (tag >= 0 and answer.path.startswith(me.desk_path + "/")):
            return Claimed([], conflicts, worker_gone=True)
        if tag == -2:
            return Claimed([], conflicts, plan_changed=True)
        name = wanted[tag][0]
        if answer.reason is Reason.NODE_EXISTS and answer.path.endswith("/owner"):
            standing.add(name)
        elif answer.reason is Reason.NO_NODE and name in standing:
            standing.discard(name)
            if not answer.path.endswith("/owner"):
                del wanted[tag]
                conflicts += 1
        elif answer.reason is Reason.NO_NODE:
            if answer.path.endswith("/owner"):
                orphans.append(name)
            del wanted[tag]
            conflicts += 1
        else:
            raise TransactionRejected(f"claiming {name} of {plan_path}: {answer}")
    for name in orphans:
        # An entry without its task (S6 broken from outside) would be claimed in vain for ever. A
        # task number never comes back, so the entry can go.
        yield Multi([Delete(f"{plan_path}/runnable/{name}")])
    return Claimed(claimed, conflicts)


@dataclass(slots=True)
class Loaded:
    """A claimed task with all that was read of it. `result` stands where delivery had begun."""

    claim: Claim
    record: bytes
    arguments: list[bytes]
    edges: list[tuple[str, Edge]]
    others: list[str] = field(default_factory=list)
    result: bytes | None = None
    owner: bool = True
    logs: list[bytes] = field(default_factory=list)
    damage: str = ""


def load(me: Registration, claims: list[Claim]) -> Step[list[Loaded]]:
    """Read definitions, arguments and edges of `claims`; those fenced meanwhile are left out.

    S3: the desk is listed after the last argument was read. A claim still in it proves that all
    which was read belongs to this attempt.
    """
    desks = sorted({claim.path.rpartition("/")[0] for claim in claims})
    first: list[ReadData | ReadChildren] = []
    for claim in claims:
        first += (ReadData(claim.task_path), ReadChildren(claim.task_path))
    first += [ReadChildren(desk) for desk in desks]
    answers = yield from _read_all(first)
    loaded, second = [], []
    for index, claim in enumerate(claims):
        node, children = answers[2 * index], answers[2 * index + 1]
        if node is not None and children is not None:
            item = Loaded(claim, node.data, [], [], children)
            loaded.append(item)
            second.append(_wanted_of(item))
    held = answers[2 * len(claims) :]
    if any(second):
        reads: list[ReadData | ReadChildren] = [
            ReadData(path) for paths in second for path in paths
        ]
        reads += [ReadChildren(desk) for desk in desks]
        answers = yield from _read_all(reads)
        held = answers[len(answers) - len(desks) :]
        position = 0
        for item, paths in zip(loaded, second, strict=True):
            _fill(item, paths, answers[position : position + len(paths)])
            position += len(paths)
        yield from _complete_edges(loaded)
    standing = {name for names in held for name in names or ()}
    return [item for item in loaded if item.claim.name in standing]


def _wanted_of(item: Loaded) -> list[str]:
    """Sorts the children of a task by kind; gives the paths whose data is needed."""
    base = item.claim.task_path + "/"
    wanted, others = [], []
    item.owner = False
    for name in sorted(item.others):
        if name.startswith(("arg-", "prov-", "log-")) or name == "result":
            wanted.append(base + name)
        elif name == "owner":
            item.owner = True
        elif name.startswith("dep-"):
            item.damage = f"{name} is still missing"
        if not name.startswith("prov-") and name not in ("owner", "result"):
            others.append(name)
    item.others = others
    return wanted


def _fill(item: Loaded, paths: list[str], nodes: list[Node | None]) -> None:
    base = len(item.claim.task_path) + 1
    for path, node in zip(paths, nodes, strict=True):
        name = path[base:]
        if node is None:
            item.damage = f"{name} vanished while it was read"
        elif name.startswith("arg-"):
            if name != f"arg-{len(item.arguments):010d}":
                item.damage = f"{name} comes after {len(item.arguments)} arguments"
            item.arguments.append(node.data)
        elif name.startswith("log-"):
            item.logs.append(node.data)
        elif name == "result":
            item.result = node.data
        else:
            try:
                item.edges.append((name, Edge.from_bytes(node.data)))
            except PayloadUndecodable as error:
                item.damage = f"{name}: {error}"


def _complete_edges(loaded: list[Loaded]) -> Step[None]:
    """Edges that another client wrote may lack K: it stands in the dependent's `ready`."""
    for item in loaded:
        for index, (name, edge) in enumerate(item.edges):
            if edge.k < 0 or not edge.rank:
                node = yield ReadData(f"{item.claim.plan_path}/task-{edge.task}/ready")
                k = int(node.data) if node is not None and node.data.isdigit() else -1
                item.edges[index] = (name, edge._replace(k=k, rank=edge.rank or "5000"))
                if k < 0:
                    item.damage = f"{name}: the number of edges of task-{edge.task} is unknown"


def _read_all(reads: list[ReadData | ReadChildren]) -> Step[list]:  # type: ignore[type-arg]
    answers = []
    for start in range(0, len(reads), READS_PER_REQUEST):
        answers += yield ReadMany(reads[start : start + READS_PER_REQUEST])
    return answers
