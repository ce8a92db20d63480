"""Show what a gate waits for, and which worker looked at it last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..gates import opened_condition
from ..protocol.features.gates import Condition, read_gates
from ..protocol.fields import from_json
from ..protocol.layout import number_of, parse_gate
from ..protocol.requests import ReadChildren, ReadData, Step
from ..values.connection import Connection


class GateInfo(NamedTuple):
    """A gate that waits. `condition` is None if it cannot be read here, and `unread` says why.

    `error` is what keeps worker `worker` from looking. If it is empty, that worker looked last, at
    `looked` in seconds since 1970 by the clock of ZooKeeper (None: no worker has looked yet).
    """

    task: str
    condition: Condition | None
    unread: str = ""
    worker: str = ""
    looked: float | None = None
    error: str = ""

    @property
    def waits_for(self) -> str:
        return self.condition.text if self.condition else f"a znode ({self.unread})"


def gates_of(client: Connection, plan_path: str, tasks: Sequence[str]) -> list[GateInfo]:
    """The gates among these tasks that still wait, in this order."""
    return client.transport.run(_gates_of(client, plan_path, tasks))


def _gates_of(client: Connection, plan_path: str, tasks: Sequence[str]) -> Step[list[GateInfo]]:
    paths, plan = client.paths, number_of(plan_path)
    names: dict[str, str] = {}
    for name in (yield ReadChildren(paths.gates)) or ():
        gate = parse_gate(name)
        if gate is not None and gate.plan == plan:
            names[gate.entry.task] = name
    node = yield ReadData(paths.gates)
    worker, looked = _report(node.data)[0] if node is not None else "", None
    if node is not None and worker:
        looked = node.modified_ms / 1000
    wanted = {names[task]: task for task in tasks if task in names}
    found = []
    for read in (yield from read_gates(paths, list(wanted))):
        unread, condition = "", None
        try:
            condition = opened_condition(client.codec, read.sealed)
        except PayloadUndecodable as error:
            unread = str(error)
        at = looked if looked is not None and looked >= read.created_ms / 1000 else None
        stopped, why_stopped = _report(read.note)
        found.append(
            GateInfo(
                task=wanted[read.name],
                condition=condition,
                unread=unread,
                worker=stopped or (worker if at is not None else ""),
                looked=at,
                error=why_stopped,
            )
        )
    return found


def _report(data: bytes) -> tuple[str, str]:
    """The worker and the error in a worker's report on gates; empty texts without a report."""
    try:
        facts = from_json(data, "a worker's report on gates") if data else {}
    except PayloadUndecodable:
        facts = {}
    return str(facts.get("worker", "")), str(facts.get("error", ""))
