"""Collect the metrics of a root for Prometheus; the other collectors are re-exported here.

    prometheus_client.REGISTRY.register(WorkerCollector(worker))

The commands serve the same: `zkplan worker --metrics`, `zkplan server --metrics`, `zkplan metrics`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..basics.log import get_logger
from ..errors import ZkplanError, ZooKeeperUnavailable
from ..protocol.layout import DEFAULT_QUEUE
from ..protocol.requests import Step
from ..values.connection import Connection
from .prometheus_counts import RootCounts, ScheduleTime, Tally, count_root, read_schedules
from .prometheus_endpoint import (
    CollectorRegistry,
    Endpoint,
    Labelled,
    Metric,
    gauge,
    gauges,
    generate_latest,
)
from .prometheus_process import WITHIN_S, WorkerCollector, latency_s

__all__ = ["Endpoint", "RootCollector", "WorkerCollector"]

_SILENT = f"ZooKeeper does not answer within {WITHIN_S:g} s"
_PLAN_STATES = ("running", "paused", "defining", "done", "failed", "cancelled", "unread")
_TASK_STATES = ("waiting", "gated", "runnable", "delayed", "running", "dead")
_QUEUE_STATES = ("gated", "runnable", "delayed", "running")


class RootCollector:
    """Collects the metrics of the roots of these clients, for a registry of prometheus_client.

    Each scrape reads the trees anew, in batches, and each sample has the label `root`. A scrape is
    answered within SCRAPE_S seconds: where a count takes longer, or fails, from what was counted
    last. `zkplan_root_up` is 0 if the last count failed, for ZooKeeper does not answer, or an
    access list does not let the client read all; `zkplan_root_count_age_seconds` says how old the
    counts are. Thread-safe. It remembers which plans have ended, so keep it between scrapes.
    """

    def __init__(self, *clients: Connection) -> None:
        self._roots = [_Root(client) for client in clients]

    def collect(self) -> Iterator[Metric]:
        """The families, as prometheus_client asks for them. Never raises ZkplanError."""
        for root in self._roots:
            root.last.start()
        until = time.monotonic() + SCRAPE_S
        merged: dict[str, Metric] = {}
        for root in self._roots:
            _merge(merged, root.name, root.collected(until))
        yield from merged.values()

    def describe(self) -> list[Metric]:
        """None: so a registry asks for nothing until the first scrape."""
        return []

    def text(self) -> str:
        """One count in the text format of Prometheus. Raises ZkplanError, such as AccessDenied."""
        merged: dict[str, Metric] = {}
        for root in self._roots:
            _merge(merged, root.name, [_up(1), *root.count(root.latency())])
        registry = CollectorRegistry()
        registry.register(_Counted(list(merged.values())))
        return generate_latest(registry).decode()

    def wrong(self) -> str:
        """Why a root cannot be read; empty if ZooKeeper answers."""
        found = ((root.name, root.wrong()) for root in self._roots)
        told = [(name, why) for name, why in found if why]
        if len(self._roots) == 1:
            return "".join(why for _, why in told)
        return "; ".join(f"{name}: {why}" for name, why in told)


class _Root:
    """One root, and what was counted of it last."""

    def __init__(self, client: Connection) -> None:
        self._client, self.name = client, client.root
        self._ended: dict[str, str] = {}
        self.last = LastCount(client.root, self._answered)

    def collected(self, until: float) -> list[Metric]:
        found = self.last.get(until)
        families = [_up(found.is_up), *found.families]
        if found.age_s is not None:
            text = "Seconds since the counts of this scrape were begun."
            families.append(gauge("zkplan_root_count_age_seconds", text, found.age_s))
        return families

    def latency(self) -> float | None:
        return latency_s(self._client.transport, self.name)

    def wrong(self) -> str:
        return _SILENT if self.latency() is None else self.last.told

    def _answered(self) -> list[Metric]:
        latency = self.latency()
        if latency is None:  # else this waits for as long as a command may
            raise ZooKeeperUnavailable(_SILENT)
        return self.count(latency)

    def count(self, latency: float | None) -> list[Metric]:
        """The families of one count. Raises ZkplanError."""
        started, tally = time.monotonic(), Tally()
        counts, schedules = self._client.transport.run(tally.of(self._read()))
        return [
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


def _up(is_up: bool | int) -> Metric:
    return gauge("zkplan_root_up", "Whether the root could be read: 1 or 0.", float(is_up))


def _merge(merged: dict[str, Metric], root: str, families: list[Metric]) -> None:
    """Add the samples of one root: a family is named once, whatever has samples of it."""
    for family in families:
        found = merged.get(family.name)
        if found is None:
            found = merged[family.name] = Metric(family.name, family.documentation, family.type)
        found.samples += [
            each._replace(labels={"root": root, **each.labels}) for each in family.samples
        ]


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
    yield gauges(
        "zkplan_queue_oldest_runnable_age_seconds",
        "Seconds for which the oldest runnable task of the queue has stood there; 0 without one.",
        ["queue"],
        _ages(queues, counts.oldest_ms),
    )
    yield gauges(
        "zkplan_queue_oldest_running_age_seconds",
        "Seconds since the oldest claim of the queue was made that stands; 0 without one.",
        ["queue"],
        _ages(queues, counts.running_ms),
    )
    yield gauge(
        "zkplan_root_scrape_ages_unread",
        "Tasks whose age was not read, because there are more than one scrape reads.",
        counts.ages_unread,
    )


def _ages(queues: set[str], since_ms: dict[str, int]) -> Labelled:
    now = time.time()
    return {queue: max(0.0, now - since_ms.get(queue, 1000 * now) / 1000) for queue in queues}


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
        "zkplan_budget_used_ratio",
        "The share of the root's budget that was used when it was counted last; 0 without one.",
        counts.budget,
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


# ---- What was counted of a root last, on a thread of its own: a scrape is answered within a
# deadline.
#
# A slow ZooKeeper makes a count take longer than Prometheus waits. Then all metrics of the root
# would be missing just when they are needed.


logger = get_logger("zkplan.metrics")

#: Scrapes that follow so soon get what the one before has found.
FRESH_S = 1.0
#: Seconds for which a scrape waits for a count. Prometheus gives up after 10 s by default.
SCRAPE_S = 4.0


class Found(NamedTuple):
    """What a count has found, and its age in seconds; none before the first has ended."""

    families: list[Metric]
    age_s: float | None
    is_up: bool


class LastCount:
    """Counts when somebody asks, one count at a time. `count` raises ZkplanError. Thread-safe."""

    def __init__(self, name: str, count: Callable[[], list[Metric]]) -> None:
        self._name, self._count = name, count
        self._lock = threading.Lock()
        self._families: list[Metric] = []
        self._at: float | None = None
        self._ended = float("-inf")
        #: Set while no count is under way.
        self._idle = threading.Event()
        self._idle.set()
        #: Why the last count has failed.
        self.told = ""

    def start(self) -> None:
        """Begin a count, unless the last one has just ended or one is under way."""
        with self._lock:
            if not self._idle.is_set() or time.monotonic() - self._ended < FRESH_S:
                return
            self._idle.clear()
        threading.Thread(target=self._run, name="zkplan-count", daemon=True).start()

    def get(self, until: float) -> Found:
        """What was found, by the count under way if that ends before `until`, a monotonic time."""
        self._idle.wait(max(0.0, until - time.monotonic()))
        with self._lock:
            age = None if self._at is None else time.monotonic() - self._at
            return Found(self._families, age, not self.told)

    def _run(self) -> None:
        found, told, started = list[Metric](), "", time.monotonic()
        try:
            found = self._count()
        except ZkplanError as error:
            told = str(error)
            if told != self.told:  # once, not with every scrape
                logger.warning("the metrics of %s cannot be read: %s", self._name, error)
        except BaseException as error:
            told = f"a count failed: {error!r}"
            raise
        finally:
            with self._lock:
                if not told:
                    self._families, self._at = found, started
                self.told, self._ended = told, time.monotonic()
                self._idle.set()
