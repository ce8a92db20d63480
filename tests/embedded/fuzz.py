"""A server under damaged requests: it must stay up, answer in order, and hinder nobody.

Valid requests of every kind are damaged: bits flipped, parts cut out, lengths changed, two of them
spliced, frames repeated, handshakes replaced by garbage, connections cut at any byte. Meanwhile a
canary writes and reads on a connection of its own: each of its answers must be right and soon.
Where the frames of a connection are still frames, every one has to be answered in its turn, or the
connection has to be closed. At the end the server is restarted on what it has stored.

    python -m tests.embedded.fuzz --requests 1000000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import resource
import selectors
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.tools import requests as ask
from tests.tools.session import Client

from .corpus import Burst, Corpus
from .servers import ServerProcess

# One answer of the server, to the canary or at the end of a connection, however busy it is.
HANG_S_MAX = 5.0
MEMORY_MIB_MAX = 400.0
CONNECTIONS = 24
SERVER: dict[str, Any] = {
    "limits": {"znodes": 20_000, "tree_bytes": 50 << 20, "unread_bytes": 8 << 20},
    "max_session_timeout_ms": 60_000,
    "sweep_s": 0.5,
}


class Report(NamedTuple):
    """What a run has shown; `faults` is empty where all was well."""

    requests: int
    connections: int
    answers: int
    seconds: float
    canary_rounds: int
    canary_slowest_s: float
    memory_mib: float
    faults: list[str]

    def __str__(self) -> str:
        rate, memory = self.requests / self.seconds, self.memory_mib
        return (
            f"{self.requests} requests on {self.connections} connections in {self.seconds:.1f} s"
            f" ({rate:.0f}/s), {self.answers} answers; canary: {self.canary_rounds} rounds, slowest"
            f" answer {self.canary_slowest_s:.2f} s; server memory at most {memory:.0f} MiB;"
            f" faults: {self.faults or 'none'}"
        )


class Canary:
    """A client with its own session that checks each of its answers, in a thread."""

    def __init__(self, hosts: str) -> None:
        self.rounds = 0
        self.slowest_s = 0.0
        self.fault = ""
        self._client = Client(hosts, timeout_ms=60_000)
        self._client.socket.settimeout(HANG_S_MAX)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canary")

    def start(self) -> None:
        # Its list keeps others out; its node is made before the tree is full.
        self._client.authenticate("digest", b"canary:sings")
        mine = ((31, "auth", ""),)
        self._client.done(ask.create("/canary", b"%016d" % 0, entries=mine))
        self._client.done(ask.create("/canary/alive", flags=ask.EPHEMERAL, entries=mine))
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._over.wait(0.02):
                self._sing()
        except Exception as error:
            self.fault = f"the canary: {error!r} after {self.rounds} rounds"

    def _sing(self) -> None:
        began = time.monotonic()
        song = b"%016d" % (self.rounds + 1)
        write, read = self._client.send(
            ask.multi(ask.check("/canary", self.rounds), ask.set_data("/canary", song)),
            ask.get_data("/canary"),
        )
        self._client.reply(write)
        data = self._client.reply(read).fields["data"]
        assert data == song, f"{data!r} instead of {song!r}"
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self.rounds += 1


class Attack:
    """One connection: sends its burst, reads what comes, and judges it at the end."""

    def __init__(self, address: tuple[str, int], burst: Burst) -> None:
        self.burst = burst
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(address)
        self.unsent = memoryview(burst.data)
        self.received: list[bytes] = []
        self.last_move = time.monotonic()

    def fileno(self) -> int:
        return self.socket.fileno()

    def move(self, events: int) -> bool:
        """Send and receive what is possible; whether it is over."""
        self.last_move = time.monotonic()
        try:
            if events & selectors.EVENT_READ:
                data = self.socket.recv(1 << 18)
                if not data:
                    return True
                if self.burst.xids is not None:
                    self.received.append(data)
            if self.unsent and events & selectors.EVENT_WRITE:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
        except BlockingIOError:
            return False
        except OSError:
            return True  # closed by the server, with something unread
        # A burst that is judged ends with the end of its session; others just stop.
        return not self.unsent and self.burst.xids is None

    def judge(self) -> tuple[int, str]:
        """How many answers came, and what is wrong with them."""
        self.socket.close()
        if self.burst.xids is None:
            return 0, ""
        got = answered_xids(b"".join(self.received))
        if got != self.burst.xids[: len(got)]:
            first = next(
                at
                for at, pair in enumerate(zip(got, self.burst.xids, strict=False))
                if pair[0] != pair[1]
            )
            return len(got), f"answer {first} is to {got[first]}, not to {self.burst.xids[first]}"
        return len(got), ""


def answered_xids(stream: bytes) -> list[int]:
    """The xids of the answers in all that a server sent, without the handshake and the events."""
    xids = []
    at, is_first = 0, True
    while at + 4 <= len(stream):
        (size,) = struct.unpack_from(">i", stream, at)
        at += 4
        if at + size > len(stream):
            break  # cut off in the middle of a frame
        if not is_first:
            xid, zxid = struct.unpack_from(">iq", stream, at)
            if (xid, zxid) != (-1, -1):
                xids.append(xid)
        is_first = False
        at += size
    return xids


def attack(hosts: str, corpus: Corpus, wanted: int, server: ServerProcess) -> Report:
    """Send so many requests over a few connections at a time."""
    host, _, port = hosts.rpartition(":")
    selector = selectors.DefaultSelector()
    open_now: set[Attack] = set()
    sent = connections = answers = 0
    memory = 0.0
    faults: list[str] = []
    began = time.monotonic()
    while sent < wanted or open_now:
        while sent < wanted and len(open_now) < CONNECTIONS:
            one = Attack((host, int(port)), corpus.burst())
            open_now.add(one)
            selector.register(one, selectors.EVENT_READ | selectors.EVENT_WRITE, one)
            sent += one.burst.requests
            connections += 1
            if connections % 50 == 0 and server.is_running():
                memory = max(memory, server.memory_mib())
        over = []
        for key, events in selector.select(0.2):
            one = key.data
            if one.move(events):
                over.append(one)
            elif not one.unsent:
                selector.modify(one, selectors.EVENT_READ, one)
        now = time.monotonic()
        hung = [each for each in open_now if now - each.last_move > HANG_S_MAX]
        judged = [each for each in hung if each.burst.xids is not None]
        faults += [f"no answer, and not closed: {each.burst}" for each in judged]
        for one in {*over, *hung}:
            selector.unregister(one)
            open_now.discard(one)
            count, fault = one.judge()
            answers += count
            if fault:
                faults.append(fault)
        if not server.is_running() or len(faults) > 10:
            faults.append("given up")
            break
    for one in open_now:
        one.socket.close()
    selector.close()
    seconds = time.monotonic() - began
    return Report(sent, connections, answers, seconds, 0, 0.0, memory, faults)


def run(requests: int, seed: int) -> Report:
    """A whole run: server, canary, attack, and the restart on what was stored."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with ServerProcess(data, **SERVER) as server:
            canary = Canary(server.hosts)
            canary.start()
            report = attack(server.hosts, Corpus(random.Random(seed)), requests, server)
            canary.stop()
            faults = report.faults
            if canary.fault:
                faults.append(canary.fault)
            memory = report.memory_mib
            if server.is_running():
                memory = max(memory, server.memory_mib())
            else:
                faults.append("the server ended")
            if memory > MEMORY_MIB_MAX:
                faults.append(f"the server has taken {memory:.0f} MiB")
        if said := server.errors():
            faults.append(f"the server said: {said[-3000:]}")
        with ServerProcess(data, **SERVER) as again, Client(again.hosts) as client:
            client.authenticate("digest", b"canary:sings")
            stored = client.once(ask.get_data("/canary")).fields["data"]
            if stored != b"%016d" % canary.rounds:
                faults.append(f"after the restart the canary's node holds {stored!r}")
    return report._replace(
        canary_rounds=canary.rounds, canary_slowest_s=canary.slowest_s, memory_mib=memory
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Send damaged requests to an embedded server.")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    report = run(wanted.requests, wanted.seed)
    own = resource.getrusage(resource.RUSAGE_SELF)
    sys.stdout.write(f"{report}\n(this client: {own.ru_utime + own.ru_stime:.0f} s of CPU)\n")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
