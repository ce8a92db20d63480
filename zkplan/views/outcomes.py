"""List the kept outcomes of finished tasks, without decoding their values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol.core.load import VALUES_FIRST, values_next
from ..protocol.core.plans_and_queues import index_names
from ..protocol.layout import parse_number
from ..protocol.records import Dead, Failure
from ..protocol.requests import Node, ReadData, ReadMany
from ..transport import Transport
from ..values.blobs import value_size
from ..values.codec import FAILURE, VALUE, Codec
from ..values.connection import Connection
from ..values.function_codec import is_skipped, split_name


class OutcomeSummary(NamedTuple):
    """The kept outcome of a task.

    `kind` is `result`, `skipped` (the value of a task that was skipped), `failure` or
    `undecodable` (damaged, or sealed with another secret). `size` is in bytes. `name` is the name
    of the task, empty if it cannot be read here. `when` is the time at which it was kept, in
    wall-clock seconds of the server; for an imported plan, the time of the import.
    """

    number: str
    kind: str
    size: int
    name: str
    when: float


def kept_outcomes(client: Connection, plan_path: str, after: str = "") -> Iterator[OutcomeSummary]:
    """See Plan.outcomes. Only outcomes of tasks after the number `after`.

    Raises PlanNotFound at once. Reads the outcomes during the iteration.
    """
    names = client.transport.run(index_names(plan_path, "results"))
    # zkplan makes no znodes with other names here.
    chosen = [name for name in names if parse_number(name) is not None and name > after]
    return (
        outcome
        for batch in outcome_nodes(client.transport, plan_path, chosen, strict=False)
        for outcome in _summaries(client, plan_path, batch)
    )


def outcome_nodes(
    transport: Transport, plan_path: str, numbers: Sequence[str], strict: bool
) -> Iterator[list[tuple[str, Node | None]]]:
    """Read the kept outcomes of tasks, None where there is none.

    It reads during the iteration, in batches whose answers are small enough for the server and for
    the memory of the caller: a value may have 1 MB. `strict`: see ReadMany.
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
    client: Connection, plan_path: str, batch: list[tuple[str, Node | None]]
) -> list[OutcomeSummary]:
    # Without a node the task was retried meanwhile.
    found = [_summary(client.codec, number, node) for number, node in batch if node is not None]
    failed = [outcome.number for outcome in found if outcome.kind == "failure"]
    if not failed:
        return found
    # The name of a task that has failed is in its dead letter.
    reads = [ReadData(f"{plan_path}/dead/{number}") for number in failed]
    letters = zip(failed, client.transport.ask(ReadMany(reads)), strict=True)
    names = {n: Dead.from_bytes(letter.data).name for n, letter in letters if letter is not None}
    # A letter whose name cannot be read has the number in its place.
    named = {number: name for number, name in names.items() if name != f"task-{number}"}
    return [outcome._replace(name=named.get(outcome.number, outcome.name)) for outcome in found]


def _summary(codec: Codec, number: str, node: Node) -> OutcomeSummary:
    kept, size, name = open_kept(codec, node.data), len(node.data), ""
    if kept.kind == "failure":
        size = len(kept.body)
    elif kept.kind != "undecodable":
        name, value = split_name(kept.body)
        size = value_size(value)
    return OutcomeSummary(number, kept.kind, size, name, node.created_ms / 1000)


class Kept(NamedTuple):
    """A kept outcome that was opened. `kind` is as in OutcomeSummary.

    `body` is what was sealed. `failure` is set for a failure. `why` says why it is undecodable.
    """

    kind: str
    body: bytes = b""
    failure: Failure | None = None
    why: str = ""


def open_kept(codec: Codec, sealed: bytes) -> Kept:
    """Open a kept outcome, without decoding its value."""
    try:
        kind, body = codec.open(VALUE + FAILURE, sealed)
        failure = Failure.from_bytes(body) if kind == FAILURE else None
    except PayloadUndecodable as error:
        return Kept("undecodable", why=str(error))
    if failure is not None:
        return Kept("failure", body, failure)
    return Kept("skipped" if is_skipped(body) else "result", body)
