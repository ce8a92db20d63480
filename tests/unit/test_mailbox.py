"""A wait at a mailbox ends with an item or after its timeout, however short."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable

import pytest

from zkplan.transport.transport import Mailbox

ENDS_S = 20.0


def ends(work: Callable[[], None]) -> bool:
    """Whether it ends; a thread that does not is left behind."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(ENDS_S)
    return not thread.is_alive()


def test_items_are_received_in_order() -> None:
    box: Mailbox[int] = Mailbox()
    for item in range(3):
        box.put(item)
    assert [box.get(), box.get(0.0), box.get_nowait()] == [0, 1, 2]
    with pytest.raises(queue.Empty):
        box.get_nowait()


@pytest.mark.parametrize("timeout", [0.0, 1e-9, 1e-6, 1e-4])
def test_a_short_wait_at_a_new_mailbox_ends(timeout: float) -> None:
    """SimpleQueue hangs here within some thousand waits, up to Python 3.12."""

    def wait() -> None:
        for _ in range(5000):
            with pytest.raises(queue.Empty):
                Mailbox[int]().get(timeout)

    assert ends(wait)


def test_a_short_wait_ends_after_an_item_that_was_taken_without_waiting() -> None:
    def wait() -> None:
        box: Mailbox[int] = Mailbox()
        for item in range(5000):
            box.put(item)
            assert box.get_nowait() == item
            with pytest.raises(queue.Empty):
                box.get(1e-6)

    assert ends(wait)


def test_an_item_ends_an_unlimited_wait() -> None:
    box: Mailbox[int] = Mailbox()
    got: list[int] = []
    timer = threading.Timer(0.05, box.put, [7])
    timer.start()
    assert ends(lambda: got.append(box.get()))
    assert got == [7]


def test_each_item_of_many_threads_is_received() -> None:
    box: Mailbox[int] = Mailbox()
    got: list[int] = []

    def read() -> None:
        got.extend(box.get() for _ in range(8 * 1000))

    def write() -> None:
        for item in range(1000):
            box.put(item)

    writers = [threading.Thread(target=write) for _ in range(8)]
    for writer in writers:
        writer.start()
    assert ends(read)
    assert sorted(got) == sorted(list(range(1000)) * 8)


def test_a_signal_handler_may_put_an_item_while_its_thread_waits() -> None:
    box: Mailbox[str] = Mailbox()
    before = signal.signal(signal.SIGALRM, lambda *_: box.put("rung"))
    try:
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert box.get(ENDS_S) == "rung"
        assert time.monotonic() - began < ENDS_S / 2  # at its end it looks once more
    finally:
        signal.signal(signal.SIGALRM, before)
