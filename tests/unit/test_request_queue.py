"""Requests on the connection of kazoo: their order, wake-ups, signals and a close in between.

One byte wakes kazoo's thread for each request. Only that thread makes room for more of them: if it
waits in a wake-up, or for a lock of a thread that does, it never answers anybody again. The socket
pair takes 278 bytes, whoever uses the client.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionLoss, NoNodeError, UnimplementedError
from kazoo.protocol.serialization import Exists
from kazoo.protocol.states import KeeperState

from zkplan.errors import ClientClosed, ServerRolledBack
from zkplan.protocol.requests import Multi, ReadData, ReadMany, Request
from zkplan.transport import Transport
from zkplan.transport.packets import Packer
from zkplan.transport.request_queue import IN_FLIGHT_MAX, RequestQueue

WAIT_S = 10.0
CLAIM, READ = Multi([]), ReadMany([])
IN_ORDER = ["TransactionPacket", "ReadManyPacket"]
CONNECTIONS_LOST = 20
THEIRS = (Exists("/theirs", None), None)


class Line:
    """kazoo's client, with its connection played by the test: nothing reads its queue."""

    def __init__(self) -> None:
        self.client = KazooClient("127.0.0.1:1")
        connection = self.client._connection
        connection._read_sock, connection._write_sock = self.client.handler.create_socket_pair()
        self.transport = Transport(self.client, owns=False)
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.up()

    def up(self) -> None:
        self.client._session_callback(KeeperState.CONNECTING)
        self.client._session_callback(KeeperState.CONNECTED)

    def down(self) -> None:
        self.client._session_callback(KeeperState.CONNECTING)

    def submit(self, request: Request) -> None:
        self.transport.submit(request, lambda answer, error: self.answers.put((answer, error)))

    @property
    def waiting(self) -> list[str]:
        """What kazoo would send next, in this order."""
        return [type(packet).__name__ for packet, _ in self.client._queue]

    def next_call(self) -> Any:
        """What is told of the next answer; kazoo has sent the request."""
        return self.client._queue.popleft()[1]

    def wake_ups(self) -> int:
        """How many are in the socket pair; they are taken."""
        reader = self.client._connection._read_sock
        return len(reader.recv(10_000))

    def close(self) -> None:
        # First the end that is read: it ends whoever waits for room.
        connection = self.client._connection
        for end in (connection._read_sock, connection._write_sock):
            if end is not None:  # not stopped
                end.close()


def returns(act: Callable[[], object]) -> bool:
    """Whether `act` comes to its end on a thread of its own, such as kazoo's."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    return not thread.is_alive()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


# A worker reads its new tasks right behind the transaction that claims them. A read that overtook
# it found no claims: the worker took them for lost, and nobody ran them as long as it lived.


def test_a_read_sent_after_a_write_stays_after_it(line: Line) -> None:
    line.submit(CLAIM)
    line.submit(READ)
    assert line.waiting == IN_ORDER
    line.down()
    assert line.waiting == []
    line.up()
    assert line.waiting == IN_ORDER


def test_a_read_sent_while_a_loss_is_reported_stays_after_the_write(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kazoo fails what is under way first, and says only then that the connection is lost."""
    told = line.client._make_state_change

    def read_meanwhile(state: str) -> None:
        if state == KazooState.SUSPENDED:
            line.submit(READ)
        told(state)

    monkeypatch.setattr(line.client, "_make_state_change", read_meanwhile)
    line.submit(CLAIM)
    line.down()
    line.up()
    assert line.waiting == IN_ORDER


def test_a_read_sent_while_writes_are_being_failed_stays_after_them(line: Line) -> None:
    """Kazoo fails one request after the other; threads submit meanwhile."""

    class Meanwhile:
        def set_exception(self, error: BaseException) -> None:
            assert isinstance(error, ConnectionLoss)
            line.submit(READ)

    line.submit(CLAIM)
    line.client._queue.append((None, Meanwhile()))
    line.submit(CLAIM)
    line.down()
    line.up()
    assert line.waiting == ["TransactionPacket", *IN_ORDER]


# Wake-ups, and the end of the transport.


