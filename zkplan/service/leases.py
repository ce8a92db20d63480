"""Leases: claims for programs without a session, as Python calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..author.functions import KIND_NAMES
from ..errors import InvalidTask, NotSerialisable, PayloadTooLarge, ServerFull
from ..plan import Plan
from ..protocol.features import leases
from ..protocol.layout import DEFAULT_QUEUE, QUEUE_NAMES, parse_queue
from ..protocol.records import Failure
from ..runtime.attempts import TRACEBACK_CHARS_MAX, deadline_passed
from ..runtime.context import LOGS_PER_ATTEMPT
from ..runtime.job import Ended, Job
from ..runtime.runner import RESULT_BYTES_MAX
from ..values.codec import LOG, VALUE, Codec
from ..values.connection import Connection
from ..values.plan_values import Values
from .lease_candidates import Candidates
from .lease_claims import Claimer
from .lease_maintenance import DecisionDelivery, Maintenance
from .lease_records import (
    ClaimOutcomeOut,
    Failed,
    HeldJobs,
    LeasedOut,
    RenewalOut,
    accepted,
    parse_id,
    refused,
    why_lost,
)
from .lease_settlement import ServiceRegistration, Settler
from .lease_updates import Complete, Operation, Updated, Updater

T = TypeVar("T")
#: The most bytes of one log entry, as JSON.
LOG_BYTES_MAX = 64 * 1024


class Leases:
    """Claims tasks of kinds for programs without a session, and settles them. Thread-safe.

    A lease counts from the claim, and from each renewal; once it has lapsed, its tasks may go to
    others. No value is unpickled. Call `close` at the end, or use it as a context manager;
    the client stays open. The routes check the ranges of all numbers.
    """

    def __init__(self, connection: Connection) -> None:
        self._paths, self._run = connection.paths, connection.transport.run
        self._codec = Codec("json", has_keys=bool(connection.keys))
        self._values = Values(connection.transport, self._codec, connection.values.store)
        self._registration = ServiceRegistration(connection.transport, self._paths)
        self._held = HeldJobs()
        self._settler = Settler(connection, self._codec, self._registration)
        self.candidates = Candidates(
            connection.transport, self._paths, lambda: self._registration.measured().now()
        )
        self._claimer = Claimer(
            connection=connection,
            values=self._values,
            registration=self._registration,
            candidates=self.candidates,
            held=self._held,
            settler=self._settler,
        )
        self._updater = Updater(connection, self._codec, self._registration, self._settler)
        decisions = DecisionDelivery(connection, self._registration, self._claimer, self._settler)
        self._maintenance = Maintenance(connection, self._registration, decisions)
        self._maintenance.start()

    def close(self) -> None:
        """Stop. The leases that were given out stay: another service may settle their claims."""
        self._maintenance.stop()
        self.candidates.close()
        self._registration.leave()

    def __enter__(self) -> Leases:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def claim(
        self,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        kinds: Collection[str] | None = None,
        count: int = 1,
        lease_s: float = 30.0,
        holder: str = "",
    ) -> list[LeasedOut]:
        """Claim up to `count` tasks of one plan and queue that are there now, under one lease.

        The tasks come from the first of `queues` that has any of `kinds` (None: of any kind). Tasks
        without a kind are Python functions, and for workers. The lease is for `holder`: a service
        lets no one else settle its claims (`is_held_by`). Raises InvalidTask for a name that no
        queue or kind may have, ZooKeeperUnavailable, ServerFull.
        """
        for names, rule in ((queues, f"a queue has {QUEUE_NAMES}"), (kinds or (), KIND_NAMES)):
            for name in names:
                if parse_queue(name) is None:
                    raise InvalidTask("", f"{rule}, unlike {name!r:.60}")
        return self._claimer.claim(queues, kinds, count, int(lease_s * 1000), holder)

    def renew(self, ids: Sequence[str]) -> list[RenewalOut]:
        """Let the leases of these claims count from now on, and say which claims still stand."""
        now_s = self._registration.measured().now()
        known = {text: parse_id(text) for text in ids}
        names = sorted({each.lease for each in known.values() if each is not None})
        held = {each.lease: each.names for each in self._run(leases.renew(self._paths, names))}
        standing = {
            text: now_s + leases.lease_s(each.lease)
            for text, each in known.items()
            if each is not None and each.name in (held[each.lease] or ())
        }
        lost = self._run(why_lost(self._paths, known.keys() - standing.keys()))
        return [
            RenewalOut(text, True, standing[text], "", "")
            if text in standing
            else RenewalOut(text, False, 0.0, lost[text].refused, lost[text].why)
            for text in ids
        ]

    def complete(self, results: Sequence[tuple[str, Any]]) -> list[ClaimOutcomeOut]:
        """Commit results, which are JSON values: together where they fit in one transaction."""
        return self._settle(results, self._completed)

    def fail(self, failures: Sequence[Failed]) -> list[ClaimOutcomeOut]:
        """Let these attempts fail: the tasks run again, or are dead if no attempts are left."""
        return self._settle([(each.id, each) for each in failures], _failed)

    def hand_back(self, ids: Sequence[str]) -> list[ClaimOutcomeOut]:
        """Give these tasks back unused: it costs no attempt."""
        return self._settle([(text, None) for text in ids], lambda job, _: Ended(job, stopped=True))

    def update(
        self, plan: Plan, operations: Sequence[Operation], key: str | None = None, body: str = ""
    ) -> Updated:
        """Apply all `operations` to tasks of `plan` in one transaction, or none of them.

        With a `key`, an update is applied once: a repeat gets the first answer. `body` is a digest
        of the request, so that another update with the same key is refused. Raises UpdateRefused
        with every operation that does not fit, UpdateTooLarge, InvalidTask, and the errors of
        adding tasks.
        """
        given = {each.id: each.value for each in operations if isinstance(each, Complete)}
        if len(given) < sum(isinstance(each, Complete) for each in operations):
            raise InvalidTask("", "an update may complete each claim only once")
        before = self._updater.before(plan, key, body)
        if before is not None:
            return before
        jobs = self._jobs(given, take=True)
        try:
            made = self._run(why_lost(self._paths, given.keys() - jobs.keys()))
            ends: dict[str, Ended | ClaimOutcomeOut] = {**made}
            for text, job in jobs.items():
                end = job if isinstance(job, Ended) else self._completed(job, given[text])
                ends[text] = refused(text, "invalid", end) if isinstance(end, str) else end
            done = self._updater.update(plan, operations, ends, key, body)
        except BaseException:
            for text, job in jobs.items():
                self._keep(text, job)  # most likely the claim stands
            raise
        if not done.repeated:
            self._settler.drop(self._held.emptied(text for text in given if parse_id(text)))
        return done

    def log(self, text: str, number: int, value: Any) -> ClaimOutcomeOut:
        """Write the log entry `number` of this attempt, counted from 1, a JSON value.

        Writing an entry again changes nothing. An entry that would leave out numbers is refused:
        `why` names the next one.
        """
        if not 1 <= number <= LOGS_PER_ATTEMPT:
            why = f"an attempt has at most {LOGS_PER_ATTEMPT} log entries"
            return refused(text, "invalid", why)
        try:
            body = self._codec.open(VALUE, self._codec.seal_value(value))[1]
        except NotSerialisable as error:
            return refused(text, "invalid", str(error))
        if len(body) > LOG_BYTES_MAX:
            return refused(text, "invalid", f"a log entry has at most {LOG_BYTES_MAX} bytes")
        job = self._jobs([text], take=False).get(text)
        written: str | int | None = None
        if isinstance(job, Job):
            try:
                written = self._run(leases.log(job.claim, number, self._codec.seal(LOG, body)))
            except ServerFull as error:
                return refused(text, "full", str(error))
            if isinstance(written, str):
                job.loaded.others.append(written)
        if written is None:
            return self._run(why_lost(self._paths, [text]))[text]
        if isinstance(written, int) and written < number:
            why = f"entry {number} was not written: the next one is {written + 1}"
            return refused(text, "invalid", why)
        return accepted(text)

    def _jobs(self, ids: Iterable[str], *, take: bool) -> dict[str, Job | Ended]:
        """The jobs of those claims that stand, as far as this process knows or can read."""
        find = self._held.take if take else self._held.find
        found: dict[str, Job | Ended] = {}
        unread = []
        for text in ids:
            if (job := find(text)) is not None:
                found[text] = job
            elif (known := parse_id(text)) is not None:
                unread.append((text, (known.lease, known.name)))
        if unread:
            step = leases.claims_under(self._paths, [names for _, names in unread])
            for (text, _), claim in zip(unread, self._run(step), strict=True):
                again = self._claimer.again(claim) if claim is not None else None
                if again is not None:
                    found[text] = again
                if not take and again is not None:
                    self._keep(text, again)
        return found

    def _settle(
        self, wanted: Sequence[tuple[str, T]], end: Callable[[Job, T], Ended | str]
    ) -> list[ClaimOutcomeOut]:
        given: Mapping[str, T] = dict(wanted)
        jobs = self._jobs(given, take=True)
        outcomes: dict[str, ClaimOutcomeOut] = {}
        ended: dict[str, Ended] = {}
        for text, job in jobs.items():
            made = job if isinstance(job, Ended) else end(job, given[text])
            if isinstance(made, Ended):
                ended[text] = made
            else:
                outcomes[text] = refused(text, "invalid", made)
                self._keep(text, job)
        for each in self._settler.settle(ended.values(), self._held.emptied(ended)):
            if each.refused == "full":
                self._keep(each.id, jobs[each.id])
            if each.refused == "lapsed":
                continue
            if isinstance(jobs[each.id], Ended):  # it had ended before the program said anything
                why = "the task had ended before: see its outcome"
                each = refused(each.id, "ended", why)
            outcomes[each.id] = each
        lost = given.keys() - outcomes.keys()
        if lost:
            outcomes |= self._run(why_lost(self._paths, lost))
        return [outcomes[text] for text, _ in wanted]

    def _keep(self, text: str, job: Job | Ended) -> None:
        if isinstance(job, Job):
            self._held.put(text, job)

    def _completed(self, job: Job, value: Any) -> Ended | str:
        if time.monotonic() >= job.last_call:
            return Ended(job, failure=deadline_passed(job), final=True)
        claim = job.claim
        key = f"{claim.task}.{claim.n}"
        try:
            sealed = self._values.seal(claim.plan_path, key, value, job.kept_name, True)
        except NotSerialisable as error:
            return str(error)
        if len(sealed) > RESULT_BYTES_MAX:
            return str(PayloadTooLarge(f"the result of {job.name}", len(sealed), RESULT_BYTES_MAX))
        return Ended(job, outcome=sealed)


def _failed(job: Job, failed: Failed) -> Ended:
    failure = Failure(
        failed.kind[:200],
        failed.message[:2000],
        failed.traceback[-TRACEBACK_CHARS_MAX:],
        job.worker,
        job.claim.n,
        time.time(),
    )
    return Ended(job, failure=failure, final=not failed.retry)
