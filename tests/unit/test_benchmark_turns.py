"""The sides of a benchmark take turns, and rows compare two servers or two sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from benchmarks import frames, growth, keys, results
from benchmarks.growth import Growth
from benchmarks.rows import Row, server_ratios
from benchmarks.turns import by_turns, spread

SMALL = Growth(10_000, 4000.0, 9000.0, 40.0, 45.0, 30.0, 31.0, 1, 9, 300.0)


def test_each_side_takes_each_turn_and_the_first_round_does_not_count() -> None:
    order: list[tuple[int, str]] = []

    def note(name: str, turn: int) -> int:
        order.append((turn, name))
        return turn

    sides = {name: partial(note, name) for name in "ab"}
    assert by_turns(sides, 4) == {"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]}
    rounds = ["".join(name for turn, name in order if turn == each) for each in range(5)]
    assert rounds == ["ab", "ba", "ba", "ab", "ab"]


def test_a_spread_has_the_median_and_the_quartiles() -> None:
    assert str(spread([1.0, 2.0, 3.0, 4.0, 9.0])) == "3.000 [2.000 to 4.000]"
    assert str(spread([2.5])) == "2.500 [2.500 to 2.500]"


def test_the_embedded_server_is_judged_on_the_rows_that_both_servers_have() -> None:
    rows = [
        Row("fast", "tasks/s", total=100.0, values=90.0, server="zookeeper"),
        Row("fast", "tasks/s", total=50.0, values=81.0, server="embedded"),
        Row("slow", "s", total=1.0, execution=0.8, server="zookeeper"),
        Row("slow", "s", total=2.0, execution=0.4, server="embedded"),
        Row("alone", "s", total=2.0, server="embedded"),
    ]
    found = [(row.name, row.total, row.values, row.met) for row in server_ratios(rows, True)]
    assert found == [
        ("fast: embedded / zookeeper", 0.5, 0.9, True),
        ("slow: embedded / zookeeper", 0.5, None, False),
    ]
    assert [row.met for row in server_ratios(rows, False)] == [None, None]


@pytest.mark.parametrize(
    ("rate", "peak_mib", "missed"),
    [
        (3700.0, 60.0, []),
        (3500.0, 60.0, ["growth: rate kept, most / least"]),
        # 62 MiB are more than 64 MB.
        (3700.0, 62.0, ["growth: memory of a worker, peak"]),
    ],
)
def test_growth_is_judged_by_the_task_rate_and_the_memory_of_a_worker(
    rate: float, peak_mib: float, missed: list[str]
) -> None:
    large = replace(SMALL, pending=300_000, rate=rate, worker_peak_mib=peak_mib)
    rows = growth.rows_of("zookeeper", [SMALL, large], [], is_judged=True)
    assert [row.name for row in rows if row.met is False] == missed
    assert all(row.met is None for row in growth.rows_of("zookeeper", [SMALL, large], [], False))


def test_bulk_results_are_judged_only_at_the_requested_size() -> None:
    took = {results.BULK: [0.5, 0.7, 0.4], results.SINGLE: [5.0, 5.0, 4.0]}
    assert results.told("s", 10_000, took).endswith("10.0 times as fast; target ≤ 0.6 s: met")
    slow = {**took, results.BULK: [0.7]}
    assert results.told("s", 10_000, slow).endswith("MISSED")
    assert results.told("s", 100, took).endswith("10.0 times as fast")


def test_a_key_is_judged_by_the_median_ratio_of_its_rounds() -> None:
    turns = {
        "none": [keys.Turn(1.0, 0.5), keys.Turn(2.0, 0.5), keys.Turn(1.0, 0.5)],
        "secret": [keys.Turn(1.04, 0.6), keys.Turn(2.0, 0.6), keys.Turn(1.9, 0.6)],
        "aes": [keys.Turn(1.2, 0.6), keys.Turn(2.4, 0.6), keys.Turn(1.0, 0.6)],
        "closed": [keys.Turn(0.9, 0.5), keys.Turn(2.2, 0.5), keys.Turn(1.1, 0.5)],
    }
    _, secret, aes, closed = keys.lines("chain", turns)
    assert "x 1.040 " in secret
    assert secret.endswith("workers x 1.200; target ≤ 1.05: met")
    assert aes.endswith("target ≤ 1.10: MISSED")
    assert closed.endswith("(the lower quartile): met")


def test_tables_that_differ_by_more_than_rounding_are_not_equal() -> None:
    table = [18_250, 450, 3000, 1e6]
    assert frames.same([*table[:3], 1e6 + 1e-5], table)
    assert not frames.same([*table[:3], 1e6 + 1], table)
    assert not frames.same([18_249, *table[1:]], table)
