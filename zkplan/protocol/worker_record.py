"""The record of a worker, in its registration: what it is, and what it was told last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ..errors import PayloadUndecodable
from . import formats
from .fields import as_queues, as_seconds, as_text, as_whole, from_json, to_json
from .layout import DEFAULT_QUEUE

WorkerState = Literal["running", "paused", "draining"]


class WorkerRecord(NamedTuple):
    """A living worker. `started` is in wall-clock seconds; `claims` counts the tasks that it has
    claimed. `queues` are those that it serves, the preferred one first.

    `version` is that of its zkplan, and `isolation` what each of its tasks has for itself if it
    does not say (`thread` or `process`); both are empty where an older worker does not tell.
    `state` is what it was told last: `running`, `paused` or `draining`. `keys` names its keys, the
    one that it seals with first, as far as it says. `abandoned` counts the functions that it has
    given up, and that still run: each holds a thread, and no claim. `format` is that of the plans
    that it runs (`formats.TREE`), 1 where it does not say.
    """

    id: str
    host: str
    pid: int
    slots: int
    started: float
    claims: int = 0
    queues: Sequence[str] = (DEFAULT_QUEUE,)
    version: str = ""
    isolation: str = ""
    state: WorkerState = "running"
    keys: str = ""
    abandoned: int = 0
    format: int = formats.TREE

    def to_bytes(self) -> bytes:
        names = ["host", "pid", "slots", "started", "version", "isolation", "format"]
        if tuple(self.queues) != (DEFAULT_QUEUE,):
            names.append("queues")
        if self.keys:
            names.append("keys")
        if self.state != "running":
            names.append("state")
        if self.abandoned:
            names.append("abandoned")
        value = self._asdict()
        return to_json({name: value[name] for name in names})

    @property
    def busy(self) -> int:
        """How many of its slots have a task, as far as its claims tell."""
        return min(self.claims, self.slots)

    @classmethod
    def from_bytes(cls, worker: str, data: bytes, claims: int) -> WorkerRecord:
        """Never raises, because one damaged record must not hide the other workers."""
        what = f"the record of worker {worker}"
        try:
            value = from_json(data, what) if data else {}
            return cls(
                worker,
                as_text(value.get("host")),
                as_whole(value.get("pid", 0), what),
                as_whole(value.get("slots", 0), what),
                as_seconds(value.get("started", 0.0), what),
                claims,
                as_queues(value.get("queues")),
                as_text(value.get("version")),
                as_text(value.get("isolation")),
                worker_state(data),
                as_text(value.get("keys")),
                as_whole(value.get("abandoned", 0), what),
                as_whole(value.get("format", 1), what),
            )
        except PayloadUndecodable:
            told = "sealed" if data.startswith(formats.SEALED) else "damaged"
            return cls(worker, f"({told} record)", 0, 0, 0.0, claims)


def worker_state(data: bytes) -> WorkerState:
    """What a worker was told last, from the data of its registration."""
    try:
        state = from_json(data, "the record of a worker").get("state") if data else None
    except PayloadUndecodable:
        return "running"
    if state == "paused":
        return "paused"
    return "draining" if state == "draining" else "running"
