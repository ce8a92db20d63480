"""The registration of a worker: join, leave, record, and orders to drain, pause or resume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ...errors import PayloadUndecodable, WorkerNotFound, ZkplanError, ZooKeeperError
from .. import formats
from ..fields import as_queues, as_seconds, as_text, as_whole, from_json, require_proven, to_json
from ..interference import folder_restored
from ..layout import DEFAULT_QUEUE, PENDING, Paths
from ..requests import (
    Applied,
    Create,
    Delete,
    Multi,
    Op,
    ReadChildren,
    ReadData,
    Reason,
    SetData,
    Step,
)
from ..transactions import Registration, is_applied, rejected

WorkerState = Literal["running", "paused", "draining"]


class WorkerRecord(NamedTuple):
    """A living worker. `started` is in wall-clock seconds; `claims` counts the tasks that it has
    claimed. `queues` are the queues that it serves, the preferred one first.

    `version` is the version of its zkplan, and `isolation` the default for its tasks (`thread` or
    `process`); both are empty for an older worker. `state` is its last order: `running`, `paused`
    or `draining`. `keys` names its sealing keys, first the key that it seals with. `abandoned`
    counts functions that it has given up and that still run: each holds a thread, but no claim.
    `format` is the format of the plans that it runs (`formats.TREE`), 1 for an older worker.
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
        """How many of its slots have a task, by its claims."""
        return min(self.claims, self.slots)

    @classmethod
    def from_bytes(cls, worker: str, data: bytes, claims: int) -> WorkerRecord:
        """Never raises: one damaged record must not hide the other workers."""
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
            why = "sealed" if data.startswith(formats.SEALED) else "damaged"
            return cls(worker, f"({why} record)", 0, 0, 0.0, claims)


def worker_state(data: bytes) -> WorkerState:
    """The last order to a worker, from the data of its registration."""
    try:
        state = from_json(data, "the record of a worker").get("state") if data else None
    except PayloadUndecodable:
        return "running"
    if state == "paused":
        return "paused"
    return "draining" if state == "draining" else "running"


# ---- Register a worker, and sign it off.


def register(
    paths: Paths, worker: str, data: bytes, uids: Iterator[str]
) -> Step[Registration | None]:
    """Create the ephemeral registration and the claims node of a worker. Returns None if it needs
    another ID. Raises TransactionRejected, ServerFull."""
    me = Registration(paths, worker, uids)
    answer = yield Multi([Create(me.worker_path, data, ephemeral=True), Create(me.claims_path)])
    if isinstance(answer, Applied):
        return me
    if (yield from folder_restored(answer)):
        # Not under this ID: an earlier copy of the transaction may be applied now.
        return None
    if answer.reason is Reason.NO_NODE:
        raise ZooKeeperError(f"{paths.root} has no `workers` and `claims`: {answer.path}")
    if answer.reason is not Reason.NODE_EXISTS:
        raise rejected(f"registering worker {worker}", answer)
    # An earlier copy has registered it, in this session or in an expired one. No worker uses that
    # ID, but the others would leave it a share of the plans until its session ends.
    yield from sign_off(paths, worker)
    return None


def unregister(me: Registration) -> Step[bool]:
    """Delete the registration and the empty claims node together. Returns False if claims are left
    on it."""
    names = yield ReadChildren(me.claims_path)
    ops: list[Op] = [
        Delete(f"{me.claims_path}/{name}") for name in names or () if name.startswith(PENDING)
    ]
    ops += [Delete(me.worker_path), Delete(me.claims_path)]
    answer = yield Multi(ops)
    if isinstance(answer, Applied):
        return True
    # Others clear the claims node as soon as they see that the worker is gone.
    yield from sign_off(me.paths, me.worker)
    return False


def sign_off(paths: Paths, worker: str) -> Step[bool]:
    """Delete the registration of a worker before its session ends. Returns False if it has none.

    Only a caller that knows that the worker's process is dead may do this. What it sent last may
    still arrive. As after the end of its session, a claim is refused from now on, and a commit once
    its claim is released.
    """
    answer = yield Multi([Delete(paths.worker(worker))])
    return isinstance(answer, Applied) or (answer.repeated and answer.reason is Reason.NO_NODE)


# ---- Orders to a worker (drain, pause, resume), and what it reports meanwhile.
#
# Orders are in the data of a worker's registration. The worker reads it anyway, to notice the end
# of its session. So an order needs no watch and no request, and vanishes with the worker.


def order(paths: Paths, worker: str, state: WorkerState) -> Step[bool]:
    """Order a worker to drain, pause or resume. Returns False if that is its order already.

    Raises WorkerNotFound if it is gone, ZkplanError if it drains and gets another order,
    TransactionRejected, and PayloadUndecodable if its last order is not sealed with a known key.
    """
    path = paths.worker(worker)
    while True:
        node = yield ReadData(path)
        if node is None:
            raise WorkerNotFound(worker, f"worker {worker} is gone")
        require_proven(node.data)
        had = worker_state(node.data)
        if had == state:
            return False
        if had == "draining":
            raise ZkplanError(f"worker {worker} drains, and takes no other order")
        try:
            facts = from_json(node.data, "a worker") if node.data else {}
        except PayloadUndecodable:
            facts = {}
        data = to_json(facts | {"state": state})
        answer = yield Multi([SetData(path, data, node.version)])
        if is_applied(answer, f"an order to worker {worker}"):
            return True


def report(paths: Paths, me: WorkerRecord) -> Step[bool]:
    """Write the current record of a worker. Returns False if its registration is gone.

    The version that was read is checked, so an order meanwhile is kept. Raises TransactionRejected,
    and PayloadUndecodable if the last order is not sealed with a known key.
    """
    path = paths.worker(me.id)
    while True:
        node = yield ReadData(path)
        if node is None:
            return False
        if node.version > 0:  # the first version is of the worker itself, and not sealed
            require_proven(node.data)
            me = me._replace(state=worker_state(node.data))
        answer = yield Multi([SetData(path, me.to_bytes(), node.version)])
        if is_applied(answer, f"the report of worker {me.id}"):
            return True
