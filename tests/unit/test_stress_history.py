"""The history of a run: what processes wrote is read back whole as it grows, and damage is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkplan.stress.history import (
    HistoryDamaged,
    Recorder,
    StressHistory,
    keep,
    read_lines,
    recorder_here,
)

BEGIN = {"uid": "x", "key": "t3", "n": 1, "worker": "w1", "pid": 17, "digest": "d", "got": ["y"]}


@pytest.fixture
def history(tmp_path: Path) -> StressHistory:
    return StressHistory(tmp_path)


def test_events_of_several_processes_become_one_history(
    history: StressHistory, tmp_path: Path
) -> None:
    worker, harness = Recorder(str(tmp_path), "worker-17"), Recorder(str(tmp_path), "harness")
    worker.write("begin", **BEGIN, alone=False)
    history.read()
    (execution,) = history.executions
    assert (execution.ended, execution.value) == (None, None)
    worker.write("end", uid="x", value="v")
    harness.write("ended", pid=17, sent=1.0)
    harness.write("died", pid=18, sent=1.0, note="it crashed")
    harness.write("lost", worker="w1", seen=0.5)
    harness.write("handed back", times=2, claims=7)
    harness.write("done")
    worker.write("begin", **BEGIN | {"uid": "z"})
    worker.write("raised", uid="z", error="ValueError: no")

    history.read()
    history.read()

    assert history.executions[0] is execution
    (raised,) = history.executions[1:]
    assert (raised.returned, raised.value, raised.raised) == (False, None, "ValueError: no")
    assert execution.ended is not None
    assert execution.began <= execution.ended
    assert {name: getattr(execution, name) for name in BEGIN} == BEGIN
    assert (execution.alone, execution.value, execution.raised) == (False, "v", "")
    assert [(kill.pid, kill.intended) for kill in history.kills] == [(17, True), (18, False)]
    assert (history.lost, history.hand_backs, history.handed_back) == ({"w1": 0.5}, 2, 7)
    assert history.done_at is not None


def test_a_kept_history_reads_as_the_folder_it_came_from(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    Recorder(str(folder), "a").write("begin", **BEGIN)
    Recorder(str(folder), "b").write("done")

    keep(folder, tmp_path / "kept.jsonl")

    assert read_lines(tmp_path / "kept.jsonl") == read_lines(folder)


def test_a_line_that_was_cut_short_is_no_event_until_it_is_whole(
    history: StressHistory, tmp_path: Path
) -> None:
    file = tmp_path / "w.jsonl"
    file.write_text('{"event": "lost", "at": 1.0, "worker": "a", "seen": 1}\n{"event": "do')
    history.read()
    assert (history.lost, history.done_at) == ({"a": 1}, None)
    with file.open("a") as opened:
        opened.write('ne", "at": 2.0}\n')
    history.read()
    assert history.done_at == 2.0


@pytest.mark.parametrize("text", ["nonsense\n", "[]\n", '{"event": "done"}\n'])
def test_a_damaged_line_is_named_by_file_and_number(tmp_path: Path, text: str) -> None:
    (tmp_path / "w.jsonl").write_text('{"event": "done", "at": 1.0}\n' + text)

    with pytest.raises(HistoryDamaged, match=r"w\.jsonl, line 2,"):
        read_lines(tmp_path)


def test_an_end_without_a_beginning_is_damage(history: StressHistory, tmp_path: Path) -> None:
    Recorder(str(tmp_path), "w").write("end", uid="x")
    with pytest.raises(HistoryDamaged, match="never began"):
        history.read()


def test_threads_of_one_process_share_one_recorder(tmp_path: Path) -> None:
    assert recorder_here(str(tmp_path)) is recorder_here(str(tmp_path))
