"""Task output: its last bytes are kept, stored while the task runs, and joined again."""

from __future__ import annotations

import contextlib
import contextvars
import io
import logging
import sys
import threading
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from zkplan.basics.log import task_here
from zkplan.protocol.core.claim import record_printed
from zkplan.protocol.core.load import Loaded
from zkplan.protocol.history.compaction import PRINTED_BYTES_MAX, Cut, History
from zkplan.protocol.history.segments import Record, Recorder, printed_bytes
from zkplan.protocol.requests import Applied, Printed, Reason, Refused
from zkplan.runtime.job import Job, Tail
from zkplan.runtime.output import LiveOutput, captured
from zkplan.views.history import RecordFollower
from zkplan.views.task_logs import Logs, TaskLog, attempts_told, behind, joined, last_of, whole

from .attempts import claim


def record(number: int, *events: Printed, n: int = 0, worker: str = "w") -> Record:
    return Record(number, 1000, worker, [["p", 7, n, each.at, each.text] for each in events])


def shown(pieces: list[TaskLog]) -> list[tuple[int, int, str]]:
    return [(each.attempt, each.cut, each.text) for each in pieces]


def test_the_kept_tail_has_the_last_bytes_and_no_partial_character() -> None:
    tail = Tail(10)
    assert tail.rest(10) is None
    tail.add("gone")
    tail.add("äöüäöü")  # 12 bytes
    assert tail.rest(10) == Printed(6, "öüäöü")
    assert tail.rest(9) == Printed(8, "üäöü")
    tail.add("\udcff\x00")  # no character, and one that nobody sees
    printed = tail.rest(100)
    assert printed is not None
    assert printed.text.endswith("\\udcff\x00")
    assert printed.end == 4 + 12 + 7


def test_output_stored_while_a_task_ran_is_stored_again_only_after_a_gap() -> None:
    tail = Tail(100)
    tail.add("one ")
    assert tail.live(1.9) is None
    first = tail.live(2.0)
    assert first == Printed(0, "one ")
    tail.add("two ")
    assert tail.live(60.0) is None  # the first is under way
    assert tail.rest(1000) == Printed(0, "one two ")  # and may be lost
    tail.told(first, True)
    assert tail.rest(1000) == Printed(4, "two ")
    assert tail.live(2.5) is None  # too soon
    tail.add("x" * 1000)
    second = tail.live(4.0)
    assert second is not None
    assert len(second.text) == 100
    tail.told(second, None)  # it was refused
    assert tail.rest(1000) == Printed(908, "x" * 100)
    third = tail.live(10.0)
    assert third == second
    tail.told(third, True)
    assert tail.rest(1000) is None
    tail.add("y" * 500)
    assert tail.live(11.0) is None  # no room: what it is told of grows by 16 bytes a second
    fourth = tail.live(20.0)
    assert fourth == Printed(1408, "y" * 100)


