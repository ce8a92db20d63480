"""Collect the metrics of a root for Prometheus.

    prometheus_client.REGISTRY.register(WorkerCollector(worker))

The commands `zkplan worker --metrics`, `zkplan server --metrics` and `zkplan metrics` serve the
same metrics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

from ..basics.log import get_logger
from ..errors import ZkplanError, ZooKeeperUnavailable
from ..protocol.layout import DEFAULT_QUEUE
from ..protocol.requests import Step
from ..values.connection import Connection
from .prometheus_counts import RootCounts, ScheduleTime, Tally, count_root, read_schedules
from .prometheus_endpoint import Collector, Endpoint, Metric, exposition, gauge, gauges
from .prometheus_process import WITHIN_S, WorkerCollector, latency_s

__all__ = ["Endpoint", "RootCollector", "WorkerCollector"]

logger = get_logger("zkplan.metrics")
_SILENT = f"ZooKeeper does not answer within {WITHIN_S:g} s"
_PLAN_STATES = ("running", "paused", "defining", "done", "failed", "cancelled", "unread")
_TASK_STATES = ("waiting", "gated", "runnable", "delayed", "running", "dead")
_QUEUE_STATES = ("gated", "runnable", "delayed", "running")
#: Scrapes within this many seconds after a count get its result.
FRESH_S = 1.0
#: How many seconds a scrape waits for a count. Prometheus gives up after 10 s by default.
SCRAPE_S = 4.0


class RootCollector(Collector):
    """Collects the metrics of the roots of these clients, for a registry of prometheus_client.

    Each scrape reads the trees again, in batches, and each sample has the label `root`. A scrape is
    answered within SCRAPE_S seconds: if a count takes longer, or fails, the scrape gets the latest
    counts. `zkplan_root_up` is 0 if the last count failed, because ZooKeeper does not answer or an
    access list does not let the client read everything; `zkplan_root_count_age_seconds` is the age
    of the counts. Thread-safe. The collector remembers which plans have ended, so keep it between
    scrapes.
    """

    def __init__(self, *clients: Connection) -> None:
        self._roots = [_Root(client) for client in clients]

    def collect(self) -> Iterator[Metric]:
        """The families, as prometheus_client asks for them. Never raises ZkplanError."""
        for root in self._roots:
            root.start()
        until = time.monotonic() + SCRAPE_S
        yield from _merged((root.name, root.collected(until)) for root in self._roots)

    def text(self) -> str:
        """One count in the text format of Prometheus. Raises ZkplanError, such as AccessDenied."""
        counted = ((root.name, [_up(True), *root.count(root.latency())]) for root in self._roots)
        return exposition(_merged(counted))

    def wrong(self) -> str:
        """Why a root cannot be read; empty if ZooKeeper answers."""
        found = [(root.name, why) for root in self._roots if (why := root.wrong())]
        if len(self._roots) == 1:
            return "".join(why for _, why in found)
        return "; ".join(f"{name}: {why}" for name, why in found)


class _Root:
    """One root. It is counted on request, one count at a time, on a thread of its own.

    So a scrape is answered in time. With a slow ZooKeeper a count takes longer than Prometheus
    waits, and otherwise the metrics would be missing just when they are needed. Thread-safe.
    """

    def __init__(self, client: Connection) -> None:
        self._client, self.name = client, client.root
        #: The states of plans that have ended for good, by number.
        self._ended_plans: dict[str, str] = {}
        self._lock = threading.Lock()
        #: The latest families, and when their count began; None before the first count.
        self._families: list[Metric] = []
        self._began: float | None = None
        self._ended = float("-inf")
        #: Set while no count runs.
        self._idle = threading.Event()
        self._idle.set()
        #: Why the last count failed; empty if it did not.
        self._error = ""

    def start(self) -> None:
        """Begin a count, unless the last one has just ended or one runs."""
        with self._lock:
            if not self._idle.is_set() or time.monotonic() - self._ended < FRESH_S:
                return
            self._idle.clear()
        threading.Thread(target=self._run, name="zkplan-count", daemon=True).start()

    def collected(self, until: float) -> list[Metric]:
        """The latest families, also those of a running count if it ends before `until`."""
        self._idle.wait(max(0.0, until - time.monotonic()))
        with self._lock:
            families, began = [_up(not self._error), *self._families], self._began
        if began is not None:
            text = "Seconds since the counts of this scrape were begun."
            age_s = time.monotonic() - began
            families.append(gauge("zkplan_root_count_age_seconds", text, age_s))
        return families

    def latency(self) -> float | None:
        return latency_s(self._client.transport, self.name)

    def wrong(self) -> str:
        return _SILENT if self.latency() is None else self._error

    def _run(self) -> None:
        found, failed, began = list[Metric](), "", time.monotonic()
        try:
            latency = self.latency()
            if latency is None:  # otherwise the count would wait as long as a command
                raise ZooKeeperUnavailable(_SILENT)
            found = self.count(latency)
        except ZkplanError as error:
            failed = str(error)
            if failed != self._error:  # log each error once, not with every scrape
                logger.warning("the metrics of %s cannot be read: %s", self.name, error)
        except BaseException as error:
            failed = f"a count failed: {error!r}"
            raise
        finally:
            with self._lock:
                if not failed:
                    self._families, self._began = found, began
                self._error, self._ended = failed, time.monotonic()
                self._idle.set()

    def count(self, latency: float | None) -> list[Metric]:
        """The families of one count. Raises ZkplanError."""
        started, tally = time.monotonic(), Tally()
        counts, schedules = self._client.transport.run(tally.of(self._read()))
        families = [
            *_of_plans(counts),
            *_of_queues(counts),
            *_of_workers(counts),
            *_of_schedules(schedules),
        ]
        if latency is not None:
            text = "Seconds that ZooKeeper took to answer one small read of this process."
            families.insert(0, gauge("zkplan_zookeeper_latency_seconds", text, latency))
        text = "Requests to ZooKeeper that this scrape took."
        families.append(gauge("zkplan_root_scrape_requests", text, tally.requests + 1))
        text = "Reads of znodes that this scrape took, many in each request."
        families.append(gauge("zkplan_root_scrape_reads", text, tally.reads + 1))
        text, took_s = "Seconds that this scrape took.", time.monotonic() - started
        families.append(gauge("zkplan_root_scrape_duration_seconds", text, took_s))
        return families

    def _read(self) -> Step[tuple[RootCounts, list[ScheduleTime]]]:
        paths = self._client.paths
        counts = yield from count_root(paths, self._ended_plans)
        return counts, (yield from read_schedules(paths))


def _up(is_up: bool) -> Metric:
    return gauge("zkplan_root_up", "Whether the root could be read: 1 or 0.", is_up)


def _merged(found: Iterable[tuple[str, list[Metric]]]) -> Iterable[Metric]:
    """Join the families of the roots by name: each has the samples of all roots."""
    merged: dict[str, Metric] = {}
    for root, families in found:
        for family in families:
            new = Metric(family.name, family.documentation, family.type)
            merged.setdefault(family.name, new).samples += [
                each._replace(labels={"root": root, **each.labels}) for each in family.samples
            ]
    return merged.values()


def _of_plans(counts: RootCounts) -> Iterator[Metric]:
    text = "Plans under the root by state. Those beyond the bound of one scrape are unread."
    yield gauges(
        "zkplan_plans", text, ["state"], {each: counts.plans[each] for each in _PLAN_STATES}
    )
    yield gauge("zkplan_plans_with_dead_tasks", "Active plans with a dead task.", counts.with_dead)
    text = "Plans that ended with failed tasks, or at their deadline, and wait for a person."
    yield gauge("zkplan_plans_failed", text, counts.failed)
    text = "Unfinished tasks of active plans by state."
    yield gauges(
        "zkplan_tasks", text, ["state"], {each: counts.tasks[each] for each in _TASK_STATES}
    )


def _of_queues(counts: RootCounts) -> Iterator[Metric]:
    workers, now = counts.workers, time.time()
    queues = {DEFAULT_QUEUE, *(queue for queue, _ in counts.by_queue)}
    queues.update(*(worker.queues for worker in workers))

    def by_queue(name: str, text: str, value: Callable[[str], float]) -> Metric:
        return gauges(name, text, ["queue"], {queue: value(queue) for queue in queues})

    def serving(queue: str) -> int:
        return sum(queue in each.queues and each.state == "running" for each in workers)

    def age_since(since_ms: dict[str, int]) -> Callable[[str], float]:
        return lambda queue: max(0.0, now - since_ms.get(queue, 1000 * now) / 1000)

    text = "Tasks of active plans by queue and state."
    tasks = {
        (queue, state): counts.by_queue[queue, state] for queue in queues for state in _QUEUE_STATES
    }
    yield gauges("zkplan_queue_tasks", text, ["queue", "state"], tasks)
    text = "Living workers that serve the queue and are neither paused nor draining."
    yield by_queue("zkplan_queue_workers", text, serving)
    text = "Seconds that the oldest runnable task of the queue has waited; 0 without one."
    yield by_queue("zkplan_queue_oldest_runnable_age_seconds", text, age_since(counts.oldest_ms))
    text = "Seconds since the oldest present claim of the queue was made; 0 without one."
    yield by_queue("zkplan_queue_oldest_running_age_seconds", text, age_since(counts.running_ms))
    text = "Tasks whose age was not read, because there are more than one scrape reads."
    yield gauge("zkplan_root_scrape_ages_unread", text, counts.ages_unread)


def _of_workers(counts: RootCounts) -> Iterator[Metric]:
    workers, states = counts.workers, ("running", "paused", "draining")
    by_state = {state: sum(each.state == state for each in workers) for state in states}
    yield gauges("zkplan_workers", "Living workers by their latest order.", ["state"], by_state)
    text = "Slots of all living workers: how many tasks they run at a time."
    yield gauge("zkplan_slots", text, sum(worker.slots for worker in workers))
    text = "The used share of the root's budget when it was last counted; 0 without a budget."
    yield gauge("zkplan_budget_used_ratio", text, counts.budget)
    text = "Vanished workers whose claims no worker has taken over yet."
    yield gauge("zkplan_vanished_workers", text, counts.left_behind)


def _of_schedules(schedules: list[ScheduleTime]) -> Iterator[Metric]:
    states, now = ("active", "paused", "unreadable"), time.time()
    by_state = {state: sum(each.state == state for each in schedules) for state in states}
    yield gauges("zkplan_schedules", "Schedules by state.", ["state"], by_state)
    text = "Seconds since the schedule was due without being fired; 0 if it is not due."
    late = {each.name: max(0.0, now - each.due) for each in schedules if each.due is not None}
    yield gauges("zkplan_schedule_lateness_seconds", text, ["schedule"], late)
    text = "When the schedule made its last plan, in seconds since 1970."
    fired = {each.name: each.fired for each in schedules if each.fired is not None}
    yield gauges("zkplan_schedule_last_fired_timestamp_seconds", text, ["schedule"], fired)
