"""The metrics of an embedded server: what it holds, how near its limits that is, how fast it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from .families import counters, gauge
from .prometheus import Metric, SummaryMetricFamily


class _Statistics(Protocol):
    """See zkplan.embedded.statistics.ServerStatistics."""

    @property
    def received(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def answers(self) -> int: ...
    @property
    def answer_s(self) -> float: ...
    @property
    def slowest_s(self) -> float: ...


#: By the end of the name: the field, and the help text.
_GAUGES = {
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


class ServerCollector(NamedTuple):
    """Collects the metrics of a server, and answers /healthz and /readyz; for a registry.

    `statistics` are those of an EmbeddedServer; it returns None if the loop does not turn.
    """

    statistics: Callable[[], _Statistics | None]

    def collect(self) -> Iterator[Metric]:
        """The families, as prometheus_client asks for them."""
        found = self.statistics()
        answers = found is not None
        yield gauge("zkplan_server_up", "Whether the loop of the server turns: 1 or 0.", answers)
        if found is None:
            return
        for label, (field, text) in _GAUGES.items():
            yield gauge(f"zkplan_server_{label}", text, getattr(found, field))
        for label, value, text in (
            ("received_packets", found.received, "Requests that came, also pings."),
            ("sent_packets", found.sent, "Answers and events that were sent."),
        ):
            yield counters(f"zkplan_server_{label}", text, [], {(): value})
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

    def describe(self) -> list[Metric]:
        """None: so a registry asks for nothing until the first scrape."""
        return []

    def wrong(self) -> str:
        """What is wrong with the server; empty if its loop turns and it serves."""
        return "" if self.statistics() is not None else "the loop of the server does not turn"
