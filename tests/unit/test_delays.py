"""Delayed entries are due by the local wall clock, or after their whole delay was observed."""

from __future__ import annotations

from typing import Any

from zkplan.protocol.layout import Entry, delayed_name
from zkplan.runtime.delays_and_deadlines import REST_MAX_S, REST_S, Delays

WALL = 1_000_000.0


def name_due(wall_s: float, task: int = 5) -> str:
    return delayed_name(int(wall_s * 1000), "0000000003", Entry("5000", f"{task:010d}", 1, 1))


def test_an_entry_is_due_by_its_wall_clock() -> None:
    delays = Delays()
    name = name_due(WALL + 2)
    delays.listed([name], 10.0)
    assert delays.unknown(WALL) == []
    assert delays.next(10.0, WALL) == (name, 12.0)
    assert delays.take(11.9, WALL + 1.9, 50) == []
    assert [found for found, _ in delays.take(12.0, WALL + 2, 50)] == [name]
    assert delays.next(12.0, WALL + 2) is None


def test_an_entry_of_a_clock_that_is_ahead_waits_only_for_its_delay() -> None:
    delays = Delays()
    name = name_due(WALL + 3600)
    delays.listed([name], 10.0)
    assert delays.unknown(WALL) == [name]
    delays.told(name, b"1500")
    assert delays.unknown(WALL) == []
    delays.listed([name], 11.0)  # from its first sight, not from the last
    assert delays.next(11.0, WALL + 1) == (name, 11.5)
    assert delays.take(11.4, WALL + 1.4, 50) == []
    assert [found for found, _ in delays.take(11.5, WALL + 1.5, 50)] == [name]


def test_an_entry_of_a_slow_clock_is_due_too_early_by_as_much() -> None:
    """What docs/guarantees.md says of delays: no lower bound where clocks differ."""
    delays = Delays()
    behind_by_2, behind_by_60 = name_due(WALL - 2 + 3, 5), name_due(WALL - 60 + 3, 6)
    delays.listed([behind_by_2, behind_by_60], 10.0)
    assert [found for found, _ in delays.take(10.0, WALL, 50)] == [behind_by_60]
    assert delays.next(10.0, WALL) == (behind_by_2, 11.0)


def test_an_entry_without_a_known_delay_waits_for_its_due_time() -> None:
    delays = Delays()
    name = name_due(WALL + 3600)
    delays.listed([name], 10.0)
    for data in (b"", b"soon", b"-1", b"9" * 14):
        delays.told(name, data)
        assert delays.take(3000.0, WALL + 2990, 50) == []
    assert delays.take(3610.0, WALL + 3600, 50)


def test_entries_that_may_not_be_moved_do_not_block_others() -> None:
    delays = Delays()
    shut, other = [name_due(WALL - 9, task) for task in range(50)], name_due(WALL - 1, 77)
    delays.listed([*shut, other], 10.0)
    assert [found for found, _ in delays.take(10.0, WALL, 50)] == shut
    delays.listed([*shut, other], 10.0)  # before their move was refused
    delays.rest(shut, 10.0)
    assert [found for found, _ in delays.take(10.0, WALL, 50)] == [other]
    delays.listed(shut, 10.0 + REST_S - 0.1)
    assert delays.take(10.0 + REST_S - 0.1, WALL + 30, 50) == []
    assert delays.next(10.0 + REST_S - 0.1, WALL + 30) is None
    delays.listed(shut, 10.0 + REST_S)
    assert [found for found, _ in delays.take(10.0 + REST_S, WALL + 30, 50)] == shut
    delays.rest(shut, 100.0)
    delays.listed(shut, 100.0 + 2 * REST_S - 0.1)
    assert delays.take(101.9, WALL + 101.9, 50) == []
    for _ in range(9):
        delays.rest(shut, 200.0)
    delays.listed(shut, 200.0 + REST_MAX_S - 0.1)
    assert delays.take(259.9, WALL + 259.9, 50) == []
    delays.listed(shut, 200.0 + REST_MAX_S)
    assert len(delays.take(260.0, WALL + 260, 50)) == 50


def test_an_entry_that_rested_does_not_wait_for_its_delay_again() -> None:
    delays = Delays()
    far = name_due(WALL + 3600)
    delays.listed([far], 10.0)
    delays.told(far, b"1000")
    assert delays.take(11.0, WALL + 1, 50)
    delays.rest([far], 11.0)
    delays.listed([far], 12.0)
    delays.listed([far], 11.0 + REST_S)
    delays.told(far, b"1000")
    assert delays.take(11.0 + REST_S, WALL + 40, 50)


def test_an_entry_that_is_no_longer_listed_is_forgotten() -> None:
    delays = Delays()
    first, second = name_due(WALL + 3600, 5), name_due(WALL + 3600, 6)
    delays.listed([first, second], 10.0)
    delays.told(first, b"1000")
    delays.listed([second], 10.5)
    assert delays.next(10.5, WALL) == (second, 3610.5)
    delays.told(first, b"1000")
    assert delays.take(20.0, WALL, 50) == []


def test_an_entry_taken_while_its_delay_is_read_is_not_due_again() -> None:
    """As when the server is away meanwhile: a worker would ask for it again without a pause."""
    delays = Delays()
    first, second = name_due(WALL + 10, 5), name_due(WALL + 3600, 6)
    delays.listed([first, second], 10.0)
    assert delays.unknown(WALL) == [first, second]
    assert [found for found, _ in delays.take(30.0, WALL + 20, 50)] == [first]
    delays.told(first, b"10000")
    delays.told(second, b"3600000")
    assert delays.next(30.0, WALL + 20) == (second, 3610.0)


class Counting(dict[str, float]):
    """Counts how often it is gone through."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def test_a_turn_of_the_worker_does_not_scan_all_delayed_entries() -> None:
    """With a walk through 20 000 of them 2 000 turns took a minute."""
    delays = Delays()
    names = [name_due(WALL + 60, task) for task in range(200)]
    delays.listed(names, 10.0)
    for name in names:
        delays.told(name, b"50000")
    counting = delays._over = Counting(delays._over)
    for turn in range(20):
        assert delays.next(10.0 + turn / 1000, WALL + turn / 1000) == (names[0], 60.0)
    assert counting.walks == 1
    assert [found for found, _ in delays.take(60.0, WALL + 50, 50)] == names[:50]
    assert delays.next(60.0, WALL + 50) == (names[50], 60.0)
