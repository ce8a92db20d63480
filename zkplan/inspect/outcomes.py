"""The kept outcomes of a plan: what is left of its finished tasks, without decoding values."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import PayloadUndecodable, PlanNotFound
from ..protocol.layout import parse_task
from ..protocol.load import ANSWER_BYTES_MAX, VALUES_FIRST
from ..protocol.records import Dead
from ..protocol.requests import Node, ReadChildren, ReadData, ReadMany
from ..protocol.shared import READS_PER_REQUEST
from ..serialization.codec import FAILURE, VALUE, Codec
from ..transport import Transport


class OutcomeSummary(NamedTuple):
    """The kept outcome of a task.

    `kind` is `result`, `failure` or `undecodable` (damaged, or of another secret); `size` in bytes.
    `name` is empty for results: a task's name goes with the task, only a failure keeps it. `when`
    it was kept, in wall-clock seconds of the server; for an imported plan that was the import.
    """

    number: str
    kind: str
    size: int
    name: str
    when: float


def kept_outcomes(
    transport: Transport, codec: Codec, plan_path: str, most: int
) -> list[OutcomeSummary]:
    """The first `most`, by the numbers of their tasks. Raises PlanNotFound."""
    names = transport.ask(ReadChildren(f"{plan_path}/results"))
    # One that other clients built has no outcomes before a worker or a check has seen it.
    if names is None and transport.ask(ReadData(plan_path)) is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    # Names that zkplan does not give are somebody else's.
    chosen = sorted(name for name in names or () if parse_task(f"task-{name}") is not None)[:most]
    found: list[OutcomeSummary] = []
    start, count = 0, VALUES_FIRST
    while start < len(chosen):
        batch = chosen[start : start + count]
        start += count
        nodes = transport.ask(ReadMany([ReadData(f"{plan_path}/results/{name}") for name in batch]))
        here = [
            _summary(codec, number, node)
            for number, node in zip(batch, nodes, strict=True)
            if node is not None  # else its task was retried meanwhile
        ]
        found += _with_names(transport, plan_path, here)
        # Nothing else limits the answer, and a value has up to 1 MB.
        largest = max((len(node.data) for node in nodes if node is not None), default=1)
        count = max(1, min(READS_PER_REQUEST, ANSWER_BYTES_MAX // max(1, largest)))
    return found


def _summary(codec: Codec, number: str, node: Node) -> OutcomeSummary:
    when = node.created_ms / 1000
    try:
        kind, body = codec.open(VALUE + FAILURE, node.data)
    except PayloadUndecodable:
        return OutcomeSummary(number, "undecodable", len(node.data), "", when)
    return OutcomeSummary(number, "result" if kind == VALUE else "failure", len(body), "", when)


def _with_names(
    transport: Transport, plan_path: str, found: list[OutcomeSummary]
) -> list[OutcomeSummary]:
    """A failure has a dead letter, which knows the name of its task."""
    failed = [outcome.number for outcome in found if outcome.kind == "failure"]
    if not failed:
        return found
    letters = transport.ask(ReadMany([ReadData(f"{plan_path}/dead/{number}") for number in failed]))
    names = {}
    for number, letter in zip(failed, letters, strict=True):
        name = Dead.from_bytes(letter.data).name if letter is not None else ""
        # A letter calls a task without a name by its number.
        names[number] = "" if name == f"task-{number}" else name
    return [outcome._replace(name=names.get(outcome.number, "")) for outcome in found]
