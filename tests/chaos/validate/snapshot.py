"""What stands of a plan in ZooKeeper: at its end, and when nothing moves in it any more."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from kazoo.exceptions import KazooException

import zkplan
from zkplan.protocol.history.compaction import History
from zkplan.protocol.history.segments import GAP, Record
from zkplan.protocol.layout import PENDING, ClaimName, parse_claim, parse_delayed, parse_entry
from zkplan.protocol.records import count_from_bytes
from zkplan.protocol.requests import ReadChildren, ReadData, ReadMany
from zkplan.protocol.transactions import pending_dependents
from zkplan.testing.stress_promises import Kept, Remains
from zkplan.testing.stress_run import remains_of
from zkplan.values.blobs import Bytes, Reference
from zkplan.values.codec import FAILURE, VALUE
from zkplan.values.store_maintenance import chain

_BATCH = 300
_READ_S = 5.0


class DeadLetter(NamedTuple):
    """A dead letter: the number of the task's last claim, and its attempts that are used up."""

    n: int
    a: int


@dataclass(kw_only=True)
class PlanRemains(Remains):
    """What stood in ZooKeeper when the plan had ended, and how many tasks were ever `added`.

    `letters` are the dead letters by the keys of their tasks. `failed` are the keys of the tasks
    whose failure is kept; `?` and a number where none is known.
    """

    letters: dict[str, DeadLetter] = field(default_factory=dict)
    added: int = 0
    failed: list[str] = field(default_factory=list)


@dataclass
class PlanSnapshot:
    """What one look saw. `places` has every index that names a task; tasks go by their numbers.

    `edges` are the ends of edges at the dependents (`task-…/dep-…`), `provisions` what the other
    ends say.
    """

    children: dict[str, list[str]] = field(default_factory=dict)
    versions: dict[str, tuple[int, int]] = field(default_factory=dict)
    places: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    provisions: list[str] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)

    def waits(self, number: str) -> bool:
        """Whether that task still waits for an edge, or is not defined wholly."""
        names = self.children.get(number, ())
        return any(name == "incomplete" or name.startswith("dep-") for name in names)

    @property
    def edges(self) -> list[str]:
        return [
            f"task-{number}/{name}"
            for number, names in self.children.items()
            for name in names
            if name.startswith("dep-")
        ]


def sync(client: zkplan.Client, path: str) -> None:
    """Have the server that answers us know all that any server has acknowledged."""
    raw = client.transport.client
    try:
        raw.sync_async(path).get(timeout=_READ_S)
    except (KazooException, raw.handler.timeout_exception) as error:
        raise zkplan.ZooKeeperUnavailable(f"no answer to a sync: {error!r}") from error


def traces_of(client: zkplan.Client, path: str) -> list[str]:
    """What is left of a removed plan, anywhere."""
    sync(client, path)
    left = remains_of(client, path)
    plan = client.transport.ask(ReadChildren(path))
    return [*([] if plan is None else [path, *plan]), *left.delayed, *left.claims]


def remains_at_end(client: zkplan.Client, plan: zkplan.Plan, added: int) -> PlanRemains:
    """What stands of a plan that has ended. Raises StoreUnavailable."""
    remains = PlanRemains(**vars(remains_of(client, plan.path)), added=added)
    if remains.history is not None:
        remains.history = with_its_parts(client, plan, remains.history)
    failed = []
    for start in range(0, len(remains.outcomes), _BATCH):
        chunk = remains.outcomes[start : start + _BATCH]
        reads = [ReadData(f"{plan.path}/results/{number}") for number in chunk]
        for number, node in zip(chunk, client.transport.ask(ReadMany(reads)), strict=True):
            kind, body = client.codec.open(VALUE + FAILURE, node.data)
            if kind == VALUE:
                key, digest, uid, *_ = client.values.load(plan.path, body)
                remains.kept.append(Kept(key, digest, uid, number))
            else:
                failed.append(number)
    letters = dict(plan.dead())
    remains.letters = {each.name: DeadLetter(each.n, each.a) for each in letters.values()}
    remains.failed = [
        letters[number].name if number in letters else f"?{number}" for number in failed
    ]
    return remains


