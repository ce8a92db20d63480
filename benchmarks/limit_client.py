"""One client process that sends creates as fast as the server takes them, and reports the times."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
from kazoo.client import KazooClient

from zkplan.protocol.requests import Applied, Create, Delete, Multi
from zkplan.transport import Transport, open_transport

from . import raw

OPS_PER_MULTI = 50
#: Transactions under way per client, enough that neither side ever waits for the other.
WINDOW = 64
#: The same for requests of one operation, many of which a server gathers for one flush.
SINGLES_WINDOW = 500
DATA = b"0123456789abcdef"


def paths_of(parent: str, multi: int) -> list[str]:
    return [f"{parent}/{multi}-{number}" for number in range(OPS_PER_MULTI)]


class _Window:
    """Lets at most `size` requests be under way, and waits for all of them at the end."""

    def __init__(self, size: int = WINDOW) -> None:
        self._size = size
        self._free = threading.Semaphore(size)
        self.failures: list[object] = []

    def enter(self) -> None:
        self._free.acquire()

    def leave(self, failure: object = None) -> None:
        if failure is not None:
            self.failures.append(failure)
        self._free.release()

    def drain(self) -> None:
        for _ in range(self._size):
            self._free.acquire()
        if self.failures:
            raise RuntimeError(f"a measured transaction failed: {self.failures[0]!r}")
        for _ in range(self._size):
            self._free.release()


def wire_multis(transport: Transport, parent: str, count: int, op: Callable[[str], Any]) -> None:
    """Send through zkplan's transport, which packs in this thread and sends on kazoo's."""
    window = _Window()

    def done(answer: Any, error: BaseException | None) -> None:
        window.leave(None if isinstance(answer, Applied) else error or answer)

    for multi in range(count):
        window.enter()
        transport.submit(Multi([op(path) for path in paths_of(parent, multi)]), done)
    window.drain()


def kazoo_multis(client: KazooClient, parent: str, count: int) -> None:
    """Send as a user of kazoo would."""
    window = _Window()

    def done(answer: Any) -> None:
        failed = answer.exception or [item for item in answer.value if not isinstance(item, str)]
        window.leave(failed or None)

    for multi in range(count):
        window.enter()
        transaction = client.transaction()
        for path in paths_of(parent, multi):
            transaction.create(path, DATA)
        transaction.commit_async().rawlink(done)
    window.drain()


def raw_pipelined(hosts: str, packets: Sequence[raw.Packet], window: int) -> Callable[[], None]:
    """Return a function that sends the packets and reads the answers."""
    client = raw.RawClient(hosts)

    def send() -> None:
        client.send_all(packets, window)
        client.close()

    return send


def single_creates(client: KazooClient, paths: Iterable[str]) -> None:
    """Create one after the other: each waits for its answer, and so for the disk."""
    for path in paths:
        client.create(path, DATA)


def pipelined_creates(client: KazooClient, paths: Iterable[str]) -> None:
    """Send single creates without waiting, as a user of kazoo would."""
    _each(paths, lambda path: client.create_async(path, DATA))


def pipelined_gets(client: KazooClient, paths: Iterable[str]) -> None:
    _each(paths, client.get_async)


def _each(paths: Iterable[str], send: Callable[[str], Any]) -> None:
    window = _Window(SINGLES_WINDOW)
    for path in paths:
        window.enter()
        send(path).rawlink(lambda answer: window.leave(answer.exception))
    window.drain()


#: The kinds whose `--count` counts requests of one operation each.
SINGLE_KINDS = ("single", "pipelined", "raw-pipelined", "gets", "raw-gets")
KINDS = ("wire", "kazoo", "raw", *SINGLE_KINDS)


def _prepared(
    hosts: str, transport: Transport, kind: str, parent: str, multis: int
) -> Callable[[], None]:
    """The function to measure, with all the znodes and packets that it needs prepared."""
    names = [paths_of(parent, multi) for multi in range(multis)]
    paths = [path for group in names for path in group]
    if kind in ("gets", "raw-gets"):
        wire_multis(transport, parent, multis, lambda name: Create(name, DATA))
    client = transport.client
    if kind == "wire":
        return lambda: wire_multis(transport, parent, multis, lambda name: Create(name, DATA))
    if kind == "kazoo":
        return lambda: kazoo_multis(client, parent, multis)
    if kind == "raw":
        packets = [raw.multi([Create(path, DATA) for path in group]) for group in names]
        return raw_pipelined(hosts, packets, WINDOW)
    if kind == "raw-pipelined":
        packets = [raw.create(path, DATA) for path in paths]
        return raw_pipelined(hosts, packets, SINGLES_WINDOW)
    if kind == "raw-gets":
        return raw_pipelined(hosts, [raw.get(path) for path in paths], SINGLES_WINDOW)
    work = {"single": single_creates, "pipelined": pipelined_creates, "gets": pipelined_gets}[kind]
    return lambda: work(client, paths)


@click.command()
@click.option("--hosts", required=True)
@click.option("--kind", type=click.Choice(KINDS), required=True)
@click.option("--path", required=True)
@click.option("--count", type=int, required=True, help="Transactions, or single requests.")
def main(hosts: str, kind: str, path: str, count: int) -> None:
    """Print `ready`, wait for a line of input, send, and print the times as JSON."""
    transport = open_transport(hosts, session_timeout_s=20.0)
    transport.client.create(path)
    multis = -(-count // OPS_PER_MULTI) if kind in SINGLE_KINDS else count
    measured = _prepared(hosts, transport, kind, path, multis)
    click.echo("ready")
    if not sys.stdin.readline():
        return
    began = time.monotonic()
    measured()
    ended = time.monotonic()
    operations = multis * OPS_PER_MULTI
    click.echo(json.dumps({"operations": operations, "began": began, "ended": ended}))
    # The starter waits for the deletes too, so that the next measurement finds an idle server.
    wire_multis(transport, path, multis, Delete)
    transport.client.delete(path)
    transport.close()


if __name__ == "__main__":
    main()
