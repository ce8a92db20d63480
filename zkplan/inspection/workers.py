"""The living workers under a root."""

from __future__ import annotations

from ..connection import Connection
from ..protocol.layout import SERVICE, parse_claim
from ..protocol.requests import ReadChildren, ReadData, ReadMany
from ..protocol.worker_record import WorkerRecord


def keys_fit(client: Connection, worker: WorkerRecord) -> bool:
    """Whether that worker opens what this client seals, by what it says of itself."""
    known = worker.keys.split()
    return client.keys[0].name in known if client.keys else not known


def living_workers(client: Connection) -> list[WorkerRecord]:
    """See Client.workers."""
    paths, transport = client.paths, client.transport
    # Services are registered, too, and run nothing.
    names = transport.ask(ReadChildren(paths.workers)) or ()
    ids = sorted(name for name in names if not name.startswith(SERVICE))
    reads: list[ReadData | ReadChildren] = []
    for worker in ids:
        reads += (ReadData(paths.worker(worker)), ReadChildren(paths.claims_of(worker)))
    answers = transport.ask(ReadMany(reads)) if reads else []
    found = []
    for index, worker in enumerate(ids):
        node, claims_node = answers[2 * index], answers[2 * index + 1]
        if node is not None:
            # A claims node also holds pending records, which are not counted as tasks.
            claims = sum(parse_claim(name) is not None for name in claims_node or ())
            found.append(WorkerRecord.from_bytes(worker, node.data, claims))
    return found
