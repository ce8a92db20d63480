"""Reading ahead: several reads at once in a moving window of bounded size."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from zkplan.values.blobs import READERS, Read, side_by_side

WAIT_S = 10.0


def taken(reads: list[Read | None], **options: Callable[[], bool]) -> list[bytes | None]:
    return [None if read is None else bytes(read()) for read in side_by_side(reads, **options)]


def test_a_bounded_number_of_values_is_read_at_once_and_yielded_in_order() -> None:
    together = threading.Barrier(READERS)

    def read(number: int) -> bytes:
        together.wait(WAIT_S)
        return bytes([number])

    reads: list[Read | None] = [lambda n=n: read(n) for n in range(3 * READERS)]  # type: ignore[misc]
    assert taken(reads) == [bytes([number]) for number in range(3 * READERS)]


def test_the_next_value_is_read_while_others_of_the_window_are_unfinished() -> None:
    begun = threading.Event()

    def slow() -> bytes:
        assert begun.wait(WAIT_S), "the one behind the window does not begin"
        return b"slow"

    def behind() -> bytes:
        begun.set()
        return b"behind"

    reads: list[Read | None] = [lambda: b"first", slow, *[lambda: b"x"] * (READERS - 2), behind]
    assert taken(reads) == [b"first", b"slow", *[b"x"] * (READERS - 2), b"behind"]


def test_no_more_values_are_held_than_are_read_at_once() -> None:
    begun: list[int] = []

    def read(number: int) -> bytes:
        begun.append(number)
        return b""

    reads: list[Read | None] = [lambda n=n: read(n) for n in range(5 * READERS)]  # type: ignore[misc]
    for at, found in enumerate(side_by_side(reads)):
        assert found is not None
        found()
        assert len(begun) <= at + READERS


def test_values_that_need_no_reading_are_yielded_at_once_without_a_thread() -> None:
    before = threading.active_count()
    assert taken([None] * 1000) == [None] * 1000
    assert threading.active_count() == before


def test_nothing_is_read_ahead_while_no_value_is_wanted() -> None:
    begun: list[int] = []
    wanted = False
    reads: list[Read | None] = [
        lambda n=n: begun.append(n) or b""  # type: ignore[misc, func-returns-value]
        for n in range(READERS + 3)
    ]
    found = side_by_side(reads, lambda: wanted)
    next(found)
    assert begun == []
    wanted = True
    for read in found:
        assert read is not None
        read()
    assert sorted(begun) == list(range(1, READERS + 3))


def test_a_failed_read_raises_only_in_its_own_place() -> None:
    def fail() -> bytes:
        raise OSError("on purpose")

    first, second, third = side_by_side([lambda: b"1", fail, lambda: b"3"])
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first(), third()) == (b"1", b"3")
    with pytest.raises(OSError, match="on purpose"):
        second()
