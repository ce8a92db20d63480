"""What the server itself takes: creates per second from one and from two client processes.

The rest of the report is to be read beside these figures: no client of this server on this machine
can do more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

import zkplan

from .limit_client import OPS_PER_MULTI
from .suite import Bench

MULTIS, MULTIS_QUICK = 1000, 40
SINGLES, SINGLES_QUICK = 1000, 50
_ANSWER_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Limit:
    """Operations per second of all client processes together, each with a connection of its own."""

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
                rate = _measure(bench, client, kind, clients)
                if turn:
                    found[kind, clients].append(rate)
    limits = [
        Limit(kind, KINDS[kind], clients, median(rates)) for (kind, clients), rates in found.items()
    ]
    for limit in limits:
        bench.tell(
            f"limit: {limit.what}, {limit.clients} process(es): "
            f"{limit.operations_per_s:,.0f} operations/s"
        )
    return limits


def _measure(bench: Bench, client: zkplan.Client, kind: str, clients: int) -> float:
    """All clients are connected before the first is told to begin."""
    count = (
        bench.size(SINGLES, SINGLES_QUICK) if kind == "single" else bench.size(MULTIS, MULTIS_QUICK)
    )
    with ExitStack() as stack:
        processes = [
            stack.enter_context(_Child(bench.hosts, kind, f"{client.root}-limit-{number}", count))
            for number in range(clients)
        ]
        for process in processes:
            process.answer()
        for process in processes:
            process.begin()
        answers = [json.loads(process.answer()) for process in processes]
    operations: int = sum(answer["operations"] for answer in answers)
    ended: float = max(answer["ended"] for answer in answers)
    began: float = min(answer["began"] for answer in answers)
    return operations / (ended - began)


class _Child:
    """A client process; it ends by itself when this process does, for then its input ends."""

    def __init__(self, hosts: str, kind: str, path: str, count: int) -> None:
        command: Sequence[str] = [
            *(sys.executable, "-m", "benchmarks.limit_client", "--hosts", hosts),
            *("--kind", kind, "--path", path, "--count", str(count)),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(_ANSWER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a client that measures the server ended; its error is above")
        return line
