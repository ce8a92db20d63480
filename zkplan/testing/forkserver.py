"""Fork workers that die at a chosen moment, one at a time, on order.

The process has no threads and has imported zkplan, so that a worker starts in milliseconds. Orders
come as lines of JSON over a socket that it inherits: {"hosts", "root", "secret", "number", "after",
"will"} starts a worker. For each it answers twice: its process id, four bytes, and one byte when it
has ended. Until the next order the id stays that of the dead worker: it may be killed at any time.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from kazoo.client import KazooClient

from zkplan.client import Client
from zkplan.processes.watched import wait_unreaped
from zkplan.protection.keys import parse_keys
from zkplan.protocol.requests import Check, Multi, Op, Request
from zkplan.transport import Transport
from zkplan.transport.calls import Call, Done
from zkplan.worker import Worker

#: Long, because the test ends sessions, not the clock.
SESSION_TIMEOUT_S = 30.0
_ANSWERS_S = 10.0
_OPS_SHOWN = 3


class DyingTransport(Transport):
    """Ends its process at one transaction: before it is sent, or after its answer has come.

    What it submits it writes to the file `will`, one line of JSON each. A `number` of 0 never dies.
    """

    def __init__(self, client: KazooClient, root: str, number: int, after: bool, will: str) -> None:
        super().__init__(client, owns=True)
        self._root, self._number, self._after = root, number, after
        self._will = os.open(will, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._numbers = itertools.count(1)
        self._unanswered = 0
        self._answers = threading.Condition()

    def submit(self, request: Request, done: Done) -> Call:
        """See Transport: transactions are counted, in the order in which they are submitted."""
        if type(request) is not Multi:
            return super().submit(request, done)
        number = next(self._numbers)
        self.write(what=describe(request.ops, self._root))
        if number == self._number and not self._after:
            # Transactions that were sent before must be applied, or the same step would differ in
            # another run.
            with self._answers:
                self._answers.wait_for(lambda: self._unanswered == 0, _ANSWERS_S)
            die()

        def answered(answer: Any, error: BaseException | None) -> None:
            if number == self._number:
                die()
            with self._answers:
                self._unanswered -= 1
                self._answers.notify_all()
            done(answer, error)

        with self._answers:
            self._unanswered += 1
        return super().submit(request, answered)

    def write(self, **facts: object) -> None:
        """Add a line to the will."""
        os.write(self._will, json.dumps(facts).encode() + b"\n")


def die() -> NoReturn:
    """End as a power cut ends a process: nothing more is sent, nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL did not end the process")


def describe(ops: Sequence[Op], root: str) -> str:
    """
    >>> from zkplan.protocol.requests import Check, Create, Delete
    >>> describe([Check("/r/c"), Create("/r/d"), Create("/r/e"), Delete("/r/f")], "/r")
    'create d, create e, delete f'
    """
    writes = [op for op in ops if type(op) is not Check]
    shown = [f"{type(op).__name__.lower()} {op.path[len(root) + 1 :]}" for op in writes]
    more = len(shown) - len(shown[:_OPS_SHOWN])
    shown = shown[:_OPS_SHOWN]
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _work(
    hosts: str, login: str, root: str, secret: str, number: int, after: bool, will: str
) -> None:
    kazoo = KazooClient(hosts, timeout=SESSION_TIMEOUT_S, auth_data=[("digest", login)])
    kazoo.start()
    transport = DyingTransport(kazoo, root, number, after, will)
    session, password = kazoo.client_id
    transport.write(session=session, password=password.hex())
    Worker(Client(transport, root, parse_keys(secret, "the order")), threads=1).run()


def _fork(order: dict[str, Any]) -> tuple[int, int]:
    """The process id of a new worker, and a descriptor whose end is the end of the worker."""
    ours, ends = os.pipe()
    pid = os.fork()
    if pid:
        os.close(ours)
        return pid, ends
    try:
        os.close(ends)
        # A session of its own, so that signals to the group of this process do not reach the
        # worker.
        os.setsid()
        threading.Thread(target=lambda: os.read(ours, 1) or die(), daemon=True).start()
        _work(**order)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def main() -> None:
    """Serve orders until the end of the input."""
    with socket.socket(fileno=int(sys.argv[1])) as starter, starter.makefile("rb") as orders:
        starter.set_inheritable(False)
        for order in orders:
            pid, ends = _fork(json.loads(order))
            starter.sendall(pid.to_bytes(4, "big"))
            wait_unreaped(pid)
            starter.sendall(b".")
            os.close(ends)
            # Reaped with the next order.
            orders.peek(1)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
