"""List the living workers under a root, the tasks that they hold, and the slots that they lack."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ..basics.log import task_here
from ..protocol.core.load import read_small
from ..protocol.core.workers import WorkerRecord
from ..protocol.layout import DEFAULT_QUEUE, SERVICE, Paths, parse_claim, parse_lease, queue_in
from ..protocol.requests import ReadChildren, ReadData, ReadMany, Step
from ..protocol.transactions import claim_facts
from ..values.connection import Connection


def keys_fit(client: Connection, worker: WorkerRecord) -> bool:
    """Whether that worker can open what this client seals, by the keys in its registration."""
    known = worker.keys.split()
    return client.keys[0].name in known if client.keys else not known


def living_workers(client: Connection) -> list[WorkerRecord]:
    """See Client.workers."""
    paths, transport = client.paths, client.transport
    # Services register as well, and run no tasks.
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


# ---- List the claims of the workers under a root, and tell which run and which wait for a slot.
#
# The tree does not record which claims run. A worker starts its claims in their order, on as many
# slots as it registered, so its oldest claims run. A task counts as held since the server made its
# claim; the function began then or later.


#: The states of a claimed task here: its worker runs it, or has claimed it ahead, or is gone, so
#: that another worker will take the task over.
RUNNING, AHEAD, LEFT = "running", "claimed ahead", "left behind"


class Held(NamedTuple):
    """One claim. `since` is when it was made, in wall-clock seconds of the server; `attempt` is its
    fencing number, `attempts` counts the attempts that are used up."""

    worker: str
    plan: str
    task: str
    attempt: int
    since: float
    queue: str = DEFAULT_QUEUE
    attempts: int = 0
    state: str = RUNNING


class HeldTasks(NamedTuple):
    """The living workers, and all claims, the oldest first."""

    workers: list[WorkerRecord]
    claims: list[Held]


#: Claims that were read before, by worker and name, each with its uid. Claims never change. The uid
#: orders the claims of one millisecond.
Known = MutableMapping[tuple[str, str], tuple[str, Held]]


def held_tasks(paths: Paths, known: Known | None = None) -> Step[HeldTasks]:
    """Read all claims, except those in `known`, which this keeps up to date."""
    known = {} if known is None else known
    living, holding = yield ReadMany([ReadChildren(paths.workers), ReadChildren(paths.claims)])
    ids = sorted({*(living or ()), *(holding or ())})
    reads: list[ReadData | ReadChildren] = []
    for worker in ids:
        reads += (ReadData(paths.worker(worker)), ReadChildren(paths.claims_of(worker)))
    answers = yield from read_small(reads)
    names: dict[str, Sequence[str]] = {
        worker: answers[2 * at + 1] or () for at, worker in enumerate(ids)
    }
    yield from _read_new(paths, names, known)
    workers: list[WorkerRecord] = []
    claims: list[Held] = []
    for at, worker in enumerate(ids):
        mine = sorted(
            (known[worker, name] for name in names[worker] if (worker, name) in known),
            key=lambda each: (each[1].since, len(each[0]), each[0]),
        )
        node = answers[2 * at]
        record = None if node is None else WorkerRecord.from_bytes(worker, node.data, len(mine))
        if record is not None and not worker.startswith(SERVICE):
            workers.append(record)
        claims += _placed([held for _, held in mine], record)
    return HeldTasks(workers, sorted(claims, key=lambda held: held.since))


def held_longest(paths: Paths, workers: Sequence[str], most: int) -> Step[list[Held]]:
    """The claims that these workers have had longest, at most `most` of each, the oldest first."""
    listed = yield ReadMany([ReadChildren(paths.claims_of(worker)) for worker in workers])
    names: dict[str, Sequence[str]] = {}
    for worker, found in zip(workers, listed, strict=True):
        claims = [(claim.uid, name) for name in found or () if (claim := parse_claim(name))]
        claims.sort(key=lambda each: (len(each[0]), each[0]))  # counted in hexadecimal
        names[worker] = [name for _, name in claims[:most]]
    known: Known = {}
    yield from _read_new(paths, names, known)
    return sorted((held for _, held in known.values()), key=lambda held: held.since)


def _read_new(paths: Paths, names: dict[str, Sequence[str]], known: Known) -> Step[None]:
    held = {(worker, name) for worker, found in names.items() for name in found}
    for gone in known.keys() - held:
        del known[gone]
    new = sorted(each for each in held - known.keys() if parse_claim(each[1]) is not None)
    nodes = yield from read_small([ReadData(f"{paths.claims_of(w)}/{name}") for w, name in new])
    for (worker, name), node in zip(new, nodes, strict=True):
        claim = parse_claim(name)
        if node is not None and claim is not None:  # else it has ended meanwhile
            facts, since = claim_facts(node.data), node.created_ms / 1000
            queue = queue_in(facts.queue)
            made = Held(worker, claim.plan, claim.task, claim.n, since, queue, facts.a)
            known[worker, name] = claim.uid, made


def _placed(claims: list[Held], record: WorkerRecord | None) -> Iterator[Held]:
    """These claims of one worker, the oldest first, each with its state."""
    for at, held in enumerate(claims):
        runs = record is not None and at < record.slots
        left = LEFT if parse_lease(held.worker) is None else RUNNING
        yield held._replace(state=left if record is None else RUNNING if runs else AHEAD)


# ---- Find tasks that take all slots while they wait for other tasks, which then can never run.


#: How many tasks of each worker in this process are waiting.
_waiting: Counter[str] = Counter()
_lock = threading.Lock()


def worker_here() -> str:
    """The ID of the worker that runs the current task; empty outside tasks."""
    task = task_here.get()
    return "" if task is None else task.worker


@contextmanager
def waiting_in_slot() -> Iterator[None]:
    """Count the slot of the current task as waiting within the block."""
    worker = worker_here()
    with _lock:
        _waiting[worker] += 1
    try:
        yield
    finally:
        with _lock:
            _waiting[worker] -= 1
            if not _waiting[worker]:
                del _waiting[worker]


def no_free_slot(client: Connection) -> str:
    """A warning for a waiting task, if tasks that wait like it take all slots of its worker.

    Empty outside tasks, and if this worker or another one has a free slot.
    """
    here = worker_here()
    workers = living_workers(client) if here else []
    mine = next((worker for worker in workers if worker.id == here), None)
    if mine is None or _waiting[here] < mine.slots:
        return ""
    if any(worker.claims < worker.slots for worker in workers if worker is not mine):
        return ""
    others = ", and no other worker has a free one" if len(workers) > 1 else ""
    return (
        f"all slots of {here} ({mine.slots}) are taken by tasks that wait for other tasks, as this "
        f"one does{others}: what they wait for cannot run. Give tasks as arguments instead of "
        "waiting for them, or start more workers"
    )
