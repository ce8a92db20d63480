"""The ten questions of docs/operate/questions.md get right answers on a small root."""

from __future__ import annotations

import re
import statistics
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from tests.tools.support import Here, Run, fail, pass_gate, wait_until, working
from zkplan import Client, Plan, TaskSpec
from zkplan.cli import task_list as ended_ls
from zkplan.protocol.core import commit_part as part
from zkplan.protocol.core.claim import claim
from zkplan.protocol.core.plans_and_queues import look
from zkplan.protocol.core.workers import WorkerRecord, register, sign_off
from zkplan.protocol.history.compaction import compact
from zkplan.protocol.layout import HISTORY, UNTOLD
from zkplan.views.history import told_tasks
from zkplan.views.history_state import TaskState

pytestmark = pytest.mark.usefixtures("nothing_stalls")

USUAL_S, LONG_S = 0.02, 1.0


def take(seconds: float) -> None:
    threading.Event().wait(seconds)


def take_in_vain(seconds: float) -> None:
    take(seconds)
    fail()


def has_ended(plan: Plan) -> bool:
    return plan.status().has_ended


class Root(NamedTuple):
    """`worker` is the ID of the one that lives; it runs `watch`."""

    client: Client
    worker: str
    plans: list[Plan]
    run: Run

    def ask(self, *words: str) -> Any:
        answer = self.run(*words, "-o", "json")
        assert (answer.code, answer.err) == (0, "")
        return answer.data

    def ended(self) -> dict[tuple[str, int], TaskState]:
        """Every task that has ended, or failed for good, from all events of each plan."""
        return {
            (plan.number, task.number): task
            for plan in self.client.plans()
            for task in (told_tasks(self.client.values, plan.path) or {}).values()
            if task.gone or task.state == "dead"
        }


@pytest.fixture
def root(here: Here, zkplan_client: Client, run: Run, tmp_path: Path) -> Iterator[Root]:
    gate = tmp_path / "gate"
    with zkplan_client.create_plan("hourly") as hourly:
        hourly.add_task(pass_gate, [str(gate)], name="watch")
    go, paths = zkplan_client.transport.run, zkplan_client.paths
    record = WorkerRecord("lost", "there", 1, 1, 0.0)
    me = go(register(paths, "lost", record.to_bytes(), iter("abc")))
    assert me is not None
    seen = go(look(hourly.path))
    assert len(go(claim(me, hourly.number, seen.version, list(seen.names or ()))).claims) == 1
    go(sign_off(paths, "lost"))
    with working(*here) as worker:
        nightly = []
        for number in range(3):
            with zkplan_client.create_plan(f"nightly-{number}") as plan:
                seconds = [LONG_S if (number, at) == (1, 2) else USUAL_S for at in range(4)]
                loads = [plan.add_task(take, [each], name="load") for each in seconds]
                plan.add_task(int, after=loads, name="report")
            nightly.append(plan)
        with zkplan_client.create_plan("imports", attempts=2, retry_delay=0.0) as imports:
            imports.add_task(int, after=[imports.add_task(fail, name="import")], name="index")
        with zkplan_client.create_plan("given-up", on_failure="cascade", attempts=1) as given_up:
            given_up.add_task(take_in_vain, [LONG_S], name="load")
        backfill = zkplan_client.create_plan("backfill")
        backfill.mark_ready()
        backfill.cancel()
        for plan in (*nightly, given_up):
            wait_until(partial(has_ended, plan), "it has ended")
        wait_until(lambda: imports.status().dead, "it is dead")
        wait_until(Path(f"{gate}-reached").exists, "the living worker runs it")
        go(compact(nightly[1].path))
        yield Root(zkplan_client, worker.id, nightly, run)
        gate.touch()