def test_a_hundred_megabytes_of_output_take_little_memory_however_written() -> None:
    tail = Tail(1024)
    large = "z" * 30_000_000
    tracemalloc.start()
    try:
        for _ in range(3):
            tail.add(large)
        for _ in range(100):
            tail.add("ä" * 50_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    printed = tail.rest(10_000)
    assert printed is not None
    assert (printed.end, printed.text) == (100_000_000, "ä" * 512)


def test_output_stored_twice_is_shown_once_and_gaps_are_counted() -> None:
    told = [
        record(1, Printed(0, "one ")),
        record(2, Printed(0, "one ")),  # an answer was lost
        record(3, Printed(10, "three ")),  # "two..." was not told
        record(4, Printed(0, "again"), n=1, worker="other"),
        record(5, Printed(8, "o three end")),  # the end fills what it can
        record(6, Printed(10, "thr")),  # a late copy
    ]
    assert shown(whole(told, 7)) == [(0, 0, "one "), (0, 4, "o three end"), (1, 0, "again")]
    assert whole(told, 8) == []
    logs, live = Logs(7), list[TaskLog]()
    for each in told:
        live += logs.of([each])
    assert shown(live) == [(0, 0, "one "), (0, 6, "three "), (1, 0, "again"), (0, 0, "end")]
    assert [each.worker for each in live] == ["w", "w", "other", "w"]
    damaged = Record(7, 0, "w", [["p", 7, 0, -3, "x"], ["p", 7], ["p", 7, 0, 1, 2]])
    assert list(logs.of([damaged])) == []
    assert printed_bytes([damaged, told[0]]) == 24 < PRINTED_BYTES_MAX


def test_output_can_be_read_on_from_a_position_and_from_its_end() -> None:
    told = [
        Record(0, 500, "by", [["c", 7], ["c", 7, None, "w"], ["c", 8, 4]]),
        record(1, Printed(0, "äö")),
        record(2, Printed(4, "üß")),
        record(3, Printed(20, "end")),
        Record(4, 2000, "by", [["c", 7, 1, "half \ud800"], ["p", 7, 1, 0, "\udfff", "w"]]),
        Record(5, 3000, "v", [["c", 7, 2]]),
    ]
    pieces = list(joined(whole(told, 7), 100))
    assert shown(pieces) == [(0, 0, "äöüß"), (0, 12, "end"), (1, 0, "?")]
    assert shown(list(joined(pieces[:1] * 3, 10))) == [(0, 0, "äöüßäöüß"), (0, 0, "äöüß")]
    assert shown(list(behind(pieces, 0, 6))) == [(0, 0, "ß"), *shown(pieces)[1:]]
    assert shown(list(behind(pieces, 0, 23))) == [(1, 0, "?")]
    assert shown(last_of(pieces[:2], 6)) == [(0, 6, "ß"), (0, 12, "end")]
    assert shown(last_of(pieces, 3)) == [(0, 13, "nd"), (1, 0, "?")]
    attempts = [(each.attempt, each.worker, each.claimed) for each in attempts_told(told, 7)]
    assert attempts == [(0, "w", 0.5), (1, "half ?", 2.0), (2, "v", 3.0)]
    assert [each.printed for each in attempts_told(told, 7)] == [23, 1, 0]
    assert [each.claimed for each in attempts_told(told[1:2], 7)] == [None]


def a_job(most: int = 1000) -> Job:
    return Job(Loaded(claim(), b"", [], []), output=Tail(most))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def as_task(job: Job, text: str) -> None:
    task_here.set(job)
    say(text)


def said(job: Job) -> str:
    printed = job.output.rest(10_000) if job.output is not None else None
    return "" if printed is None else printed.text


def test_prints_and_logs_of_a_task_go_to_their_usual_target_and_to_its_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(logging.getLogger("of_task"), "level", logging.INFO)
    job, other, silent = a_job(), a_job(), a_job()

    def run() -> None:
        task_here.set(job)
        sys.stdout.write("häl")
        sys.stdout.writelines(["lo\n"])
        sys.stdout.buffer.write(b"\xff\n")
        logging.getLogger("of_task").info("a %s", "record")
        logging.getLogger("zkplan.worker").warning("of zkplan itself")
        contextvars.copy_context().run(say, "in a context")
        thread = threading.Thread(target=say, args=["of a thread of its own"])
        thread.start()
        thread.join()

    with captured():
        with captured():
            say("of nobody")
        contextvars.Context().run(run)
        contextvars.Context().run(as_task, other, "of the other")
        contextvars.Context().run(task_here.set, silent)
        assert sys.stdout.fileno is not None
        assert sys.stdout.encoding == "utf-8"
    assert sys.stdout is out
    contextvars.Context().run(as_task, job, "too late")
    assert said(job) == "hällo\n\\xff\nINFO of_task: a record\nin a context\n"
    assert said(other) == "of the other\n"
    assert said(silent) == ""
    out.seek(0)
    written = out.buffer.read()
    everything = ["of nobody", "häl", "of a thread of its own", "of the other", "too late"]
    assert all(each.encode() in written for each in everything)
    assert b"\xff" in written


def test_concurrent_tasks_print_whole_lines_with_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True, newline="\n")
    monkeypatch.setattr(sys, "stdout", out)
    one, two = a_job(), a_job()
    one.options = replace(one.options, name="load\nall")
    of_one, of_two = contextvars.Context(), contextvars.Context()
    with captured():
        of_one.run(task_here.set, one)
        of_two.run(task_here.set, two)
        for text in ("lo", "ad", "ed\n\nmo"):
            of_one.run(sys.stdout.write, text)
            of_two.run(sys.stdout.buffer.write, f"{text}!\n".encode())
            sys.stdout.write("of nobody\n")
        of_one.run(sys.stdout.write, "re" * 5000)
        of_one.run(sys.stdout.write, "end")
        one.end_lines()
    out.seek(0)
    lines = out.read().splitlines()
    path = f"plan-{one.claim.plan}/task-{one.claim.task}"
    named, unnamed = f"[{path} load\\nall] ", f"[{path}] "
    assert [line.removeprefix(named) for line in lines if line.startswith(named)] == [
        *("loaded", "", "mo" + "re" * 5000, "end"),
    ]
    assert [line.removeprefix(unnamed) for line in lines if line.startswith(unnamed)] == [
        *("lo!", "ad!", "ed", "", "mo!"),
    ]
    assert lines.count("of nobody") == 3
    assert said(one).endswith("reend"), "what is kept has no names in it"


