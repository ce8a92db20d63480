"""Collect the metrics and the health of one process: a worker, or an embedded server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..basics import __version__
from ..errors import ZkplanError
from ..protocol.requests import ReadData
from ..transport import Transport
from ..worker import Worker
from .prometheus_endpoint import (
    Collector,
    Histogram,
    Metric,
    SummaryMetricFamily,
    counters,
    gauge,
    gauges,
)

#: The most seconds that a scrape waits. Prometheus gives up after 10 s by default.
WITHIN_S = 2.0


def latency_s(transport: Transport, path: str, within_s: float = WITHIN_S) -> float | None:
    """Seconds until the answer to a read of `path`; None without an answer in time.

    This includes the time of the client itself, and of its requests that wait before this one.
    """
    answered = threading.Event()
    times: list[float] = []

    def done(answer: Any, error: BaseException | None) -> None:
        # A refusal by an access list also is an answer.
        times.append(time.monotonic())
        answered.set()

    started = time.monotonic()
    try:
        call = transport.submit(ReadData(path), done)
    except ZkplanError:
        return None  # closed, or given up
    if not answered.wait(within_s):
        call.abandoned = True
        return None
    return times[0] - started


#: Seconds. Tasks take from less than a millisecond to hours.
_BUCKETS = (0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 7200)
#: Seconds within which the loop has to turn.
TURN_S = 5.0
#: Field of Statistics -> the name of the counter, and its help text.
_COUNTERS = {
    "executed": ("attempts", "Attempts that ran to their end here."),
    "failed": ("failed_attempts", "Attempts that ended with a failure or a time-out."),
    "written_off": ("written_off_attempts", "Attempts that did not return in time."),
    "committed": ("committed_claims", "Claims that ended with a committed result."),
    "fenced": ("fenced_claims", "Claims that were lost before they could end."),
    "handed_back": ("handed_back_claims", "Claims handed back without using up an attempt."),
    "released": ("taken_over_claims", "Claims taken over from vanished workers."),
    "conflicts": ("claim_conflicts", "Claims that another worker made first."),
    "refusals": (
        "refused_transactions",
        "Commits and publications that were refused and sent again in another form.",
    ),
    "left_to_others": (
        "undecodable_claims",
        "Claims handed back because this worker cannot decode their tasks.",
    ),
    "looks": ("looks", "Listings of the runnable tasks of a plan."),
    "steps": ("steps", "Steps of the protocol."),
}


class WorkerCollector(Collector):
    """Collects the metrics of a worker, for a registry of prometheus_client.

    Each sample has the label `worker`, the ID of the worker's first registration. Make the
    collector before the worker runs, so that all attempts are measured. Thread-safe.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._durations = Histogram(
            "zkplan_worker_attempt_duration_seconds",
            "Seconds that attempts took, with the decoding of their arguments.",
            ["worker"],
            buckets=_BUCKETS,
            registry=None,
        )
        worker._loop.observe = self._durations.labels(worker.id).observe

    def collect(self) -> Iterator[Metric]:
        """The families, as prometheus_client asks for them."""
        worker = self._worker
        vitals, name = worker._loop.vitals(), worker.id
        yield gauges(
            "zkplan_worker_info",
            "What this worker is; always 1.",
            ["worker", "host", "version", "queues"],
            {(name, socket.gethostname(), __version__, ",".join(worker.queues)): 1},
        )
        for label, (what, text) in _WORKER_GAUGES.items():
            yield gauges(
                f"zkplan_worker_{label}", text, ["worker"], {name: float(getattr(vitals, what))}
            )
        latency = latency_s(worker.client.transport, worker.client.paths.workers)
        yield gauges(
            "zkplan_worker_zookeeper_latency_seconds",
            "Seconds that ZooKeeper took to answer one small read of this worker.",
            ["worker"],
            {} if latency is None else {name: latency},
        )
        yield counters(
            "zkplan_worker_failed_removals",
            "Failed attempts to archive or remove a plan whose retention is over.",
            ["worker"],
            {name: vitals.unremoved},
        )
        for field, (what, text) in _COUNTERS.items():
            value = getattr(vitals.statistics, field)
            yield counters(f"zkplan_worker_{what}", text, ["worker"], {name: value})
        yield from self._durations.collect()