def fill(line: Line) -> int:
    """Requests of others who use the same client, until there is no room for another wake-up."""
    wake_ups = line.client._connection._write_sock
    wake_ups.setblocking(False)
    count = 0
    try:
        while True:
            wake_ups.send(b"\0")
            line.client._queue.append(THEIRS)
            count += 1
    except BlockingIOError:
        wake_ups.setblocking(True)
        return count


def test_connections_lost_in_quick_succession_do_not_block_the_kazoo_thread(line: Line) -> None:
    """Each leaves the wake-ups of what was to be sent."""

    def lose_many() -> None:
        for _ in range(CONNECTIONS_LOST):
            line.down()
            line.up()

    for _ in range(IN_FLIGHT_MAX):
        line.submit(READ)
    assert returns(lose_many)
    assert len(line.waiting) == line.wake_ups() == IN_FLIGHT_MAX


def test_a_request_does_not_block_on_a_full_queue_of_other_requests(line: Line) -> None:
    line.submit(CLAIM)
    mine = line.next_call()
    fill(line)
    assert returns(lambda: line.submit(READ))
    assert returns(lambda: mine.set([None])), "the answer waits for a lock of that request"


def test_the_wake_up_of_a_request_is_sent_when_there_is_room(line: Line) -> None:
    others = fill(line)
    line.submit(READ)
    reader = line.client._connection._read_sock
    assert returns(lambda: [reader.recv(1) for _ in range(others + 1)])


def test_a_request_of_a_program_with_a_default_timeout_does_not_wait_for_room(line: Line) -> None:
    """Such a socket waits, whatever the flags, and then raises what a stopped client raises."""
    fill(line)
    line.client._connection._write_sock.settimeout(0.2)  # socket.setdefaulttimeout
    line.submit(READ)
    line.submit(READ)
    assert line.waiting.count("ReadManyPacket") == 2


def test_a_lost_connection_does_not_block_on_a_full_queue_of_other_requests(line: Line) -> None:
    fill(line)
    line.submit(READ)
    assert returns(line.down)


def test_an_expired_session_does_not_block_while_others_wait_for_room(line: Line) -> None:
    line.down()
    fill(line)
    line.client._queue.extend([THEIRS] * 5)  # their wake-ups have found no room yet
    assert returns(lambda: line.client._session_callback(KeeperState.EXPIRED_SESSION))


def test_several_transports_of_one_client_can_reconnect_at_the_same_time(line: Line) -> None:
    line.down()
    transports = [line.transport, *(Transport(line.client, owns=False) for _ in range(2))]
    for transport in transports:
        for _ in range(IN_FLIGHT_MAX):
            transport.submit(READ, lambda *_: None)
    assert returns(line.up)
    assert len(line.client._queue) == 3 * IN_FLIGHT_MAX


