"""A worker out of memory goes on, or ends so that others take over; it never hangs."""

from __future__ import annotations

import _thread
import itertools
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Transaction

import zkplan
from tests.tools.support import WAIT_S, Here, notes, run_noted, run_python, wait_until, working
from zkplan import Client, TaskSpec
from zkplan.protocol.requests import ReadData
from zkplan.runtime.job import Ended, Job
from zkplan.runtime.runner import Runner
from zkplan.runtime.steps import Steps
from zkplan.testing.server_process import EmbeddedServerProcess
from zkplan.transport import kazoo_client
from zkplan.transport.request_queue import RequestQueue

#: More requests than are sent again with a new connection: else none would ever come further.
ERROR_EVERY = 31


class NoMemory:
    """What has no memory for the byte that it is asked for."""

    def recv(self, size: int) -> bytes:
        raise MemoryError


def send_and_lack(connection: ConnectionHandler, *given: Any) -> Any:
    """A request is sent, and there is no memory for what kazoo does then."""
    with pytest.MonkeyPatch.context() as now:
        now.setattr(connection, "_read_sock", NoMemory())
        return SEND(connection, *given)


def lack(*_: Any) -> Any:
    raise MemoryError


SEND = ConnectionHandler._send_request


@pytest.mark.usefixtures("nothing_stalls")
@pytest.mark.parametrize(
    ("where", "name", "instead"),
    [
        pytest.param(ConnectionHandler, "_send_request", lack, id="before a request is sent"),
        pytest.param(ConnectionHandler, "_send_request", send_and_lack, id="when it is sent"),
        pytest.param(ConnectionHandler, "_read_socket", lack, id="before an answer is read"),
        pytest.param(Transaction, "unchroot", lack, id="when it is read"),
    ],
)
def test_a_worker_goes_on_after_an_unknown_error_of_its_connection(
    where: type,
    name: str,
    instead: Callable[..., Any],
    here: Here,
    zkplan_client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as MemoryError, when a task has taken all memory: kazoo's thread would end by it.

    kazoo takes a request from its list first: no list has it then, and nobody would answer it.
    """
    file, calls, real = tmp_path / "ran", itertools.count(1), getattr(where, name)

    def out_of_memory(of: Any, *given: Any) -> Any:
        # Of zkplan's alone: the client that removes the roots of tests would not outlive it.
        client = of.client if isinstance(of, ConnectionHandler) else of
        is_ours = isinstance(client.handler, kazoo_client.Handler)
        fails = is_ours and next(calls) % ERROR_EVERY == 0
        return (instead if fails else real)(of, *given)

    with zkplan_client.create_plan("out of memory") as plan:
        plan.add_tasks([TaskSpec(run_noted, [str(file), f"{number}"]) for number in range(60)])
    is_static = where is Transaction
    monkeypatch.setattr(where, name, staticmethod(out_of_memory) if is_static else out_of_memory)
    with working(*here, threads=2, session_timeout=5.0):
        assert plan.wait(60).state == "done"
    assert next(calls) > (1 if is_static else 2) * ERROR_EVERY
    assert sorted(notes(file)) == sorted(f"{number} 0" for number in range(60))


@pytest.mark.parametrize("where", ["_send_request", "_read_socket", "_send_ping"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_first_connection_of_a_given_client_survives_a_lack_of_memory(
    where: str, zkplan_root: str, zookeeper_hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lacks = getattr(ConnectionHandler, where), threading.Event()

    def out_of_memory(self: ConnectionHandler, *rest: Any) -> Any:
        # Of this client alone: the one that removes the roots of tests pings now and then, too.
        if self.client is given and lacks.is_set():
            lacks.clear()
            raise MemoryError
        return real(self, *rest)

    monkeypatch.setattr(ConnectionHandler, where, out_of_memory)
    given = KazooClient(zookeeper_hosts, timeout=2.0)
    given.start()
    try:
        with zkplan.connect(given, root=zkplan_root, patience=WAIT_S) as client:
            client.prepare()
            lacks.set()
            if where == "_send_ping":
                wait_until(lambda: not lacks.is_set(), "it pings")
            assert client.plans() == []
            assert not lacks.is_set()
    finally:
        given.stop()
        given.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_whose_connection_thread_has_ended_ends_itself(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot tell of it without memory: the worker would stand still for ever."""

    def end_thread(*given: Any) -> Any:
        raise SystemExit

    with zkplan.connect(*here, session_timeout=2.0) as client:
        worker = zkplan.Worker(client, threads=1)
        connection = client.transport.client._connection
        worker.on_ready(lambda _: monkeypatch.setattr(connection, "_read_socket", end_thread))
        with pytest.raises(zkplan.ZooKeeperUnavailable, match="restart the process"):
            worker.run()


@pytest.mark.parametrize(
    ("what", "name"),
    [
        pytest.param(Steps, "post", id="an answer"),
        pytest.param(RequestQueue, "_repeat_later", id="a loss"),
        pytest.param(RequestQueue, "_send_waiting", id="a connection"),
        pytest.param(None, "", id="a watch"),
    ],
)
def test_a_worker_that_missed_an_answer_ends_itself(
    what: type | None, name: str, zkplan_root: str, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for ever while its session goes on: nobody could take over what it holds."""

    def out_of_memory(*given: Any) -> None:
        raise MemoryError

    with zkplan.connect(*here, session_timeout=5.0) as client:

        def lose_connection(_: str) -> None:
            connection = client.transport.client._connection
            read, reads, submitted = connection._read_socket, itertools.count(), threading.Event()

            def drop_first(*given: Any) -> Any:
                """What comes first: nothing that was submitted is answered before the loss."""
                if next(reads):
                    return read(*given)
                submitted.wait(WAIT_S)
                raise ConnectionDropped("by this test")

            with monkeypatch.context() as now:
                if what is None:
                    client.transport.listen(out_of_memory)
                else:
                    now.setattr(what, name, out_of_memory)
                now.setattr(connection, "_read_socket", drop_first)
                for _number in range(50):
                    client.transport.submit(ReadData(zkplan_root), lambda *_: None)
                submitted.set()
                wait_until(lambda: client.transport.broken is not None, "it is told of nothing")

        worker = zkplan.Worker(client, threads=1)
        worker.on_ready(lose_connection)
        with pytest.raises(MemoryError):
            worker.run()


def test_a_worker_that_has_lost_a_slot_thread_ends_itself(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold for ever what that thread was to run, and nobody could take it over."""

    def out_of_memory(self: Runner, job: Job) -> Ended:
        raise MemoryError

    monkeypatch.setattr(Runner, "run", out_of_memory)
    with zkplan.connect(*here) as client:
        with client.create_plan() as plan:
            plan.add_task(abs, [-1])
        with pytest.raises(MemoryError):
            zkplan.Worker(client, threads=1).run()
        assert plan.status().tasks == 1


def test_a_worker_whose_client_gave_up_connecting_says_so() -> None:
    """A client that is given may try a few times only; memory has nothing to do with that."""
    with EmbeddedServerProcess() as server:
        few = {"max_tries": 1, "delay": 0.01}
        given = KazooClient(server.hosts, timeout=2.0, connection_retry=few)
        given.start()
        try:
            with zkplan.connect(given) as client:
                worker = zkplan.Worker(client, threads=1)
                worker.on_ready(lambda _: server.kill())
                with pytest.raises(zkplan.ZooKeeperUnavailable, match="`connection_retry`"):
                    worker.run()
        finally:
            given.stop()
            given.close()


@pytest.mark.parametrize("left", ["a queue's lock held", "a thread that seems to run"])
def test_a_connection_whose_threads_crashed_can_be_closed(
    left: str, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: without memory a thread of kazoo ended midway, and the worker never ended."""
    monkeypatch.setattr(kazoo_client, "_STOP_S", 0.0)
    monkeypatch.setattr(kazoo_client, "_STOP_MORE_S", 0.2)
    client = zkplan.connect(*here, session_timeout=1.0)
    raw, over = client.transport.client, threading.Event()
    if left == "a queue's lock held":
        raw.handler.completion_queue.mutex.acquire()
    else:
        raw._connection._connection_routine = threading.Thread(target=over.wait, daemon=True)
        raw._connection._connection_routine.start()
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(WAIT_S)
    is_closed = not closing.is_alive()
    if left == "a queue's lock held":
        raw.handler.completion_queue.mutex.release()
    over.set()
    assert is_closed


ENDS_BADLY = """
import sys
import zkplan
from zkplan.transport import kazoo_client

kazoo_client._STOP_S, kazoo_client._STOP_MORE_S = 0.0, 0.2
client = zkplan.connect(sys.argv[1], sys.argv[2], session_timeout=1.0)
client.transport.client.handler.completion_queue.mutex.acquire()
client.close()
"""


def test_a_process_whose_connection_could_not_be_closed_ends(here: Here) -> None:
    """kazoo also stops its threads at the end of the process, and waits for them for ever."""
    assert run_python("-c", ENDS_BADLY, *here, timeout=WAIT_S).returncode == 0


STANDS_STILL = """
import sys
import threading
from zkplan import Client, Worker
from zkplan.cli import main, worker

def run(self):
    raise MemoryError

worker._ENDS_WITHIN_S, Worker.run = 1, run
Client.close = lambda self: threading.Event().wait()
main(["worker", "--hosts", sys.argv[1], "--root", sys.argv[2], "--session-timeout", "1"])
"""


def test_a_failed_worker_process_ends_although_threads_still_run(here: Here) -> None:
    """Seen: closing its connection took a thread, for which there was no memory."""
    ended = run_python("-c", STANDS_STILL, *here, timeout=WAIT_S)
    assert ended.returncode == -signal.SIGALRM


def test_a_connection_can_be_closed_when_no_thread_can_be_started(
    here: Here, zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit of a process, and at its end from Python 3.12 on."""

    def no_thread(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    client = zkplan.connect(*here)
    with monkeypatch.context() as now:
        now.setattr(_thread, "start_new_thread", no_thread)
        client.close()
    assert client.transport.client._connection.connection_closed.is_set()
