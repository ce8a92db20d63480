"""List what changed in some plans since the last look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..errors import PlanNotFound
from ..protocol.core.load import read_small
from ..protocol.core.plan_life import PlanStatus
from ..protocol.features.task_place import NOWHERE
from ..protocol.history.segments import history_path
from ..protocol.layout import QUEUES, Paths, parse_claim, parse_delayed, parse_gate, parse_task
from ..protocol.requests import Node, ReadChildren, ReadData, Step
from ..values.connection import Connection
from .deadlock import status_of
from .find import places_with_claims
from .workers import Known

WAITING, FINISHED = "waiting", "finished"
#: Versions and last change of a znode. Each change of a plan changes one of its signs.
Sign = tuple[int, int, int]
Signs = tuple[tuple[Sign | None, ...], frozenset["str | Sign"]]


class PlanSeen(NamedTuple):
    """A plan at one look: its numbers, and the state of each unfinished task.

    `told` changes with each new record of its history, even if nothing else changes, for example
    after a task has printed something.
    """

    status: PlanStatus
    states: Mapping[str, str]
    told: Sign | None

    @property
    def counts(self) -> dict[str, int]:
        """How many tasks are in each state."""
        return dict(Counter(self.states.values()))

    def changed_since(self, before: PlanSeen) -> dict[str, str]:
        """The tasks whose state differs from `before`; those that are gone have finished."""
        old, new = before.states, self.states
        changed = {task: state for task, state in new.items() if old.get(task) != state}
        return changed | dict.fromkeys(old.keys() - new.keys(), FINISHED)


class Changes:
    """Looks at plans again and again. A plan that has not changed is not read. Not thread-safe.

    A look at plans without changes takes two requests, however many plans there are.
    """

    def __init__(self, client: Connection) -> None:
        self._client = client
        self._known: Known = {}
        self._signs: dict[str, Signs] = {}
        self._queues: dict[str, list[str]] = {}
        self._seen: dict[str, PlanSeen] = {}
        self._shared = _Shared(client.paths)

    def look(self, plans: Collection[str]) -> dict[str, PlanSeen | None]:
        """Each of these plans as it is now, by number; None for one that is not there."""
        client, wanted = self._client, sorted(plans)
        for gone in self._seen.keys() - wanted:
            self._forget(gone)
        signs, told = client.transport.run(_signs(client.paths, wanted, self._queues, self._shared))
        changed = [plan for plan in wanted if self._signs.get(plan) != signs[plan]]
        if changed:
            self._read(changed, signs, told)
        for plan, seen in self._seen.items():
            if seen.told != told[plan]:
                self._seen[plan] = seen._replace(told=told[plan])
        return {plan: self._seen.get(plan) for plan in wanted}

    def _read(
        self, plans: list[str], signs: Mapping[str, Signs], told: Mapping[str, Sign | None]
    ) -> None:
        """Read these plans: first their states, because if a state says that nothing runs, nothing
        runs later; last the names of their tasks, so that no finished task is shown."""
        client, paths = self._client, self._client.paths
        statuses: dict[str, PlanStatus] = {}
        for plan in plans:
            try:
                statuses[plan] = status_of(client, paths.plan(plan))
            except PlanNotFound:
                self._forget(plan)
        places = client.transport.run(places_with_claims(paths, list(statuses), known=self._known))
        for plan, status in statuses.items():
            names = client.transport.ask(ReadChildren(paths.plan(plan))) or ()
            queues = client.transport.ask(ReadChildren(f"{paths.plan(plan)}/{QUEUES}"))
            tasks = (task for name in names if (task := parse_task(name)) is not None)
            states = {task: places.get((plan, task), NOWHERE).state or WAITING for task in tasks}
            self._seen[plan] = PlanSeen(status, states, told[plan])
            self._signs[plan], self._queues[plan] = signs[plan], queues or []

    def _forget(self, plan: str) -> None:
        for known in (self._seen, self._signs, self._queues):
            known.pop(plan, None)


class _Shared:
    """The entries at the root for all plans: claims, delayed tasks and gates, sorted by plan.

    So a change of one plan causes no read of another. Unchanged znodes are not listed again.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._listed: dict[str, tuple[Sign, list[str]]] = {}

    def update(self, nodes: Mapping[str, Node | None]) -> Step[dict[str, set[str | Sign]]]:
        """Returns the signs of each plan that has such entries. `nodes` are by path."""
        new = {path: _children(node) for path, node in nodes.items() if node is not None}
        self._listed = {path: self._listed[path] for path in self._listed.keys() & new.keys()}
        changed = [path for path, sign in new.items() if self._listed.get(path, (None,))[0] != sign]
        lists = yield from read_small([ReadChildren(path) for path in changed])
        for path, names in zip(changed, lists, strict=True):
            self._listed[path] = new[path], names or []
        found: dict[str, set[str | Sign]] = {}
        for path, (sign, names) in self._listed.items():
            if path in (self._paths.delayed, self._paths.gates):
                for name in names:
                    entry = parse_delayed(name) or parse_gate(name)
                    if entry is not None:
                        found.setdefault(entry.plan, set()).add(name)
                continue
            # Whether a claim runs now depends on the other claims of its worker.
            for plan in {claim.plan for each in names if (claim := parse_claim(each)) is not None}:
                found.setdefault(plan, set()).add(sign)
        return found


def _signs(
    paths: Paths, plans: Collection[str], queues: Mapping[str, list[str]], shared: _Shared
) -> Step[tuple[dict[str, Signs], dict[str, Sign | None]]]:
    """The signs that show whether each plan has changed, and whether its history has."""
    workers = (yield ReadChildren(paths.claims)) or ()
    common = [paths.delayed, paths.gates, *map(paths.claims_of, sorted(workers))]
    own = {plan: _nodes_of(paths.plan(plan), queues.get(plan, ())) for plan in plans}
    reads = [ReadData(path) for path in (*common, *(p for found in own.values() for p in found))]
    nodes = yield from read_small(reads)
    of_plan = yield from shared.update(dict(zip(common, nodes[: len(common)], strict=True)))
    at, found, told = len(common), {}, {}
    for plan, theirs in own.items():
        told[plan], *signs = map(_sign, nodes[at : at + len(theirs)])
        found[plan] = tuple(signs), frozenset(of_plan.get(plan, ()))
        at += len(theirs)
    return found, told


def _nodes_of(path: str, queues: Collection[str]) -> list[str]:
    """The znode of the history of a plan, and the other znodes that change with the plan."""
    names = ("ready", "done", "runnable", "dead", "results", QUEUES)
    found = [history_path(path), path, *(f"{path}/{name}" for name in names)]
    return found + [f"{path}/{QUEUES}/{queue}" for queue in sorted(queues)]


def _sign(node: Node | None) -> tuple[int, int, int] | None:
    return None if node is None else (node.version, node.cversion, node.pzxid)


def _children(node: Node) -> Sign:
    """The sign of the children alone: a renewal writes the data of a lease, and changes no plan."""
    return node.czxid, node.cversion, node.pzxid
