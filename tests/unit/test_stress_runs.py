"""The parts of a stress run: its report, history, workload and detection of concurrent tasks."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from zkplan.cli.stress import print_report
from zkplan.errors import ZkplanError
from zkplan.testing.stress_run import Report, StressSettings, takeovers
from zkplan.testing.stress_tasks import (
    Execution,
    HistoryDamaged,
    Kill,
    Recorder,
    StressHistory,
    TaskLocks,
    digest_of,
    locks_here,
    random_graph,
    read_lines,
    run_task,
)
from zkplan.testing.stress_verdict import Verdict

KEPT = Verdict("S3", "arguments were exactly the expected ones", [])
BROKEN = Verdict("S4", "committed tasks never ran again", [f"task {task}" for task in range(8)])
REPORT = Report(
    settings=StressSettings(tasks=50, seed=7, history=Path("h.jsonl")),
    edges=90,
    executions=53,
    kills=2,
    lost_sessions=0,
    takeovers=[4.0, 4.2, 5.0],
    submitted_s=0.5,
    elapsed_s=5.0,
    verdicts=[KEPT],
)


def shown(report: Report) -> str:
    text = io.StringIO()
    print_report(report, Console(file=text, width=120))
    return text.getvalue()


def test_a_report_passes_if_every_promise_was_kept_and_the_plan_ended() -> None:
    assert REPORT.passed
    assert not replace(REPORT, verdicts=[KEPT, BROKEN]).passed
    assert not replace(REPORT, problem="PlanFailed: t3").passed


def test_the_report_for_people_shows_the_numbers_and_each_verdict() -> None:
    text = shown(REPORT)
    for wanted in (
        "50, 90 edges, seed 7",
        "53",
        "3, after 4.2 s (median), 5.0 s at most",
        "10 tasks/s",
    ):
        assert wanted in text
    assert "passed" in text
    assert "FAILED" not in text


def test_a_report_says_so_if_a_run_with_kills_killed_no_worker() -> None:
    settings = replace(REPORT.settings, kill_every_s=5.0)
    assert "before the first kill" in shown(replace(REPORT, kills=0, settings=settings))
    assert "before the first kill" not in shown(replace(REPORT, settings=settings))
    assert "before the first kill" not in shown(replace(REPORT, kills=0))


def test_the_report_for_people_shows_the_first_violations_and_counts_the_rest() -> None:
    text = shown(replace(REPORT, verdicts=[BROKEN], problem="[after] 9 s"))
    assert "FAILED  committed tasks never ran again: task 4" in text
    assert "task 5" not in text
    assert "and 3 more like it" in text
    assert "FAILED  [after] 9 s" in text


def test_a_takeover_lasts_from_the_kill_to_the_next_start_of_the_task(tmp_path: Path) -> None:
    history = StressHistory(tmp_path)
    history.executions = [
        Execution("a", "t3", 0, "w1", 17, began=1.0, digest=""),
        Execution("b", "t3", 1, "w2", 18, began=6.5, digest="", ended=7.0, value="v"),
    ]
    history.kills = [Kill(17, sent=2.0, reaped=2.1)]
    assert takeovers(history) == [pytest.approx(4.5)]


BEGIN = {"uid": "x", "key": "t3", "n": 1, "worker": "w1", "pid": 17, "digest": "d", "got": ["y"]}


@pytest.fixture
def history(tmp_path: Path) -> StressHistory:
    return StressHistory(tmp_path)


def test_events_of_several_processes_are_merged_into_one_history(
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


def test_a_partial_line_is_not_an_event_until_it_is_complete(
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


def test_an_end_without_a_start_is_damage(history: StressHistory, tmp_path: Path) -> None:
    Recorder(str(tmp_path), "w").write("end", uid="x")
    with pytest.raises(HistoryDamaged, match="never began"):
        history.read()


sizes = st.integers(min_value=0, max_value=40)


@given(sizes, st.integers(min_value=0, max_value=12), st.integers())
def test_each_task_depends_on_as_many_earlier_tasks_as_exist(
    tasks: int, deps: int, seed: int
) -> None:
    graph = random_graph(tasks, deps, seed)
    assert len(graph) == tasks
    for task, needed in enumerate(graph):
        assert len(set(needed)) == len(needed) == min(deps, task)
        assert all(0 <= other < task for other in needed)


def test_a_seed_gives_the_same_graph_and_another_seed_another_one() -> None:
    assert random_graph(50, 3, seed=7) == random_graph(50, 3, seed=7)
    assert random_graph(50, 3, seed=7) != random_graph(50, 3, seed=8)


def test_digests_differ_for_changed_values_changed_sources_and_missing_values() -> None:
    digests = [
        digest_of({0: "a", 1: "b"}),
        digest_of({0: "b", 1: "a"}),
        digest_of({0: "a", 2: "b"}),
        digest_of({0: "a"}),
    ]
    assert len(set(digests)) == 4
    assert digest_of({1: "b", 0: "a"}) == digests[0]


#: Takes the lock of a task, says whether the lock was free, and keeps it until its input ends.
HOLDER = """
import sys
from zkplan.testing.stress_tasks import TaskLocks
with TaskLocks(sys.argv[1]).hold(int(sys.argv[2])) as alone:
    sys.stdout.write(f"{alone}\\n")
    sys.stdout.flush()
    sys.stdin.read()
"""


@contextmanager
def another_process(folder: Path, task: int) -> Iterator[tuple[subprocess.Popen[str], bool]]:
    """A process that has tried to hold the task's lock, and whether nobody else held it."""
    command = [sys.executable, "-c", HOLDER, str(folder), str(task)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, {"True\n": True, "False\n": False}[process.stdout.readline()]


@pytest.fixture
def locks(tmp_path: Path) -> TaskLocks:
    return TaskLocks(str(tmp_path))


def test_a_task_running_on_a_thread_is_noticed_until_it_ends(locks: TaskLocks) -> None:
    with locks.hold(3) as first, locks.hold(3) as second:
        assert (first, second) == (True, False)
    with locks.hold(3) as third:
        assert third


def test_noticing_a_running_task_does_not_release_its_lock(locks: TaskLocks) -> None:
    with locks.hold(3):
        with locks.hold(3):
            pass
        with locks.hold(3) as again:
            assert not again


def test_a_task_running_in_another_process_is_noticed_until_it_is_killed(
    tmp_path: Path, locks: TaskLocks
) -> None:
    with another_process(tmp_path, 3) as (process, alone):
        assert alone
        with locks.hold(3) as here, locks.hold(4) as beside:
            assert (here, beside) == (False, True)
        process.kill()
        process.wait()
        with locks.hold(3) as here:
            assert here


def test_another_process_notices_a_task_that_runs_here(tmp_path: Path, locks: TaskLocks) -> None:
    with locks.hold(4):
        with locks.hold(3), another_process(tmp_path, 3) as (_, alone):
            assert not alone
        with another_process(tmp_path, 3) as (_, alone):
            assert alone
        with another_process(tmp_path, 4) as (_, alone):
            assert not alone


def test_a_process_has_one_lock_file_for_each_folder(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert locks_here(str(tmp_path)) is locks_here(str(tmp_path))
    with locks_here(str(tmp_path)).hold(3), locks_here(str(tmp_path / "other")).hold(3) as alone:
        assert alone


def test_the_task_refuses_to_run_outside_of_a_worker(tmp_path: Path) -> None:
    with pytest.raises(ZkplanError, match="inside a task"):
        run_task(0, {}, expected=digest_of({}), folder=str(tmp_path), sleep_s=0)
