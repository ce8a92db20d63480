"""One client process that sends creates as fast as the server takes them, and tells when it did."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import click
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE

from zkplan import wire
from zkplan.keeper import Keeper, open_keeper
from zkplan.requests import Applied, Create, Delete, Multi

OPS_PER_MULTI = 50
#: Transactions under way per client: enough that neither side ever waits for the other.
WINDOW = 64
DATA = b"0123456789abcdef"


def paths_of(parent: str, multi: int) -> list[str]:
    return [f"{parent}/{multi}-{number}" for number in range(OPS_PER_MULTI)]


class _Window:
    """Lets at most WINDOW transactions be under way, and waits for all of them at the end."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(WINDOW)
        self.failures: list[object] = []

    def enter(self) -> None:
        self._free.acquire()

    def leave(self, failure: object = None) -> None:
        if failure is not None:
            self.failures.append(failure)
        self._free.release()

    def drain(self) -> None:
        for _ in range(WINDOW):
            self._free.acquire()
        if self.failures:
            raise RuntimeError(f"a measured transaction failed: {self.failures[0]!r}")
        for _ in range(WINDOW):
            self._free.release()


def wire_multis(keeper: Keeper, parent: str, count: int, op: Callable[[str], Any]) -> None:
    """Through zkplan's own door: packed in this thread, sent and answered on kazoo's."""
    window = _Window()

    def done(answer: Any, error: BaseException | None) -> None:
        window.leave(None if isinstance(answer, Applied) else error or answer)

    for multi in range(count):
        window.enter()
        keeper.submit(Multi([op(path) for path in paths_of(parent, multi)]), done)
    window.drain()


def kazoo_multis(client: KazooClient, parent: str, count: int) -> None:
    """As a user of kazoo would write it."""
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


def raw_multis(hosts: str, parent: str, count: int) -> Callable[[], None]:
    """Everything is packed before: gives what sends it and reads the answers."""
    host, _, port = hosts.partition(",")[0].rpartition(":")
    connection = socket.create_connection((host, int(port)), 30.0)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(_framed(struct.pack("!iqiqi16s?", 0, 0, 20_000, 0, 16, b"", False)))
    answers = connection.makefile("rb", buffering=1 << 16)
    _read_frame(answers)
    acl = wire.pack_acl(OPEN_ACL_UNSAFE)
    packets = []
    for multi in range(count):
        ops = [Create(path, DATA) for path in paths_of(parent, multi)]
        packet = wire.MultiPacket(ops, "", acl)
        packets.append(_framed(struct.pack("!ii", multi + 1, packet.type) + packet.serialize()))

    def send() -> None:
        window = _Window()

        def read() -> None:
            for multi in range(count):
                xid, _zxid, error, first = struct.unpack_from("!iqii", _read_frame(answers))
                wrong = xid != multi + 1 or error or first == -1
                window.leave((xid, error) if wrong else None)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        for packet in packets:
            window.enter()
            connection.sendall(packet)
        window.drain()
        reader.join()
        connection.close()

    return send


def _framed(body: bytes) -> bytes:
    return struct.pack("!i", len(body)) + body


def _read_frame(answers: Any) -> bytes:
    size = struct.unpack("!i", answers.read(4))[0]
    return answers.read(size)  # type: ignore[no-any-return]


def single_creates(client: KazooClient, parent: str, count: int) -> None:
    for number in range(count):
        client.create(f"{parent}/{number}", DATA)


@click.command()
@click.option("--hosts", required=True)
@click.option("--kind", type=click.Choice(["wire", "kazoo", "raw", "single"]), required=True)
@click.option("--path", required=True)
@click.option("--count", type=int, required=True)
def main(hosts: str, kind: str, path: str, count: int) -> None:
    """Say `ready`, wait for a line of input, send, and tell as JSON when it began and ended."""
    keeper = open_keeper(hosts, session_timeout_s=20.0)
    keeper.client.create(path)
    operations = count if kind == "single" else count * OPS_PER_MULTI
    work: dict[str, Callable[[], None]] = {
        "wire": lambda: wire_multis(keeper, path, count, lambda name: Create(name, DATA)),
        "kazoo": lambda: kazoo_multis(keeper.client, path, count),
        "single": lambda: single_creates(keeper.client, path, count),
    }
    measured = raw_multis(hosts, path, count) if kind == "raw" else work[kind]
    click.echo("ready")
    if not sys.stdin.readline():
        return
    began = time.monotonic()
    measured()
    ended = time.monotonic()
    click.echo(json.dumps({"operations": operations, "began": began, "ended": ended}))
    # The starter waits for this, too: the next measurement finds an idle server.
    if kind == "single":
        for number in range(count):
            keeper.client.delete_async(f"{path}/{number}")
    else:
        wire_multis(keeper, path, count, Delete)
    keeper.client.delete(path)
    keeper.close()


if __name__ == "__main__":
    main()
