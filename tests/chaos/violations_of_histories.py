"""The rows of the table of violations that are of histories which plans have kept themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from zkplan.protocol.history.compaction import Cut, History
from zkplan.protocol.history.segments import Record

from .honest import adding
from .violations import Row
from .violations_of_stress import StressRun, stressed

#: What happened to the three tasks of the stress run: one claim and one commit each.
_EVENTS: list[tuple[str, list[list[Any]]]] = [
    ("author", [["a", 0, "t0", "r5000.0.0"], ["a", 1, "t1", "", [0]], ["a", 2, "t2", "", [0, 1]]]),
    ("author", [["S", "running"]]),
    ("w00", [["c", 0]]),
    ("w00", [["k", 0, 0, 9], ["c", 1, None, "w10"]]),
    ("w10", [["k", 1, 0, 9], ["r", 2, "r5000.0.0"]]),
    ("w20", [["c", 2]]),
    ("w20", [["k", 2, 1, 9]]),
    ("w20", [["D"]]),
]


def told(folder: Path) -> StressRun:
    run = stressed(folder)
    records = [Record(n, 1000 * n, by, events) for n, (by, events) in enumerate(_EVENTS)]
    run.remains.history = History(records, Cut(), 0, [])
    return run


def history(change: Callable[[list[Record]], object]) -> Callable[[StressRun], None]:
    """Change the records of the plan's own history."""

    def changed(run: StressRun) -> None:
        assert run.remains.history is not None
        change(run.remains.history.records)

    return changed


def _is_let_go(run: StressRun) -> None:
    assert run.remains.history is not None
    run.remains.history = run.remains.history._replace(
        records=run.remains.history.records[2:], cut=Cut(4, 1.0)
    )


def _is_damaged(run: StressRun) -> None:
    assert run.remains.history is not None
    run.remains.history = run.remains.history._replace(damaged=["a part"])


def _swap(records: list[Record]) -> None:
    records[2], records[3] = records[3], records[2]


def _empty(evidence: Any) -> None:
    evidence.remains.history = History([], Cut(), 0, [])


def _claimed_twice(records: list[Record]) -> None:
    records[5] = records[5]._replace(events=[["c", 2], ["c", 2]])


AGREES = "S13 the history agrees with the tree and with the tasks"
TABLE: dict[str, list[Row]] = {
    AGREES: [
        (told, lambda s: None, ""),
        (told, _is_let_go, ""),
        (told, history(lambda found: found.pop(0)), "task 0 was added 0 times"),
        (told, history(lambda found: found.pop(2)), "ran, but its claim is not recorded"),
        (told, history(lambda found: found.pop(6)), "task 2 ended 0 times, and it exists: False"),
        (told, history(lambda found: found.pop(7)), "the plan is recorded as done 0 times"),
        (told, history(lambda found: found.insert(6, found[6])), "task 2 ended 2 times"),
        (told, _is_damaged, "a part of the history cannot be read"),
        (told, history(_swap), "number 2 comes after number 3"),
        (told, history(_claimed_twice), "was claimed with the numbers [0, 0]"),
        (told, lambda s: s.remains.outcomes.clear(), "task 2 ended with flags 1, an outcome"),
        (told, lambda s: s.remains.dead.append("2"), "a letter: True"),
        (told, lambda s: s.remains.delayed.append("x"), "0 tasks are recorded as delayed, and 1"),
    ],
    "S13 the history agrees": [(adding, _empty, "the plan is recorded as done 0 times")],
}
