"""The metrics of a root: plans, tasks, queues, workers and schedules, counted at each scrape."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from ..connection import Connection
from ..errors import ZkplanError, ZooKeeperUnavailable
from ..log import get_logger
from ..protocol.layout import DEFAULT_QUEUE
from ..protocol.requests import Step
from ..transport import Transport
from .counting import RootCounts, Tally, count_root
from .families import gauge, gauges
from .latency import WITHIN_S, latency_s
from .prometheus import CollectorRegistry, Metric, generate_latest
from .schedule_times import ScheduleTime, read_schedules

logger = get_logger("zkplan.metrics")

#: Scrapes that follow so soon get what the one before has found.
FRESH_S = 1.0
_SILENT = f"ZooKeeper does not answer within {WITHIN_S:g} s"
_PLAN_STATES = ("running", "paused", "defining", "done", "failed", "cancelled", "unread")
_TASK_STATES = ("waiting", "gated", "runnable", "delayed", "running", "dead")
_QUEUE_STATES = ("gated", "runnable", "delayed", "running")


class RootCollector:
    """Collects the metrics of the root of `client`, for a registry of prometheus_client.

    Each scrape reads the tree anew, in batches. If ZooKeeper does not answer, or an access list
    does not let the client read all, `zkplan_root_up` is 0 and the counts are missing.
    Thread-safe. It remembers which plans have ended, so keep it between scrapes.
    """

    def __init__(self, client: Connection) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._ended: dict[str, str] = {}
        self._collected: list[Metric] = []
        self._at = float("-inf")
        self._told = ""

    def collect(self) -> Iterator[Metric]:
        """The families, as prometheus_client asks for them. Never raises ZkplanError."""
        with self._lock:
            if time.monotonic() - self._at >= FRESH_S:
                self._collected = self._families()
                self._at = time.monotonic()
            yield from self._collected

    def describe(self) -> list[Metric]:
        """None: so a registry asks for nothing until the first scrape."""
        return []

    def text(self) -> str:
        """One count in the text format of Prometheus. Raises ZkplanError, such as AccessDenied."""
        registry = CollectorRegistry()
        registry.register(_Counted(self._count(latency_s(*self._probe))))
        return generate_latest(registry).decode()

    def wrong(self) -> str:
        """Why the root cannot be read; empty if ZooKeeper answers."""
        return _SILENT if latency_s(*self._probe) is None else self._told

    @property
    def _probe(self) -> tuple[Transport, str]:
        return self._client.transport, self._client.root

    def _count(self, latency: float | None) -> list[Metric]:
        """The families of one count. Raises ZkplanError."""
        started, tally = time.monotonic(), Tally()
        counts, schedules = self._client.transport.run(tally.of(self._read()))
        return [
            gauge("zkplan_root_up", "Whether the root could be read: 1 or 0.", 1),
            *_of_latency(latency),
            *_of_plans(counts),
            *_of_queues(counts),
            *_of_workers(counts),
            *_of_schedules(schedules),
            gauge(
                "zkplan_root_scrape_requests",
                "Requests to ZooKeeper that this scrape took.",
                tally.requests + 1,
            ),
            gauge(
                "zkplan_root_scrape_reads",
                "Reads of znodes that this scrape took, many in each request.",
                tally.reads + 1,
            ),
            gauge(
                "zkplan_root_scrape_duration_seconds",
                "Seconds that this scrape took.",
                time.monotonic() - started,
            ),
        ]

    def _read(self) -> Step[tuple[RootCounts, list[ScheduleTime]]]:
        paths = self._client.paths
        counts = yield from count_root(paths, self._ended)
        return counts, (yield from read_schedules(paths))

    def _families(self) -> list[Metric]:
        try:
            latency = latency_s(*self._probe)
            if latency is None:  # else this waits for as long as a command may
                raise ZooKeeperUnavailable(_SILENT)
            found = self._count(latency)
        except ZkplanError as error:
            if str(error) != self._told:  # once, not with every scrape
                self._told = str(error)
                logger.warning("the metrics of %s cannot be read: %s", self._client.root, error)
            return [gauge("zkplan_root_up", "Whether the root could be read: 1 or 0.", 0)]
        self._told = ""
        return found


class _Counted:
    """What was collected before, for a registry."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _of_latency(latency: float | None) -> Iterator[Metric]:
    if latency is not None:
        yield gauge(
            "zkplan_zookeeper_latency_seconds",
            "Seconds that ZooKeeper took to answer one small read of this process.",
            latency,
        )


