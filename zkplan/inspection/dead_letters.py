"""List the dead tasks of a plan, and retry them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

from ..errors import PayloadUndecodable, PlanCancelled, TaskError
from ..protocol.control import cascades, status
from ..protocol.look import index_names
from ..protocol.records import Dead
from ..protocol.reopen import reopen
from ..protocol.requests import ReadData, ReadMany
from ..protocol.retry import retry
from ..protocol.shared import READS_PER_REQUEST
from ..transport import Transport

#: How the error of a task begins that has failed by one that it depends on.
UPSTREAM = "UpstreamFailed"
#: The most dead letters that are read to find some that tell the cause.
LOOKED_AT = 1000


def dead_letters(transport: Transport, plan_path: str) -> Iterator[tuple[str, Dead]]:
    """See Plan.dead."""
    return _letters(transport, plan_path, transport.run(index_names(plan_path, "dead")))


def _letters(transport: Transport, plan_path: str, names: list[str]) -> Iterator[tuple[str, Dead]]:
    for start in range(0, len(names), READS_PER_REQUEST):
        chunk = names[start : start + READS_PER_REQUEST]
        nodes = transport.ask(
            ReadMany([ReadData(f"{plan_path}/dead/{number}") for number in chunk])
        )
        for number, node in zip(chunk, nodes, strict=True):
            if node is not None:  # it may have been retried meanwhile
                yield number, Dead.from_bytes(node.data)


def first_failures(transport: Transport, plan_path: str, most: int) -> list[tuple[str, Dead]]:
    """At most `most` dead letters, those first whose tasks have failed by themselves, as far as the
    first LOOKED_AT letters tell."""
    letters = list(islice(dead_letters(transport, plan_path), LOOKED_AT))
    return sorted(letters, key=lambda item: item[1].error.startswith(UPSTREAM))[:most]


def retry_all(transport: Transport, plan_path: str) -> int:
    """See Plan.retry."""
    _refuse_if_cancelled(transport, plan_path)
    plan = transport.ask(ReadData(plan_path))
    if plan is not None and cascades(plan):
        return int(transport.run(reopen(plan_path, time.time())))
    retried, damaged = 0, None
    for number in transport.run(index_names(plan_path, "dead")):
        try:
            retried += transport.run(retry(plan_path, number))
        except PayloadUndecodable as error:
            damaged = damaged or error
        except TaskError:
            continue  # it was cancelled before it had all its arguments
    if damaged is not None:
        raise damaged
    return retried


def retry_task(transport: Transport, plan_path: str, number: str) -> bool:
    """See Plan.retry_task."""
    _refuse_if_cancelled(transport, plan_path)
    return transport.run(retry(plan_path, number))


def _refuse_if_cancelled(transport: Transport, plan_path: str) -> None:
    if transport.run(status(plan_path)).state == "cancelled":
        raise PlanCancelled(
            plan_path, f"{plan_path} was cancelled: none of its tasks would run again"
        )