#: End of the metric's name -> the field of Vitals, and the help text.
_WORKER_GAUGES = {
    "registered": ("is_registered", "Whether the worker is registered: 1 or 0."),
    "session_answers": ("answers", "Whether ZooKeeper answers the worker: 1 or 0."),
    "paused": ("is_paused", "Whether an operator has paused the worker: 1 or 0."),
    "store_away": ("lacks_store", "Whether tasks wait because the store cannot be used: 1 or 0."),
    "slots": ("slots", "Tasks that the worker can run at a time now."),
    "busy_slots": ("busy", "Tasks that run now."),
    "waiting_tasks": ("waiting", "Claimed tasks that wait for a slot."),
    "held_claims": ("claims", "Claims of the worker, also those that wait for their commit."),
    "abandoned_threads": (
        "abandoned",
        "Threads held by functions that timed out or were cancelled and have not returned.",
    ),
}


class Health(NamedTuple):
    """The answers to /healthz and /readyz: what is wrong, or empty."""

    worker: Worker

    def alive(self) -> str:
        """What is wrong with the loop; empty if it turns."""
        if self.worker._loop.turns(TURN_S):
            return ""
        return f"the loop of the worker has not turned for {TURN_S:g} s"

    def ready(self) -> str:
        """Why the worker cannot take tasks; empty if it can."""
        vitals = self.worker._loop.vitals()
        if not vitals.is_registered:
            return "the worker is not registered"
        if not vitals.answers:
            return "ZooKeeper does not answer the worker"
        return "the store cannot be used, and tasks wait for it" if vitals.lacks_store else ""


#: End of the metric's name -> the field of ServerStatistics, and the help text.
_SERVER_GAUGES = {
    "znodes": ("znodes", "Znodes in the tree."),
    "znodes_limit": ("znodes_max", "Znodes beyond which the server refuses more."),
    "tree_bytes": ("tree_bytes", "Bytes of data, paths and access lists in the tree."),
    "tree_limit_bytes": ("tree_bytes_max", "Bytes beyond which the server refuses more."),
    "connections": ("connections", "Open connections."),
    "connections_limit": ("connections_max", "Connections beyond which it closes new ones."),
    "sessions": ("sessions", "Sessions that have not ended."),
    "ephemerals": ("ephemerals", "Znodes that end with a session."),
    "watches": ("watches", "Watches of all connections."),
}


class ServerCollector(Collector):
    """Collects the metrics of a server, and answers /healthz and /readyz; for a registry.

    `statistics` returns the ServerStatistics of zkplan.embedded, or None if the loop of the
    server does not turn.
    """

    def __init__(self, statistics: Callable[[], Any]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """The families, as prometheus_client asks for them."""
        found = self._statistics()
        answers = found is not None
        yield gauge("zkplan_server_up", "Whether the loop of the server turns: 1 or 0.", answers)
        if found is None:
            return
        for label, (field, text) in _SERVER_GAUGES.items():
            yield gauge(f"zkplan_server_{label}", text, getattr(found, field))
        text = "Received requests, also pings."
        yield counters("zkplan_server_received_packets", text, [], {(): found.received})
        text = "Sent answers and events."
        yield counters("zkplan_server_sent_packets", text, [], {(): found.sent})
        yield SummaryMetricFamily(
            "zkplan_server_answer_duration_seconds",
            "Seconds from the first request of a group until its answers were sent.",
            count_value=found.answers,
            sum_value=found.answer_s,
        )
        yield gauge(
            "zkplan_server_slowest_answer_seconds",
            "Seconds that the slowest answer since the start took.",
            found.slowest_s,
        )

    def wrong(self) -> str:
        """What is wrong with the server; empty if its loop turns and it serves."""
        return "" if self._statistics() is not None else "the loop of the server does not turn"
