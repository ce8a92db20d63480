"""The stress history: what processes wrote is read back whole, and damage is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkplan.stress.history import (
    Execution,
    History,
    HistoryDamaged,
    Kill,
    Recorder,
    keep,
    parse,
    read_lines,
    recorder_here,
)

FACTS = {"task": 3, "n": 1, "worker": "w1", "pid": 17, "execution": "x"}


def test_events_of_several_processes_become_one_history(tmp_path: Path) -> None:
    worker, harness = Recorder(str(tmp_path), "worker-17"), Recorder(str(tmp_path), "harness")
    worker.write("start", **FACTS, digest="d", alone=True)
    worker.write("end", **FACTS, value="v")
    harness.write("killed", pid=17, sent=1.0)
    harness.write("lost", worker="w1", seen=0.5)
    harness.write("done")

    history = parse(read_lines(tmp_path))

    (execution,) = history.executions
    assert (execution.task, execution.n, execution.worker, execution.pid) == (3, 1, "w1", 17)
    assert (execution.digest, execution.value, execution.error) == ("d", "v", "")
    assert execution.ended is not None
    assert execution.started <= execution.ended
    assert [(kill.pid, kill.sent, kill.intended) for kill in history.kills] == [(17, 1.0, True)]
    assert history.lost == {"w1": 0.5}
    assert history.done_at is not None


def test_an_execution_cut_short_has_no_end(tmp_path: Path) -> None:
    Recorder(str(tmp_path), "w").write("start", **FACTS, digest="d", alone=True)

    (execution,) = parse(read_lines(tmp_path)).executions

    assert (execution.ended, execution.value) == (None, None)


def test_a_failed_execution_has_an_end_and_no_value(tmp_path: Path) -> None:
    worker = Recorder(str(tmp_path), "w")
    worker.write("start", **FACTS, digest="d", alone=True)
    worker.write("failed", **FACTS, error="ValueError: no")

    (execution,) = parse(read_lines(tmp_path)).executions

    assert execution.ended is not None
    assert (execution.value, execution.error) == (None, "ValueError: no")


def test_a_kept_history_reads_as_the_folder_it_came_from(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    Recorder(str(folder), "a").write("start", **FACTS, digest="d", alone=True)
    Recorder(str(folder), "b").write("done")

    keep(folder, tmp_path / "kept.jsonl")

    assert read_lines(tmp_path / "kept.jsonl") == read_lines(folder)


def test_a_line_that_was_cut_short_is_no_event(tmp_path: Path) -> None:
    (tmp_path / "w.jsonl").write_text('{"event": "done", "at": 1.0}\n{"event": "st')

    assert [line["event"] for line in read_lines(tmp_path)] == ["done"]


@pytest.mark.parametrize("text", ["nonsense\n", "[]\n", '{"event": "done"}\n'])
def test_a_damaged_line_is_named_by_file_and_number(tmp_path: Path, text: str) -> None:
    (tmp_path / "w.jsonl").write_text(text)

    with pytest.raises(HistoryDamaged, match=r"w\.jsonl, line 1,"):
        read_lines(tmp_path)


def test_an_end_without_a_start_is_damage() -> None:
    with pytest.raises(HistoryDamaged, match="never started"):
        parse([{"event": "end", "at": 1.0, **FACTS}])


def test_threads_of_one_process_share_one_recorder(tmp_path: Path) -> None:
    assert recorder_here(str(tmp_path)) is recorder_here(str(tmp_path))


def test_a_kill_cuts_off_only_what_ran_before_it() -> None:
    before = Execution("a", 0, 0, "w1", 17, started=1.0, digest="")
    reused = Execution("b", 0, 1, "w2", 17, started=9.0, digest="")
    history = History([before, reused], kills=[Kill(17, sent=5.0, reaped=5.1)])

    assert history.cut_off(before, 5.0)
    assert not history.cut_off(before, 4.9)
    assert not history.cut_off(reused, 9.5)


def test_a_lost_worker_is_cut_off_from_when_it_was_last_seen() -> None:
    execution = Execution("a", 0, 0, "w1", 17, started=1.0, digest="")
    history = History([execution], lost={"w1": 5.0})

    assert history.cut_off(execution, 5.0)
    assert not history.cut_off(execution, 4.9)