def test_each_of_the_ten_questions_is_answered(root: Root) -> None:
    loads = [task for task in root.ended().values() if task.name == "load"]
    usual = statistics.median_high(task.ran_ms for task in loads if task.state == "committed")
    long = sorted(task.ran_ms / 1000 for task in loads if task.ran_ms > 5 * usual)
    every, past = "--all-plans", ("--since", "12h")
    rows = root.ask("task", "ls", every, "--all", *past, "--longer-than", "5x", "--name", "load")
    assert sorted(row["seconds"] for row in rows) == long
    slow = [(r["plan_name"], r["state"], r["worker"]) for r in rows if r["seconds"] >= LONG_S]
    assert slow == [("nightly-1", "committed", root.worker), ("given-up", "failed", root.worker)]

    events = root.plans[0].history()
    moment = next(each.when for each in events if each.kind == "committed")
    then = datetime.fromtimestamp(moment).astimezone().isoformat(timespec="milliseconds")
    committed = sum(each.kind == "committed" and each.when <= moment for each in events)
    told = root.ask("plan", "history", "nightly-0", "--at", then)
    assert (told["state"], told["tasks"]["committed"]) == ("running", committed)

    (cancelled,) = root.ask("plan", "history", "backfill", "--kind", "cancelled")
    assert "@" in cancelled["by"]
    kinds = ("--kind", "cancelled", "--kind", "paused")
    (across,) = root.ask("plan", "history", every, *kinds, *past)
    assert across == {"plan": across["plan"], "plan_name": "backfill", **cancelled}

    (now,) = root.ask("task", "ls", every, "--worker", root.worker)
    assert (now["name"], now["state"]) == ("watch", "running")
    (lost,) = root.ask("plan", "history", every, "--kind", "lost", *past)
    assert (lost["name"], lost["worker"], lost["by"]) == ("watch", "lost", root.worker)
    kinds = ("--kind", "attempt failed", "--kind", "dead")
    failed = root.ask("plan", "history", every, *kinds, *past)
    assert [(row["kind"], row["error"]) for row in failed] == [
        ("attempt failed", "ValueError"),
        ("dead", "ValueError"),
        ("dead", "ValueError"),
    ]
    report = root.ask("task", "show", "nightly-2", "report")
    assert (report["ended"], report["worker"]) == ("committed", root.worker)
    assert "out of attempts" in root.run("plan", "why", "imports").out
    assert "critical path: 2 tasks" in root.run("plan", "timeline", "nightly-1").out


