"""List the dead tasks of a plan, and retry all of them."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import PayloadUndecodable, PlanNotFound
from ..protocol.failure import retry
from ..protocol.records import Dead
from ..protocol.requests import ReadChildren, ReadData, ReadMany
from ..protocol.shared import READS_PER_REQUEST
from ..transport import Transport


def dead_letters(transport: Transport, plan_path: str) -> Iterator[tuple[str, Dead]]:
    """See Plan.dead."""
    return _letters(transport, plan_path, _names(transport, plan_path))


def _letters(transport: Transport, plan_path: str, names: list[str]) -> Iterator[tuple[str, Dead]]:
    for start in range(0, len(names), READS_PER_REQUEST):
        chunk = names[start : start + READS_PER_REQUEST]
        nodes = transport.ask(
            ReadMany([ReadData(f"{plan_path}/dead/{number}") for number in chunk])
        )
        for number, node in zip(chunk, nodes, strict=True):
            if node is not None:  # it may have been retried meanwhile
                yield number, Dead.from_bytes(node.data)


def retry_all(transport: Transport, plan_path: str) -> int:
    """Retry all dead tasks, with all their attempts. Returns how many. Raises PlanNotFound.

    Damaged dead letters raise PayloadUndecodable only after all other tasks were retried.
    """
    retried, damaged = 0, None
    for number in _names(transport, plan_path):
        try:
            retried += transport.run(retry(plan_path, number))
        except PayloadUndecodable as error:
            damaged = damaged or error
    if damaged is not None:
        raise damaged
    return retried


def _names(transport: Transport, plan_path: str) -> list[str]:
    names = transport.ask(ReadChildren(f"{plan_path}/dead"))
    # A plan that another client built has no such index until a worker or a check has seen it.
    if names is None and transport.ask(ReadData(plan_path)) is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    return sorted(names or ())
