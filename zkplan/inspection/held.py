"""What the workers under a root hold: the claims of each, what it runs apart from what waits there.

The tree has no record of what runs. A worker starts its claims in their order, on as many slots as
it registered: so its oldest claims are those that run. Since when it holds a task is the time at
which the server made the claim; the function began then or later.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import NamedTuple

from ..protocol.layout import DEFAULT_QUEUE, SERVICE, Paths, parse_claim, parse_lease, queue_in
from ..protocol.requests import ReadChildren, ReadData, ReadMany, Step
from ..protocol.shared import claim_facts
from ..protocol.worker_record import WorkerRecord
from .together import read_small

#: The states of claimed tasks here: its worker runs it; it has claimed it ahead; it is gone, and
#: another one will take the task over.
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


#: Claims that were read before, by worker and name: no claim ever changes. `uid` orders those that
#: were made in one millisecond.
Known = MutableMapping[tuple[str, str], tuple[str, Held]]


def held_tasks(paths: Paths, known: Known | None = None) -> Step[HeldTasks]:
    """Read all claims. With `known`, those that are in it are not read again; it is kept up."""
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