def test_tasks_that_a_filter_skips_unbuilt_do_not_match_it(root: Root) -> None:
    """Each filter finds what it finds among all tasks, built from all events."""
    every = root.ended()
    middle = sorted(task.ended_ms for task in every.values())[len(every) // 2]
    since = datetime.fromtimestamp(middle / 1000).isoformat(timespec="milliseconds")
    cases: list[tuple[tuple[str, ...], Callable[[TaskState], bool]]] = [
        ((), lambda task: True),
        (("--name", "rep*"), lambda task: task.name == "report"),
        (("--worker", root.worker[:6]), lambda task: task.worker.startswith(root.worker[:6])),
        (("--worker", "lost"), lambda task: task.worker == "lost"),
        (("--state", "committed"), lambda task: task.state == "committed"),
        (("--state", "failed"), lambda task: task.state == "dead"),
        (("--longer-than", "0.5"), lambda task: task.ran_ms > 500),
        (("--since", since), lambda task: task.ended_ms >= middle),
    ]
    for words, wanted in cases:
        rows = root.ask("task", "ls", "--all-plans", "--all", *words)
        found = [
            (row["plan"], int(row["number"])) for row in rows if row.get("seconds") is not None
        ]
        assert found == sorted(key for key, task in every.items() if wanted(task)), words
    of_one = root.ask("task", "ls", "nightly-1", "--all", "--name", "load")
    assert len(of_one) == 4


def test_a_failure_delivered_wide_is_found_by_its_run_time(
    here: Here, zkplan_client: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "GROUP_BYTES_MAX", 0)  # now every delivery is a wide one
    with zkplan_client.create_plan("wide", on_failure="cascade", attempts=1) as plan:
        plan.add_task(int, after=[plan.add_task(take_in_vain, [LONG_S], name="load")], name="then")
        plan.add_tasks([TaskSpec(take, [USUAL_S], name="load")] * 2)
    with working(*here):
        wait_until(partial(has_ended, plan), "it has ended")
    for longer in (str(LONG_S / 2), "1.5x"):
        words = ("--longer-than", longer, "--state", "failed", "--name", "load")
        (row,) = run("task", "ls", "wide", "--all", *words, "-o", "json").data
        assert row["seconds"] >= LONG_S


@pytest.mark.parametrize("reading", ["find_ended", "find_tasks"])
def test_a_task_that_ends_during_the_search_is_listed_once(
    root: Root, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reading: str
) -> None:
    """It ends when all histories, or all unfinished tasks, have been read."""
    read = getattr(ended_ls, reading)

    def read_and_end(*given: Any) -> Iterator[Any]:
        yield from read(*given)
        (tmp_path / "gate").touch()
        wait_until(partial(has_ended, root.client.plan("hourly")), "it has ended")

    monkeypatch.setattr(ended_ls, reading, read_and_end)
    (row,) = root.ask("task", "ls", "--all-plans", "--all", "--name", "watch")
    assert row["state"] == ("running" if reading == "find_ended" else "committed")


def test_gaps_of_a_history_are_reported_and_hide_nothing(root: Root, znodes: KazooClient) -> None:
    root.client.create_plan("untold", history=False)
    bad, worse, shut = (plan.path for plan in root.plans)
    znodes.create(f"{bad}/{HISTORY}/seg-0000009999", b"not ours")
    znodes.create(f"{worse}/{HISTORY}/seg-0000009999", b'h1j["ann@there",[["k",[]]]]')
    hidden = min(set(znodes.get_children(f"{shut}/{HISTORY}")) - {UNTOLD})
    znodes.set_acls(f"{shut}/{HISTORY}/{hidden}", [make_acl("world", "anyone", admin=True)])
    asked = ("--all-plans", "--since", "1h")
    for answer in (
        root.run("task", "ls", "--all", *asked, "--state", "committed"),
        root.run("plan", "history", *asked, "--kind", "committed"),
    ):
        assert "nightly-2" in answer.out
        assert "nightly-0" in answer.out
        assert "1 plan with no history to read here" in answer.err
        assert re.search(rf"the history of {bad} is not whole: .*seg-0000009999", answer.err)
        assert f"the history of {worse} is not whole" in answer.err
        assert f"the history of {shut} is not whole: cannot be read here: {hidden}" in answer.err
        assert answer.code == 0
    znodes.set_acls(f"{shut}/{HISTORY}/{hidden}", OPEN_ACL_UNSAFE)


def test_invalid_combinations_of_options_are_refused(root: Root) -> None:
    for words in [
        ("task", "ls", "--all-plans", "--since", "1h"),
        ("task", "ls", "--all-plans", "--state", "committed"),
        ("task", "ls", "--all-plans", "--longer-than", "3x"),
        ("task", "ls", "--all-plans", "--all", "--longer-than", "3x", "--state", "dead"),
        ("task", "ls", "nightly-1", "--all", "--outcomes"),
        ("plan", "history"),
        ("plan", "history", "nightly-1", "--all-plans"),
        ("plan", "history", "--all-plans", "--follow"),
        ("plan", "history", "--all-plans", "--at", "03:12"),
        ("plan", "history", "nightly-1", "--kind", "vanished"),
    ]:
        assert root.run(*words).code == 2, words
    cut = root.run("task", "ls", "--all-plans", "--all", "--limit", "2")
    assert cut.out.endswith("… and more: --limit leaves them out\n")
    assert root.ask("plan", "history", "--all-plans", "--since", "2100-01-01") == []