def test_removing_the_wake_ups_of_zkplan_keeps_those_of_others(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    notify = line.client._notify_pending

    def then_theirs(state: KeeperState) -> None:
        notify(state)
        line.client._queue.append(THEIRS)
        line.client._connection._write_sock.send(b"\0")

    line.submit(READ)
    monkeypatch.setattr(line.client, "_notify_pending", then_theirs)
    line.down()
    line.up()
    assert line.waiting == ["Exists", "ReadManyPacket"]
    assert line.wake_ups() == 2


def test_ctrl_c_between_a_request_and_its_wake_up_leaves_no_request_unsent(line: Line) -> None:
    class Interrupted(deque[Any]):
        def append(self, request: Any) -> None:
            super().append(request)
            if len(self) == 1:
                raise KeyboardInterrupt

    line.client._queue = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        line.submit(READ)
    line.submit(READ)
    assert line.wake_ups() >= len(line.waiting) == 2


def test_split_batches_do_not_wait_for_another_answer(line: Line) -> None:
    """A server without batches refuses a hundred of them at once, and more wait to be sent."""
    for _ in range(IN_FLIGHT_MAX + 1):
        line.submit(ReadMany([ReadData("/a")]))
    refused = list(line.client._queue)
    line.client._queue.clear()
    for _, call in refused:
        call.set_exception(UnimplementedError())
    assert len(line.waiting) == IN_FLIGHT_MAX


def test_a_request_that_fails_while_the_transport_is_closed_reports_it(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not kept to be sent again: nobody would."""
    repeat_later = RequestQueue._repeat_later

    def close_meanwhile(*given: Any) -> None:
        line.transport.close()
        repeat_later(*given)

    monkeypatch.setattr(RequestQueue, "_repeat_later", close_meanwhile)
    line.submit(READ)
    line.down()
    _, error = line.answers.get(timeout=1)
    assert isinstance(error, ClientClosed)


def test_a_pending_request_fails_with_client_closed_when_the_client_closes(
    line: Line,
) -> None:
    line.submit(CLAIM)
    line.transport.close()
    line.down()
    _, error = line.answers.get(timeout=1)
    assert isinstance(error, ClientClosed)


def test_nothing_is_sent_after_the_client_is_closed(line: Line) -> None:
    for _ in range(IN_FLIGHT_MAX + 2):
        line.submit(READ)
    call = line.next_call()
    line.transport.close()
    before = len(line.waiting)
    call.set([])
    assert len(line.waiting) == before


def end(line: Line, error: type[Exception]) -> None:
    if error is ServerRolledBack:
        line.transport.give_up("restored")
    else:
        line.transport.close()


def told(line: Line) -> BaseException | None:
    answer, error = line.answers.get(timeout=WAIT_S)
    assert answer is None
    assert line.answers.empty(), "once, not for each request"
    return error  # type: ignore[no-any-return]


@pytest.mark.parametrize("error", [ServerRolledBack, ClientClosed])
def test_a_read_in_two_steps_fails_once_at_the_end(error: type[Exception], line: Line) -> None:
    line.submit(ReadData("/late", watch=True))
    line.next_call().set_exception(NoNodeError())
    exists = line.next_call()
    end(line, error)
    exists.set("the stat of a znode that was created meanwhile")
    assert isinstance(told(line), error)


@pytest.mark.parametrize("error", [ServerRolledBack, ClientClosed])
def test_a_split_batch_fails_once_at_the_end(error: type[Exception], line: Line) -> None:
    line.submit(ReadMany([ReadData("/a"), ReadData("/b")]))
    call = line.next_call()
    end(line, error)
    call.set_exception(UnimplementedError())
    assert isinstance(told(line), error)


def test_a_request_while_the_transport_is_closed_is_refused(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = Packer.pack

    def close_meanwhile(packer: Packer, request: Request) -> Any:
        line.transport.close()
        return pack(packer, request)

    monkeypatch.setattr(Packer, "pack", close_meanwhile)
    with pytest.raises(ClientClosed):
        line.submit(ReadData("/a"))


# A signal's handler runs between any two lines of the main thread, and may raise. Most often it
# meets a request at its wake-up: to send that lets other threads run, and takes long.


class Signalled(socket.socket):
    """Sends, and then runs a handler, once."""

    handler: Callable[[], object] | None = None

    def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]
        sent = super().send(data, flags)
        handler, self.handler = self.handler, None
        if handler is not None:
            handler()
        return sent


def signal_at_next_wake_up(line: Line, handler: Callable[[], object]) -> None:
    connection = line.client._connection
    signalled = Signalled(fileno=connection._write_sock.detach())
    signalled.handler = handler
    connection._write_sock = signalled


def alarm() -> None:
    """As programs do to bound a time. It is an OSError, too."""
    raise TimeoutError("of the program")


def test_an_exception_of_a_signal_handler_reaches_the_caller_and_requests_go_on(line: Line) -> None:
    signal_at_next_wake_up(line, alarm)
    with pytest.raises(TimeoutError, match="of the program"):
        line.submit(READ)
    assert len(line.waiting) == 1, "kazoo may be sending it: it must not be taken from the queue"
    line.submit(READ)
    assert line.wake_ups() >= len(line.waiting) == 2


def test_no_thread_waits_for_another_that_sends_a_wake_up(line: Line) -> None:
    line.submit(CLAIM)
    call = line.next_call()
    answered = []
    signal_at_next_wake_up(line, lambda: answered.append(returns(lambda: call.set([None]))))
    line.submit(READ)
    assert answered == [True]
