"""Claim tasks under a lease, within their limits, and load what a program needs to run them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..errors import Failure, PayloadUndecodable, StoredValueLost, ZkplanError
from ..protocol.core.claim import NO_PERMITS, Permits, claim, mark_started
from ..protocol.core.load import Loaded, load
from ..protocol.core.plans_and_queues import plan_record
from ..protocol.features.leases import new_lease
from ..protocol.features.limits import Limit, read_limit
from ..protocol.layout import PERMIT, Paths, kind_in, limit_path, limits_in, queue_in
from ..protocol.requests import Step
from ..protocol.transactions import Claim
from ..runtime.attempts import Ready, before_call, describe, ended_by, is_last_attempt
from ..runtime.job import Ended, Job
from ..values.codec import LOG
from ..values.connection import Connection
from ..values.plan_values import Values
from .lease_candidates import Candidates, Offer
from .lease_records import HeldJobs, LeasedOut, holder_digits
from .lease_settlement import ServiceRegistration, Settler, id_of

#: Seconds for which a task that cannot be given out here is left alone.
AVOIDED_S = 30.0


def choose(
    paths: Paths, plan: str, names: Sequence[str], server_ms: Callable[[], Step[float]]
) -> Step[tuple[list[str], Permits]]:
    """The entries `names` whose limits have room, and the permits that they take."""
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


class Claimer:
    """Claims for programs. Thread-safe."""

    def __init__(
        self,
        connection: Connection,
        values: Values,
        registration: ServiceRegistration,
        candidates: Candidates,
        held: HeldJobs,
        settler: Settler,
    ) -> None:
        self._paths, self._run, self._values = connection.paths, connection.transport.run, values
        self._registration, self._candidates = registration, candidates
        self._held, self._settler = held, settler
        #: Tasks that could not be given out, by plan and number, and until when to avoid them.
        self._avoided: dict[tuple[str, str], float] = {}

    def claim(
        self,
        queues: Sequence[str],
        kinds: Collection[str] | None,
        most: int,
        lease_ms: int,
        holder: str,
    ) -> list[LeasedOut]:
        """Claim up to `most` tasks that are there now."""
        while (offer := self._candidates.take(queues, kinds, most)) and offer.names:
            if given := self._claim(offer, lease_ms, holder):
                return given
        return []

    def _claim(self, offer: Offer, lease_ms: int, holder: str) -> list[LeasedOut]:
        names, permits = self._not_avoided(offer), NO_PERMITS
        if any("~" in name for name in names):
            names, permits = self._run(choose(self._paths, offer.plan, names, self.server_ms))
        if len(names) < len(offer.names):
            self._candidates.put_aside(offer)
        if not names:
            return []
        due_s = self._registration.measured().now() + lease_ms / 1000
        digits = os.urandom(8).hex() + holder_digits(holder)
        lease = new_lease(self._paths, lease_ms, digits)
        step = claim(lease, offer.plan, offer.version, names, offer.queue, permits)
        taken = self._run(step)
        if taken.no_room is not None:
            raise taken.no_room
        if taken.blocked:
            self._candidates.put_aside(offer)
        if taken.plan_changed or taken.conflicts:
            self._candidates.outdated(offer)
        if not taken.claims:
            return []
        return self._give(offer, self._run(load(taken.claims, taken.read)), due_s, lease_ms)

    def _give(
        self, offer: Offer, loaded: Sequence[Loaded], due_s: float, lease_ms: int
    ) -> list[LeasedOut]:
        """Return the claimed tasks that are to run, and end the claims of the others."""
        given: list[LeasedOut] = []
        ended: list[Ended] = []
        back: list[Claim] = []
        has_last = False
        for item in loaded:
            job = Job(item, plan=offer.record)
            found: Ready | Ended | LeasedOut = self.ready(job)
            if isinstance(found, Ready):
                if is_last_attempt(job):
                    # The loss of the lease would use up the last attempt of each such task,
                    # whichever is to blame. So a lease has at most one.
                    if has_last:
                        back.append(job.claim)
                        continue
                    has_last = True
                if job.claim.n > job.claim.a:
                    if not self._run(mark_started(job.claim)):
                        continue
                    item.others.append(f"started-{job.claim.n}")
                found = self._leased(job, found, due_s, lease_ms)
            if isinstance(found, Ended):
                self._avoid(found)
                ended.append(found)
            else:
                job.started = time.monotonic()
                self._held.put(found.id, job)
                given.append(found)
        self._settler.hand_back(back)
        if ended:
            self._settler.settle(ended, ())
        return given

    def _not_avoided(self, offer: Offer) -> list[str]:
        if not self._avoided:
            return offer.names
        now = time.monotonic()
        self._avoided = {key: until for key, until in self._avoided.items() if until > now}
        return [name for name in offer.names if (offer.plan, name[5:15]) not in self._avoided]

    def _avoid(self, ended: Ended) -> None:
        """Avoid a task that is handed back for AVOIDED_S: it would be claimed again at once."""
        if ended.cannot_run or ended.store_away or ended.server_full:
            claim = ended.job.claim
            self._avoided[claim.plan, claim.task] = time.monotonic() + AVOIDED_S

    def ready(self, job: Job) -> Ready | Ended:
        """Return what a run of the task needs, or how its attempt has ended without a run."""
        codec = self._values.codec
        try:
            return before_call(job, codec, self._registration.measured, lambda _: "")
        except Exception as error:
            return ended_by(error, job, codec)

    def again(self, claim: Claim) -> Job | Ended | None:
        """Load a claim that another process made, or whose job this one has dropped; None if the
        claim or its plan no longer exists."""
        try:
            record = self._run(plan_record(claim.plan_path))
        except ZkplanError:
            return None
        for item in self._run(load([claim])):
            job = Job(item, plan=record)
            found = self.ready(job)
            return found if isinstance(found, Ended) else job
        return None

    def server_ms(self) -> Step[float]:
        """The server's clock in milliseconds; minus infinity if it is not known."""
        clock = self._registration.clock
        yield from clock.measure()
        return 1000 * clock.now() if clock.is_known else float("-inf")

    def _leased(self, job: Job, found: Ready, due_s: float, lease_ms: int) -> LeasedOut | Ended:
        claim, values = job.claim, self._values
        try:
            arguments = values.load_all(claim.plan_path, found.bodies)
            shown = [_shown(value) for value in arguments]
            args, kwargs = values.load_call(claim.plan_path, found.record.arguments, shown)
        except StoredValueLost as error:
            # The next attempt would not find the value either.
            failure = describe(error, job, values.codec)
            return Ended(job, failure=failure, final=True, shown=str(error))
        except Exception as error:
            return ended_by(error, job, values.codec)
        return LeasedOut(
            id=id_of(claim),
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


def _shown(value: Any) -> Any:
    """An argument as JSON: a failure that came down an edge becomes an object."""
    if not isinstance(value, Failure):
        return value
    return {"failed": {"kind": value.type, "message": value.message}}
