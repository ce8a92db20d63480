"""The limits of the server itself: creates per second from one and from two client processes.

Read the rest of the report beside these figures, because no client of this server on this machine
can do more.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from .client_process import ClientProcess
from .limit_client import OPS_PER_MULTI
from .suite import Bench

MULTIS, MULTIS_QUICK = 1000, 40
SINGLES, SINGLES_QUICK = 1000, 50


@dataclass(frozen=True)
class Limit:
    """Operations per second of all client processes together, each with a connection of its own."""

    server: str
    kind: str
    what: str
    clients: int
    operations_per_s: float


KINDS = {
    "wire": f"multis of {OPS_PER_MULTI} creates, pipelined, packed by zkplan",
    "kazoo": f"multis of {OPS_PER_MULTI} creates, pipelined, kazoo's transactions",
    "raw": f"multis of {OPS_PER_MULTI} creates, pipelined, packed before, raw socket",
    "single": "single creates, one after the other",
}


def measure_limits(bench: Bench) -> list[Limit]:
    """The medians of each kind; a first turn warms the server up and does not count."""
    pairs = [(kind, clients) for kind in KINDS for clients in (1, 2)]
    found: dict[tuple[str, int], list[float]] = {pair: [] for pair in pairs}
    with bench.client() as client:
        for turn in range(1 + bench.runs):
            for kind, clients in pairs if turn else [("wire", 2), ("single", 1)]:
                path = f"{client.root}-limit"
                rate = measure_rate(bench.hosts, path, kind, _count(bench, kind), clients)
                if turn:
                    found[kind, clients].append(rate)
    limits = [
        Limit(bench.server, kind, KINDS[kind], clients, median(rates))
        for (kind, clients), rates in found.items()
    ]
    for limit in limits:
        bench.tell(
            f"{bench.server}: limit: {limit.what}, {limit.clients} process(es): "
            f"{limit.operations_per_s:,.0f} operations/s"
        )
    return limits


def _count(bench: Bench, kind: str) -> int:
    full, quick = (SINGLES, SINGLES_QUICK) if kind == "single" else (MULTIS, MULTIS_QUICK)
    return bench.size(full, quick)


def measure_rate(hosts: str, path: str, kind: str, count: int, clients: int = 1) -> float:
    """Operations per second of `count` requests of each client, under paths that begin with `path`.

    All clients are connected and prepared before the first one begins.
    """
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                ClientProcess(
                    *("limit_client", "--hosts", hosts, "--kind", kind),
                    *("--path", f"{path}-{number}", "--count", str(count)),
                )
            )
            for number in range(clients)
        ]
        for process in processes:
            process.wait_ready()
        for process in processes:
            process.begin()
        answers = [process.result() for process in processes]
    operations: int = sum(answer["operations"] for answer in answers)
    ended: float = max(answer["ended"] for answer in answers)
    began: float = min(answer["began"] for answer in answers)
    return operations / (ended - began)
