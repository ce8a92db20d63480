"""List the kept outcomes of a plan's finished tasks, without decoding values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..connection import Connection
from ..errors import PayloadUndecodable
from ..protocol.layout import parse_number
from ..protocol.load import VALUES_FIRST, values_next
from ..protocol.look import index_names
from ..protocol.records import Dead
from ..protocol.requests import Node, ReadData, ReadMany
from ..serialization.codec import FAILURE, VALUE, Codec
from ..serialization.functions import is_skipped, split_name
from ..store.reference import value_size
from ..transport import Transport


class OutcomeSummary(NamedTuple):
    """The kept outcome of a task.

    `kind` is `result`, `skipped` (the value of a task that was skipped), `failure` or
    `undecodable` (damaged, or signed with another secret). `size` is in bytes. `name` is the name
    of the task, empty if it cannot be read here. `when` is the time at which it was kept, in
    wall-clock seconds of the server; for an imported plan, the time of the import.
    """

    number: str
    kind: str
    size: int
    name: str
    when: float


def kept_outcomes(client: Connection, plan_path: str, after: str = "") -> Iterator[OutcomeSummary]:
    """See Plan.outcomes. Only those of tasks behind the number `after`."""
    names = client.transport.run(index_names(plan_path, "results"))
    # zkplan did not make a znode with another kind of name.
    chosen = [name for name in names if parse_number(name) is not None and name > after]
    return _summaries(client.transport, client.codec, plan_path, chosen)


def outcome_nodes(
    transport: Transport, plan_path: str, numbers: Sequence[str], strict: bool
) -> Iterator[list[tuple[str, Node | None]]]:
    """Read the kept outcomes of tasks, None where there is none.

    It reads as it goes on, in batches whose answers are small enough for the server and for the
    memory of the caller: a value may have 1 MB. `strict`: see ReadMany.
    """
    start, count = 0, VALUES_FIRST
    while start < len(numbers):
        batch = numbers[start : start + count]
        start += count
        reads = [ReadData(f"{plan_path}/results/{number}") for number in batch]
        nodes = transport.ask(ReadMany(reads, strict))
        count = values_next(nodes)
        yield list(zip(batch, nodes, strict=True))


def _summaries(
    transport: Transport, codec: Codec, plan_path: str, chosen: list[str]
) -> Iterator[OutcomeSummary]:
    for batch in outcome_nodes(transport, plan_path, chosen, strict=False):
        here = [
            _summary(codec, number, node)
            for number, node in batch
            if node is not None  # else its task was retried meanwhile
        ]
        yield from _with_names(transport, plan_path, here)


def _summary(codec: Codec, number: str, node: Node) -> OutcomeSummary:
    when = node.created_ms / 1000
    try:
        kind, body = codec.open(VALUE + FAILURE, node.data)
    except PayloadUndecodable:
        return OutcomeSummary(number, "undecodable", len(node.data), "", when)
    if kind == FAILURE:
        return OutcomeSummary(number, "failure", len(body), "", when)
    name, value = split_name(body)
    kept = "skipped" if is_skipped(body) else "result"
    return OutcomeSummary(number, kept, value_size(value), name, when)


def _with_names(
    transport: Transport, plan_path: str, found: list[OutcomeSummary]
) -> list[OutcomeSummary]:
    """The dead letter of a failure holds the name of its task."""
    failed = [outcome.number for outcome in found if outcome.kind == "failure"]
    if not failed:
        return found
    letters = transport.ask(ReadMany([ReadData(f"{plan_path}/dead/{number}") for number in failed]))
    names = {}
    for number, letter in zip(failed, letters, strict=True):
        name = Dead.from_bytes(letter.data).name if letter is not None else ""
        # If no name could be read, the dead letter holds the number instead.
        names[number] = "" if name == f"task-{number}" else name
    return [outcome._replace(name=names.get(outcome.number, outcome.name)) for outcome in found]
