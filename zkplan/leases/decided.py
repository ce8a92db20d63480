"""Deliver what an operator has decided about tasks that were held under leases, where no worker
runs: their programs would have to claim again, and may never do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..connection import Connection
from ..log import get_logger
from ..protocol.claim import NO_PERMITS, claim
from ..protocol.layout import parse_claim, parse_entry, queue_in
from ..protocol.load import load, read_all
from ..protocol.look import look, plan_record
from ..protocol.records import PlanRecord, queue_from_bytes, taken_from_bytes
from ..protocol.requests import ReadData, Step
from ..protocol.shared import Claim, or_error
from ..runtime.job import Ended, Job
from .claiming import Claiming
from .permits import choose
from .registered import Registered
from .settling import Settling

#: How many entries of one queue are looked at, the first ones. A worker or a program takes others.
LOOKED_AT = 200
logger = get_logger("zkplan.leases")


class _Found(NamedTuple):
    """How many entries of a queue are decided and can still be delivered, and those claimed now."""

    record: PlanRecord
    decided: int
    claims: Sequence[Claim] = ()


class Decided:
    """A decision takes the claim, and leaves its name on the lease.

    Of several decisions the lease has the last name. That is enough: all claims of a lease are of
    one queue of one plan, and what is decided there is settled together.
    """

    def __init__(
        self, connection: Connection, registered: Registered, claiming: Claiming, settling: Settling
    ) -> None:
        self._run, self._paths = connection.transport.run, connection.paths
        self._registered, self._claiming, self._settling = registered, claiming, settling
        #: By lease: its mark, when it was seen last.
        self._seen: dict[str, str] = {}
        #: Plans and tasks of marks; what was decided there is not all delivered.
        self._waiting: set[tuple[str, str]] = set()

    def deliver(self, leases: Sequence[str]) -> bool:
        """Look at the marks of these leases, which are all that stand. Returns whether something
        waits: its plan is paused, or it needs a permit."""
        self._seen = {lease: mark for lease, mark in self._seen.items() if lease in set(leases)}
        reads = [ReadData(self._paths.claims_of(lease)) for lease in leases]
        for lease, node in zip(leases, self._run(read_all(reads, strict=False)), strict=True):
            mark = taken_from_bytes(node.data) if node is not None and node.data else ""
            if not mark or mark == self._seen.get(lease):
                continue
            self._seen[lease] = mark
            if (taken := parse_claim(mark)) is not None:
                self._waiting.add((taken.plan, taken.task))
        # A lease may lapse, with its mark, before its plan goes on.
        self._waiting = {each for each in self._waiting if not self._deliver(*each)}
        return bool(self._waiting)

    def _deliver(self, plan: str, task: str) -> bool:
        """Settle what is decided in the queue of that task. What is not goes back unused. Returns
        whether none of it waits."""
        found = self._run(or_error(self._claim(plan, task)))
        if not isinstance(found, _Found):
            logger.warning(
                "a decision about task %s of plan %s is not delivered: %s", task, plan, found
            )
            return True
        ended: list[Ended] = []
        for item in self._run(load(list(found.claims))):
            at_once = self._claiming.ready(Job(item, plan=found.record))
            if isinstance(at_once, Ended):
                ended.append(at_once)
            else:
                self._settling.hand_back([item.claim])
        self._settling.settle(ended, ())
        return len(found.claims) == found.decided

    def _claim(self, plan: str, task: str) -> Step[_Found]:
        """Raises PlanNotFound, OtherFormat, PayloadUndecodable."""
        path = self._paths.plan(plan)
        record = yield from plan_record(path)
        ready = yield ReadData(f"{path}/task-{task}/ready")
        queue = queue_in(queue_from_bytes(ready.data)) if ready is not None else ""
        if not queue:
            return _Found(record, 0)  # a program or a worker has delivered it
        seen = yield from look(path, queues=(queue,))
        entries = [(name, entry) for name in seen.names or () if (entry := parse_entry(name))]
        held = [(name, entry.task) for name, entry in entries if entry.n][:LOOKED_AT]
        results = yield from read_all(
            [ReadData(f"{path}/task-{number}/result") for _, number in held], strict=False
        )
        names = [name for (name, _), node in zip(held, results, strict=True) if node is not None]
        decided, permits = len(names), NO_PERMITS
        if not names or seen.state != "running":
            return _Found(record, decided if seen.state == "paused" else 0)
        if any("~" in name for name in names):
            names, permits = yield from choose(self._paths, plan, names, self._claiming.server_ms)
        me = self._registered.me()
        taken = yield from claim(me, plan, seen.version, names, queue, permits)
        if taken.worker_gone:
            self._registered.lost(me)
        return _Found(record, decided, taken.claims)