def _of_plans(counts: RootCounts) -> Iterator[Metric]:
    yield gauges(
        "zkplan_plans",
        "Plans under the root by state. Those beyond the bound of one scrape are unread.",
        ["state"],
        {state: counts.plans[state] for state in _PLAN_STATES},
    )
    yield gauge("zkplan_plans_with_dead_tasks", "Active plans with a dead task.", counts.with_dead)
    failed = "Plans that ended with failed tasks, or at their deadline, and wait for a person."
    yield gauge("zkplan_plans_failed", failed, counts.failed)
    yield gauges(
        "zkplan_tasks",
        "Unfinished tasks of active plans by state.",
        ["state"],
        {state: counts.tasks[state] for state in _TASK_STATES},
    )


def _of_queues(counts: RootCounts) -> Iterator[Metric]:
    served = {queue for worker in counts.workers for queue in worker.queues}
    queues = {DEFAULT_QUEUE, *served, *(queue for queue, _ in counts.by_queue)}
    yield gauges(
        "zkplan_queue_tasks",
        "Tasks of active plans by queue and state.",
        ["queue", "state"],
        {
            (queue, state): counts.by_queue[queue, state]
            for queue in queues
            for state in _QUEUE_STATES
        },
    )
    yield gauges(
        "zkplan_queue_workers",
        "Living workers that serve the queue and are neither paused nor draining.",
        ["queue"],
        {
            queue: sum(
                queue in worker.queues and worker.state == "running" for worker in counts.workers
            )
            for queue in queues
        },
    )
    now = time.time()
    yield gauges(
        "zkplan_queue_oldest_runnable_age_seconds",
        "Seconds for which the oldest runnable task of the queue has stood there; 0 without one.",
        ["queue"],
        {
            queue: max(0.0, now - counts.oldest_ms[queue] / 1000)
            if queue in counts.oldest_ms
            else 0.0
            for queue in queues
        },
    )
    yield gauge(
        "zkplan_root_scrape_ages_unread",
        "Runnable tasks whose age was not read, because there are more than one scrape reads.",
        counts.ages_unread,
    )


def _of_workers(counts: RootCounts) -> Iterator[Metric]:
    states = ("running", "paused", "draining")
    yield gauges(
        "zkplan_workers",
        "Living workers by what they were told last.",
        ["state"],
        {state: sum(worker.state == state for worker in counts.workers) for state in states},
    )
    yield gauge(
        "zkplan_slots",
        "Slots of all living workers: how many tasks they run at a time.",
        sum(worker.slots for worker in counts.workers),
    )
    yield gauge(
        "zkplan_vanished_workers",
        "Workers that are gone, and whose claims nobody has taken over yet.",
        counts.left_behind,
    )


def _of_schedules(schedules: list[ScheduleTime]) -> Iterator[Metric]:
    states = ("active", "paused", "unreadable")
    yield gauges(
        "zkplan_schedules",
        "Schedules by state.",
        ["state"],
        {state: sum(each.state == state for each in schedules) for state in states},
    )
    now = time.time()
    yield gauges(
        "zkplan_schedule_lateness_seconds",
        "Seconds since the schedule was due without being fired; 0 if it is not due.",
        ["schedule"],
        {each.name: max(0.0, now - each.due) for each in schedules if each.due is not None},
    )
    yield gauges(
        "zkplan_schedule_last_fired_timestamp_seconds",
        "When the schedule made its last plan, in seconds since 1970.",
        ["schedule"],
        {each.name: each.fired for each in schedules if each.fired is not None},
    )
