"""Output and logs of tasks are kept with the history of their plan, and shown while they run."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import Here, Run, WorkerProcess, pass_gate, wait_until, working
from zkplan import Client, HistoryNotKept, PayloadUndecodable, TaskLog
from zkplan.protocol.history.compaction import compact
from zkplan.protocol.history.segments import segment_to_bytes
from zkplan.protocol.layout import HISTORY, SEGMENT

pytestmark = pytest.mark.usefixtures("nothing_stalls")
KEEPING = {"task_output": 4096}
HOSTILE = "\x1b[2Jgone\r\u202e"


def speak(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    logging.getLogger("of_task").warning("logged %s", word)


def speak_and_fail(word: str) -> None:
    sys.stderr.write(f"{word} {zkplan.current().attempt}\n")
    raise ValueError(word)


def speak_and_wait(gate: str) -> None:
    sys.stdout.write("begun\n")
    pass_gate(gate)
    sys.stdout.write("through\n")


def speak_and_die(gate: str) -> None:
    sys.stdout.write("my last words\n")
    pass_gate(gate)
    os.kill(os.getpid(), 9)


def speak_in_every_way() -> None:
    sys.stdout.write("in Python\n")
    os.write(1, b"to the descriptor \xff\n")
    sys.stdout.flush()
    subprocess.run(["echo", "of a child"], check=True)
    thread = threading.Thread(target=print, args=["of a thread"])
    thread.start()
    thread.join()
    for _ in range(1000):
        sys.stdout.write("0123456789" * 10_000)  # 100 MB
    sys.stdout.write("\n" + HOSTILE + "the end\n")


def texts(pieces: list[TaskLog]) -> list[tuple[int, int, str]]:
    return [(each.attempt, each.cut, each.text) for each in pieces]


def test_each_attempt_keeps_the_end_of_its_output(
    here: Here, zkplan_client: Client, run: Run
) -> None:
    with zkplan_client.create_plan("p", attempts=2, retry_delay=0.0) as plan:
        good = plan.add_task(speak, ["hello"], name="good")
        bad = plan.add_task(speak_and_fail, ["oh"], name="bad")
        plan.add_task(int, name="silent")
    with working(*here, of_worker=KEEPING) as worker:
        wait_until(lambda: plan.status().dead == plan.status().tasks, "the others have ended")
    (piece,) = good.logs()
    assert piece.text == "hello\nWARNING of_task: logged hello\n"
    assert (piece.attempt, piece.worker, piece.position, piece.cut) == (0, worker.id, 0, 0)
    assert texts(list(bad.logs())) == [(0, 0, "oh 0\n"), (1, 0, "oh 1\n")]
    assert list(plan.task("silent").logs(follow=True)) == []
    assert zkplan_client.transport.run(compact(plan.path)) > 2
    assert list(good.logs(follow=True)) == [piece]
    told = run("task", "logs", "p", "bad")
    assert told.out == "oh 0\noh 1\n"
    heads = [line.partition(" on ")[0] for line in told.err.splitlines()]
    assert heads == ["attempt 1", "attempt 2"], "people count from 1"
    assert run("task", "logs", "p", "bad", "--attempt", "2").out == "oh 1\n"
    for more in ([], ["-f"], ["-o", "json"]):
        none = run("task", "logs", "p", "bad", "--attempt", "9", *more)
        assert (none.code, none.out) == (2, "")
        assert "no log of attempt 9; these attempts have one: 1, 2" in none.err
    assert "attempt 2" in run("task", "show", "p", "bad").out
    (row,) = run("task", "logs", "p", "good", "-o", "json").data
    assert (row["text"], row["attempt"]) == (piece.text, 0)
    lines = run("task", "logs", "p", "bad", "-f", "-o", "json").out.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["oh 0\n", "oh 1\n"]
    assert "is kept" in run("task", "logs", "p", "silent").err
    assert run("task", "show", "p", "good", "-o", "json").data["printed"] == len(piece.text)
    assert "5 bytes" in run("task", "show", "p", "bad").out
    events = [(each.kind, each.size) for each in plan.history(good)]
    assert ("printed", len(piece.text)) in events
    assert "hello" not in run("plan", "history", "p").out


def test_a_damaged_history_is_reported_as_damaged(
    here: Here, zkplan_client: Client, znodes: KazooClient, run: Run
) -> None:
    with zkplan_client.create_plan("p") as plan:
        task = plan.add_task(speak, ["hello"], name="good")
    with working(*here, of_worker=KEEPING):
        plan.wait(30)
    znodes.create(f"{plan.path}/{HISTORY}/{SEGMENT}", b"no segment", sequence=True)
    told = run("task", "logs", "p", "good")
    assert "hello" in told.out
    assert "the history is not whole: cannot be read here: seg-" in told.err
    segment = segment_to_bytes("somebody", [["c"]])
    znodes.create(f"{plan.path}/{HISTORY}/{SEGMENT}", segment, sequence=True)
    with pytest.raises(PayloadUndecodable, match="is damaged"):
        list(task.logs(follow=True))


def test_a_running_task_is_followed_to_its_end(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(speak_and_wait, [str(gate)])
    live = task.logs(follow=True)
    with working(*here, of_worker=KEEPING):
        assert next(live).text == "begun\n"
        assert [each.text for each in task.logs()] == ["begun\n"]
        gate.touch()
        assert [each.text for each in live] == ["through\n"]
    assert texts(list(task.logs())) == [(0, 0, "begun\n"), (0, 0, "through\n")]


def test_a_killed_worker_leaves_the_output_stored_while_the_task_ran(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with WorkerProcess(*here, tmp_path).wait_ready():
        with zkplan_client.create_plan(attempts=2) as plan:
            task = plan.add_task(speak_and_die, [str(gate)])
        live = task.logs(follow=True)
        assert next(live).text == "my last words\n"
        gate.touch()
        live.close()  # type: ignore[attr-defined]
    assert [each.text for each in task.logs()] == ["my last words\n"]


def test_silent_tasks_cost_nothing_and_output_can_be_off(here: Here, zkplan_client: Client) -> None:
    plans = []
    for keeping in (0, 4096):
        with zkplan_client.create_plan() as plan:
            for index in range(20):
                plan.add_task(int, [index])
        with working(*here, of_worker={"task_output": keeping}):
            plan.wait(30)
        plans.append(plan)
    told = [
        [(each.kind, each.size) for each in plan.history() if each.kind in ("printed", "committed")]
        for plan in plans
    ]
    assert told[0] == told[1]
    with zkplan_client.create_plan() as off:
        loud = off.add_task(speak, ["hello"])
    with zkplan_client.create_plan(history=False) as without:
        unkept = without.add_task(speak, ["hello"])
    with working(*here, of_worker={"task_output": 0}):
        off.wait(30)
    assert list(loud.logs()) == []
    with working(*here, of_worker=KEEPING):
        without.wait(30)
    with pytest.raises(HistoryNotKept):
        unkept.logs()


@pytest.mark.skipif(sys.platform != "linux", reason="processes of tasks need Linux")
def test_all_output_of_a_process_is_kept_and_shown_escaped(
    here: Here, zkplan_client: Client, run: Run, tmp_path: Path
) -> None:
    with zkplan_client.create_plan("p", attempts=1, isolation="process") as plan:
        task = plan.add_task(speak_in_every_way, name="loud")
        small = plan.add_task(os.write, [1, b"bytes \xff\n"], name="small")
    with working(*here, of_worker=KEEPING):
        plan.wait(60)
    pieces = list(task.logs())
    assert pieces[-1].end > 100_000_000
    assert sum(each.end - each.position for each in pieces) <= 2 * 4096 + 1000
    assert pieces[-1].text.endswith("0123456789\n" + HOSTILE + "the end\n")
    assert [each.text for each in small.logs()] == ["bytes \\xff\n"]
    told = run("task", "logs", "p", "loud")
    assert told.out.endswith("\\x1b[2Jgone\\r\\u202ethe end\n")
    assert "bytes not kept" in told.err


@pytest.mark.slow
def test_a_group_of_loud_tasks_is_committed_and_merged(here: Here, zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        tasks = [plan.add_task(print, ["\0" * 65_000 + str(index)]) for index in range(60)]
        large = plan.add_task(speak_and_give, keep=True)
    with working(*here, of_worker={"task_output": 65_536}):
        plan.wait(60)
    assert len(large.result(10)) == 990_000
    while zkplan_client.transport.run(compact(plan.path, most=10 * 1024 * 1024)):
        pass
    last = [list(task.logs())[-1].text for task in tasks]
    assert [text[-3:].strip("\0\n") for text in last] == [str(index) for index in range(60)]
    assert [each.text[-4:] for each in large.logs()] == ["end\n"]


def speak_and_give() -> bytes:
    sys.stdout.write("x" * 30_000 + " end\n")
    return os.urandom(990_000)
