"""Claim tasks under a lease, within their limits, and load what a program needs to run them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from ..errors import Failure, PayloadUndecodable, StoredValueLost
from ..protocol.core.claim import NO_PERMITS, Permits, claim, mark_started
from ..protocol.core.load import load
from ..protocol.features.leases import new_lease
from ..protocol.features.limits import Limit, read_limit
from ..protocol.layout import PERMIT, Paths, kind_in, limit_path, limits_in, queue_in
from ..protocol.records import PlanRecord
from ..protocol.requests import Step
from ..protocol.transactions import Claim
from ..runtime.attempts import Ready, before_call, describe, ended_by, is_last_attempt
from ..runtime.job import Ended, Job
from ..values.codec import LOG
from ..values.connection import Connection
from ..values.plan_values import Values
from .lease_board import Board, Offer
from .lease_records import ClaimId, Leased, holder_digits
from .lease_settlement import Registered


def choose(
    paths: Paths, plan: str, names: Sequence[str], server_ms: Callable[[], Step[float]]
) -> Step[tuple[list[str], Permits]]:
    """Those of these entries whose limits have room, and what they take of them."""
    limits: dict[str, Limit | None] = {}
    free: dict[str, list[int]] = {}
    starts: dict[str, int] = {}
    permits, chosen = Permits({}, {}, starts), list[str]()
    for name in names:
        wanted = [limit_path(paths.root, plan, limit) for limit in limits_in(name)]
        for path in wanted:
            if path not in limits:
                limits[path] = found = yield from read_limit(path, server_ms)
                free[path] = found.free if found is not None else []
        if not all(free[path] for path in wanted):
            continue
        taken = []
        for path in wanted:
            number, limit = free[path].pop(0), limits[path]
            taken.append(f"{path}/{PERMIT}{number}")
            if limit is not None:
                permits.versions[path] = limit.version
                if limit.period_ms:
                    starts[taken[-1]] = limit.versions.get(number, -1)
        chosen.append(name)
        if taken:
            permits.taken[name] = tuple(taken)
    return chosen, permits


# ---- Claim under a lease, and make of each claim what a program needs to run it.


#: For so many seconds a task is left alone that cannot be given out here.
AVOIDED_S = 30.0


class Given(NamedTuple):
    """What a claim has brought: tasks to run, how others have ended at once, and claims that are
    not for this lease."""

    tasks: list[tuple[Leased, Job]]
    ended: list[Ended]
    back: list[Claim]


class Claiming:
    """Claims for programs. Thread-safe."""

    def __init__(
        self, connection: Connection, values: Values, registered: Registered, board: Board
    ) -> None:
        self._paths, self._run = connection.paths, connection.transport.run
        self._values, self._registered, self._board = values, registered, board
        #: Until when tasks are left alone that could not be given out, by plan and number.
        self._avoided: dict[tuple[str, str], float] = {}

    def claim(
        self,
        queues: Sequence[str],
        kinds: Collection[str] | None,
        most: int,
        lease_ms: int,
        holder: str,
    ) -> Given | None:
        """Claim what is there now; None if there is nothing."""
        while True:
            offer = self._board.take(queues, kinds, most)
            if offer is None or not offer.names:
                return None
            made = self._claim(offer, lease_ms, holder)
            if made is not None:
                return made

    def _claim(self, offer: Offer, lease_ms: int, holder: str) -> Given | None:
        names, permits = self._not_avoided(offer), NO_PERMITS
        if any("~" in name for name in names):
            names, permits = self._run(choose(self._paths, offer.plan, names, self.server_ms))
        if len(names) < len(offer.names):
            self._board.put_aside(offer)
        if not names:
            return None
        due_s = self._registered.measured().now() + lease_ms / 1000
        digits = os.urandom(8).hex() + holder_digits(holder)
        lease = new_lease(self._paths, lease_ms, digits)
        step = claim(lease, offer.plan, offer.version, names, offer.queue, permits)
        taken = self._run(step)
        if taken.no_room is not None:
            raise taken.no_room
        if taken.blocked:
            self._board.put_aside(offer)
        if taken.plan_changed or taken.conflicts:
            self._board.outdated(offer)
        if not taken.claims:
            return None
        loaded = self._run(load(taken.claims, taken.read))
        given = Given([], [], [])
        has_last = False
        for item in loaded:
            job = Job(item, plan=offer.record)
            found = self.ready(job)
            if isinstance(found, Ended):
                self._avoid(found)
                given.ended.append(found)
                continue
            if is_last_attempt(job):
                # The loss of the lease would use up the last attempt of each of them, whichever
                # of them is to blame.
                if has_last:
                    given.back.append(job.claim)
                    continue
                has_last = True
            if job.claim.n > job.claim.a:
                if not self._run(mark_started(job.claim)):
                    continue
                item.others.append(f"started-{job.claim.n}")
            told = self._told(job, found, due_s, lease_ms)
            if isinstance(told, Ended):
                self._avoid(told)
                given.ended.append(told)
            else:
                job.started = time.monotonic()
                given.tasks.append((told, job))
        return given

    def _not_avoided(self, offer: Offer) -> list[str]:
        if not self._avoided:
            return offer.names
        now = time.monotonic()
        self._avoided = {key: until for key, until in self._avoided.items() if until > now}
        return [name for name in offer.names if (offer.plan, name[5:15]) not in self._avoided]

    def _avoid(self, ended: Ended) -> None:
        """It goes back, and would be claimed again at once."""
        if ended.cannot_run or ended.store_away or ended.server_full:
            claim = ended.job.claim
            self._avoided[claim.plan, claim.task] = time.monotonic() + AVOIDED_S

    def ready(self, job: Job) -> Ready | Ended:
        """Whether the task is to run, or how this attempt has ended."""
        codec = self._values.codec
        try:
            return before_call(job, codec, self._registered.measured, lambda _: "")
        except Exception as error:
            return ended_by(error, job, codec)

    def again(self, claim: Claim, record: PlanRecord) -> Job | Ended | None:
        """A claim that this process did not make, or has forgotten; None if it is gone."""
        for item in self._run(load([claim])):
            job = Job(item, plan=record)
            found = self.ready(job)
            return found if isinstance(found, Ended) else job
        return None

    def server_ms(self) -> Step[float]:
        """The server's clock in milliseconds; a time long ago where it is not known."""
        yield from self._registered.clock.measure()
        clock = self._registered.clock
        return 1000 * clock.now() if clock.is_known else float("-inf")

    def _told(self, job: Job, found: Ready, due_s: float, lease_ms: int) -> Leased | Ended:
        claim, values = job.claim, self._values
        try:
            arguments = values.load_all(claim.plan_path, found.bodies)
            shown = [_shown(value) for value in arguments]
            args, kwargs = values.load_call(claim.plan_path, found.record.arguments, shown)
        except StoredValueLost as error:
            failure = describe(error, job, values.codec)  # it would be as lost the next time
            return Ended(job, failure=failure, final=True, shown=str(error))
        except Exception as error:
            return ended_by(error, job, values.codec)
        return Leased(
            id=str_of(claim),
            plan=int(claim.plan),
            task=int(claim.task),
            name=job.name,
            kind=kind_in(claim.queue),
            queue=queue_in(claim.queue),
            attempt=claim.n,
            due=due_s,
            lease=lease_ms / 1000,
            args=list(args),
            kwargs=kwargs,
            logs=self._logs(job),
        )

    def _logs(self, job: Job) -> list[Any]:
        found, codec = [], self._values.codec
        for sealed in job.loaded.logs:
            try:
                found.append(codec.load(codec.open(LOG, sealed)[1]))
            except PayloadUndecodable:
                continue  # a failure, or written by another serializer
        return found


def claim_id(claim: Claim) -> ClaimId:
    return ClaimId(*claim.path.rsplit("/", 2)[1:])


def str_of(claim: Claim) -> str:
    return "/".join(claim_id(claim))


def _shown(value: Any) -> Any:
    """A failure that came down an edge, as JSON."""
    if not isinstance(value, Failure):
        return value
    return {"failed": {"kind": value.type, "message": value.message}}