def with_its_parts(client: zkplan.Client, plan: zkplan.Plan, told: History) -> History:
    """A history with what the store has of it in front. What cannot be read there is damaged, and
    so is what lies nowhere: no plan of these runs has so much that events are let go.

    Raises StoreUnavailable: then nobody knows.
    """
    away: list[zkplan.StoreUnavailable] = []

    def read(reference: Reference) -> Bytes:
        try:
            return client.values.blob(plan.path, reference)
        except zkplan.StoreUnavailable as error:
            away.append(error)
            raise

    found, records, damaged = chain(told.cut, read), list[Record](), list[str]()
    for error in away:
        raise error
    for part in found.parts:
        try:
            records += [each for each in part.records() if each.events != [[GAP]]]
        except zkplan.PayloadUndecodable as error:
            damaged.append(f"{part.span.name} ({error})")
    if found.cut.events and client.values.store is not None:
        damaged.append(f"a beginning of {found.cut.events} events ({found.why or 'let go'})")
    return told._replace(
        records=[*records, *told.records], cut=found.cut, damaged=[*damaged, *told.damaged]
    )


def snapshot_of(client: zkplan.Client, plan: zkplan.Plan) -> PlanSnapshot:
    """Read all of it; two looks that are equal saw it at rest."""
    snapshot = PlanSnapshot()
    sync(client, plan.path)
    left = remains_of(client, plan.path)
    for entry in map(parse_entry, left.runnable):
        if entry is not None:
            snapshot.places[entry.task].append("runnable")
    for number in left.dead:
        snapshot.places[number].append("dead")
    for delayed in filter(None, map(parse_delayed, left.delayed)):
        snapshot.places[delayed.entry.task].append("delayed")
    for claim in claims_in(left):
        snapshot.places[claim.task].append("claimed")
    snapshot.claims = left.claims
    _read_pending(client, plan, snapshot)
    _read_tasks(client, plan, [n[5:] for n in left.plan if n.startswith("task-")], snapshot)
    return snapshot


def claims_in(left: Remains) -> list[ClaimName]:
    """The claims of that plan."""
    return [claim for name in left.claims if (claim := parse_claim(name.rpartition("/")[2]))]


def _read_pending(client: zkplan.Client, plan: zkplan.Plan, snapshot: PlanSnapshot) -> None:
    ask, paths = client.transport.ask, client.paths
    for claims_node in ask(ReadChildren(paths.claims)) or ():
        for name in ask(ReadChildren(paths.claims_of(claims_node))) or ():
            if not name.startswith(PENDING):
                continue
            node = ask(ReadData(f"{paths.claims_of(claims_node)}/{name}"))
            for dependent in pending_dependents(node.data) if node is not None else ():
                if dependent.plan == plan.number:
                    snapshot.places[dependent.task].append("pending")


def _read_tasks(
    client: zkplan.Client, plan: zkplan.Plan, numbers: list[str], snapshot: PlanSnapshot
) -> None:
    for start in range(0, len(numbers), _BATCH):
        chunk = numbers[start : start + _BATCH]
        paths = [f"{plan.path}/task-{number}" for number in chunk]
        children = client.transport.ask(ReadMany([ReadChildren(path) for path in paths]))
        ready = client.transport.ask(ReadMany([ReadData(f"{path}/ready") for path in paths]))
        provisions = []
        for number, path, names, node in zip(chunk, paths, children, ready, strict=True):
            if names is None or node is None:
                continue  # committed or removed meanwhile: the next look differs
            snapshot.children[number] = sorted(names)
            snapshot.versions[number] = (node.version, count_from_bytes(node.data))
            provisions += [f"{path}/{name}" for name in names if name.startswith("prov-")]
        for at in range(0, len(provisions), _BATCH):
            nodes = client.transport.ask(
                ReadMany([ReadData(p) for p in provisions[at : at + _BATCH]])
            )
            snapshot.provisions += [
                json.loads(node.data)["dep"] for node in nodes if node is not None
            ]


def is_quiet(snapshot: PlanSnapshot) -> bool:
    """Whether nobody holds a claim, and no pending record is still to be settled."""
    owed = any(
        "pending" in places and set(places) == {"pending"} for places in snapshot.places.values()
    )
    complete = {n for n, (version, k) in snapshot.versions.items() if version == k}
    return not snapshot.claims and not (owed and complete & snapshot.places.keys())