def test_a_task_that_redirects_stdout_redirects_only_its_own_output() -> None:
    job, mine, real = a_job(), io.StringIO(), sys.stdout
    with captured():
        before = sys.stdout

        def run() -> None:
            task_here.set(job)
            sys.stdout = mine
            say("to itself")
            sys.stdout = before
            say("back")

        contextvars.Context().run(run)
        sys.stdout = mine
    try:
        assert sys.stdout is mine  # not put back over what a task has put there
    finally:
        sys.stdout = real
    assert said(job) == "back\n"


def warn(job: Job, name: str = "of_task") -> None:
    task_here.set(job)
    logging.getLogger(name).warning("careful")


def test_a_program_can_still_set_up_logging_after_output_is_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    err, jobs = io.StringIO(), [a_job(), a_job()]
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with captured():
        contextvars.Context().run(warn, jobs[0])
        logging.basicConfig(format="set up: %(message)s")
        contextvars.Context().run(warn, jobs[1])
    assert [said(job) for job in jobs] == ["careful\n", "set up: careful\n"]
    lines = [line.partition("] ")[2] for line in err.getvalue().splitlines()]
    assert lines == ["careful", "set up: careful"]


def test_a_log_record_is_kept_once_even_if_a_handler_was_added_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    job, root, of_task = a_job(), logging.getLogger(), logging.getLogger("of_task")
    assert root.handlers  # those of pytest
    with captured():
        for logger in (root, of_task):
            handler = logging.StreamHandler()
            monkeypatch.setattr(logger, "handlers", [*logger.handlers, handler])
            contextvars.Context().run(warn, job, "of_task.below")
            logger.handlers.remove(handler)
            handler.setLevel(logging.ERROR)
        logger.addHandler(handler)  # too quiet for it
        contextvars.Context().run(warn, job)
    assert said(job) == "careful\ncareful\nWARNING of_task: careful\n"


def test_a_stale_capture_of_stdout_put_back_late_is_reused_by_the_next_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, job = io.StringIO(), a_job()
    monkeypatch.setattr(sys, "stdout", out)
    with contextlib.ExitStack() as stack, captured():
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
    with captured():
        contextvars.Context().run(as_task, job, "once")
    assert said(job) == "once\n"
    assert sys.stdout is out


def test_a_worker_without_stdout_and_stderr_keeps_what_tasks_print(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    job = a_job()
    with captured():
        contextvars.Context().run(as_task, job, "to nobody")
        sys.stderr.write("of nobody")
        sys.stdout.flush()
    assert (sys.stdout, sys.stderr) == (None, None)
    assert said(job) == "to nobody\n"


def test_output_for_which_the_history_has_no_room_is_dropped() -> None:
    answers: list[Any] = [Refused(1, Reason.NO_AUTH, "seg-"), Applied(["checked", "untold"])]
    for first, is_told in ((0, False), (1, True)):
        step: Any = Recorder("/zkplan").step(record_printed(claim(), Printed(0, "hello")))
        assert len(next(step).ops) == 2
        for answer in answers[first:-1]:
            step.send(answer)
        with pytest.raises(StopIteration) as ended:
            step.send(answers[-1])
        assert ended.value.value == is_told


def test_a_worker_that_keeps_no_output_does_not_wake_up_for_it() -> None:
    for keeps in (0, 1000):
        worker: Any = SimpleNamespace(running={})
        duty = LiveOutput(steps=worker, pool=worker, output_max=keeps)
        duty.run(5.0)
        assert duty.at == (6.0 if keeps else float("inf"))


def test_a_follower_closed_while_reading_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zkplan.views.history.LOOK_S", 3600.0)

    def read(step: Any) -> History:
        follower.close()
        return History([], Cut(), 0, [])

    nothing = SimpleNamespace(listen=lambda wake: None, unlisten=lambda wake: None, run=read)
    values: Any = SimpleNamespace(transport=nothing)
    follower = RecordFollower(values, "/zkplan/plan-1")
    assert follower.read_on() == []
    assert follower.read_on() is None
