"""A plan at rest: where each of its tasks stands, and its edges from both ends; what must hold."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from kazoo.exceptions import KazooException

import zkplan
from zkplan.protocol.layout import PENDING, number_of, parse_claim, parse_delayed, parse_entry
from zkplan.protocol.requests import ReadChildren, ReadData, ReadMany
from zkplan.protocol.shared import pending_dependents

_BATCH = 300
_READ_S = 5.0


@dataclass
class Rest:
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
    number, paths = number_of(path), client.paths
    plan, later, claims_nodes = client.transport.ask(
        ReadMany([ReadChildren(path), ReadChildren(paths.delayed), ReadChildren(paths.claims)])
    )
    found = [] if plan is None else [path, *plan]
    found += [n for n in later or () if (due := parse_delayed(n)) and due.plan == number]
    held = client.transport.ask(
        ReadMany([ReadChildren(paths.claims_of(claims_node)) for claims_node in claims_nodes or ()])
    )
    for claims_node, names in zip(claims_nodes or (), held, strict=True):
        claims = [n for n in names or () if (claim := parse_claim(n)) and claim.plan == number]
        found += [f"{claims_node}/{name}" for name in claims]
    return found


def look_at(client: zkplan.Client, plan: zkplan.Plan) -> Rest:
    """Read all of it; two looks that are equal saw it at rest."""
    rest, ask, paths = Rest(), client.transport.ask, client.paths
    sync(client, plan.path)
    names, runnable, dead, later, claims_nodes = ask(
        ReadMany(
            [
                *(ReadChildren(f"{plan.path}{name}") for name in ("", "/runnable", "/dead")),
                *(ReadChildren(place) for place in (paths.delayed, paths.claims)),
            ]
        )
    )
    for entry in map(parse_entry, runnable or ()):
        if entry is not None:
            rest.places[entry.task].append("runnable")
    for number in dead or ():
        rest.places[number].append("dead")
    for delayed in map(parse_delayed, later or ()):
        if delayed is not None and delayed.plan == plan.number:
            rest.places[delayed.entry.task].append("delayed")
    _look_for_orphans(client, plan, claims_nodes or [], rest)
    _look_at_tasks(client, plan, sorted(n[5:] for n in names or () if n.startswith("task-")), rest)
    return rest


def _look_for_orphans(
    client: zkplan.Client, plan: zkplan.Plan, claims_nodes: list[str], rest: Rest
) -> None:
    held = client.transport.ask(
        ReadMany(
            [ReadChildren(client.paths.claims_of(claims_node)) for claims_node in claims_nodes]
        )
    )
    for claims_node, names in zip(claims_nodes, held, strict=True):
        for name in names or ():
            claim = parse_claim(name)
            if claim is not None and claim.plan == plan.number:
                rest.claims.append(f"{claims_node}/{name}")
                rest.places[claim.task].append("claimed")
            if name.startswith(PENDING):
                node = client.transport.ask(
                    ReadData(f"{client.paths.claims_of(claims_node)}/{name}")
                )
                for dependent in pending_dependents(node.data) if node is not None else ():
                    if dependent.plan == plan.number:
                        rest.places[dependent.task].append("pending")


def _look_at_tasks(
    client: zkplan.Client, plan: zkplan.Plan, numbers: list[str], rest: Rest
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
            rest.children[number] = sorted(names)
            rest.versions[number] = (node.version, int(node.data))
            provisions += [f"{path}/{name}" for name in names if name.startswith("prov-")]
        for at in range(0, len(provisions), _BATCH):
            nodes = client.transport.ask(
                ReadMany([ReadData(p) for p in provisions[at : at + _BATCH]])
            )
            rest.provisions += [json.loads(node.data)["dep"] for node in nodes if node is not None]


def is_quiet(rest: Rest) -> bool:
    """Whether nobody holds a claim, and no pending record is still to be settled."""
    owed = any(
        "pending" in places and set(places) == {"pending"} for places in rest.places.values()
    )
    complete = {n for n, (version, k) in rest.versions.items() if version == k}
    return not rest.claims and not (owed and complete & rest.places.keys())


def every_task_is_in_one_place(rest: Rest) -> Iterator[str]:
    """S1: waiting for edges, runnable, later, claimed or dead: one of them, and once."""
    for number, names in rest.children.items():
        if "incomplete" in names:
            continue  # its author has not defined it wholly, or died meanwhile
        places = [place for place in rest.places.get(number, ()) if place != "pending"]
        if any(name.startswith("dep-") for name in names):
            places.append("waiting")
        if len(places) != 1:
            version, k = rest.versions[number]
            yield f"task-{number} ({version} of {k} edges) is in {places or 'no place'}"
    for number, places in rest.places.items():
        if number not in rest.children and set(places) & {"runnable", "delayed", "claimed"}:
            yield f"{places} name task-{number}, which is gone"


def every_edge_has_two_ends(rest: Rest) -> Iterator[str]:
    """S2: a `dep-` for each `prov-`, and no position with both a `dep-` and an `arg-`."""
    yield from (f"{edge} has no prov-" for edge in set(rest.edges) - set(rest.provisions))
    yield from (f"a prov- names {edge}" for edge in set(rest.provisions) - set(rest.edges))
    if len(set(rest.provisions)) != len(rest.provisions):
        yield "two prov- name one dep-"
    for number, names in rest.children.items():
        positions = [name[4:] for name in names if name.startswith(("dep-", "arg-"))]
        if len(set(positions)) != len(positions):
            yield f"task-{number} has a position with both dep- and arg-: {names}"
