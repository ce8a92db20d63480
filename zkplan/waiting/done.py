"""Whether one task has completed, without waiting."""

from __future__ import annotations

from ..connection import Connection
from ..protocol.records import control_from_bytes
from ..protocol.requests import ReadData, ReadMany


def has_completed(client: Connection, plan_path: str, number: str) -> bool:
    """See Task.done."""
    reads = [
        ReadData(f"{plan_path}/results/{number}"),
        ReadData(f"{plan_path}/ready"),
        # Its `ready` comes and goes with the task, and is small.
        ReadData(f"{plan_path}/task-{number}/ready"),
    ]
    outcome, control, ready = client.transport.ask(ReadMany(reads, strict=True))
    if outcome is not None or ready is None:
        return True
    return control is not None and control_from_bytes(control.data) == "cancelled"
