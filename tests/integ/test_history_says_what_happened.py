"""S13 on real servers: the history of a plan agrees with its tree."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.claiming import claim
from tests.tools.support import Here, Run, pass_gate, wait_until, working
from zkplan import Client, Event, HistoryNotKept, PlanNotFound
from zkplan.protocol.features import remove_plan as removal
from zkplan.protocol.history.compaction import compact, read_history
from zkplan.protocol.layout import HISTORY
from zkplan.protocol.requests import Create, Multi, Request, Step
from zkplan.service.leases import Leases
from zkplan.transport.request_queue import Call, Done
from zkplan.views.history import missing, read

pytestmark = pytest.mark.usefixtures("nothing_stalls")


def fails() -> None:
    raise ValueError("secret words")


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def test_the_history_of_a_task_has_its_whole_life(here: Here, zkplan_client: Client) -> None:
    with zkplan_client.create_plan(attempts=2, retry_delay=0.0) as plan:
        first = plan.add_task(int, ["7"], name="first")
        second = plan.add_task(str, [first], name="second")
        bad = plan.add_task(fails, after=[second], name="bad")
    with working(*here) as worker:
        wait_until(lambda: plan.status().dead, "it is dead")
        bad.skip(0)
        plan.wait(30)
    assert kinds(plan.history(first)) == ["added", "claimed", "committed"]
    told = plan.history("bad")
    assert kinds(told) == [
        *("added", "claimed", "attempt failed", "claimed", "dead", "decided", "claimed"),
        "skipped",
    ]
    assert [event.error for event in told if event.error] == ["ValueError", "ValueError"]
    assert "secret" not in str(told)
    done = plan.history(first)[-1]
    assert (done.worker, done.by, done.attempt, done.name) == (worker.id, worker.id, 0, "first")
    assert done.seconds is not None
    assert done.seconds < 5
    assert done.size
    assert told[5].by != worker.id
    assert "@" in told[5].by
    of_plan = [event.kind for event in plan.history() if not event.task]
    assert of_plan == ["ready", "done"]
    assert [e.position for e in plan.history()] == sorted(e.position for e in plan.history())
    assert plan.history(since=done.when + 3600) == []


def test_finished_tasks_are_found_listed_and_shown(
    here: Here, zkplan_client: Client, run: Run
) -> None:
    with zkplan_client.create_plan("many") as plan:
        first = plan.add_task(int, ["7"], name="first")
        plan.add_task(str, [first], name="second")
    with working(*here) as worker:
        plan.wait(30)
    assert plan.task("first").number == first.number
    rows = run("task", "ls", "many", "--all", "-o", "json").data
    assert [(row["name"], row["state"], row["worker"]) for row in rows] == [
        ("first", "committed", worker.id),
        ("second", "committed", worker.id),
    ]
    facts = run("task", "show", "many", "first", "-o", "json").data
    assert (facts["state"], facts["ended"], facts["queue"]) == ("finished", "committed", "default")
    assert facts["worker"] == worker.id
    assert facts["seconds"] >= 0
    drawn = run("plan", "timeline", "many").out
    assert "first" in drawn
    assert worker.id[:20] in drawn
    assert "critical path: 2 tasks" in drawn
    before = run("plan", "history", "many", "--at", "1h", "-o", "json").data
    assert (before["state"], before["tasks"]) == ("defining", {})
    now = run("plan", "history", "many", "--at", "0", "-o", "json").data
    assert (now["state"], now["tasks"]) == ("done", {"committed": 2})
    followed = run("plan", "history", "many", "--follow", "-o", "json").out
    assert [json.loads(line)["kind"] for line in followed.splitlines()][-1] == "done"


def test_a_follower_gets_each_event_until_the_end(
    here: Here, zkplan_client: Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    plan = zkplan_client.create_plan()
    plan.add_task(pass_gate, [str(gate)], name="waits")
    heard: list[Event] = []
    listener = threading.Thread(target=lambda: heard.extend(plan.events()), daemon=True)
    listener.start()
    live = plan.events()
    assert next(live).kind == "added"
    plan.mark_ready()
    assert next(live).kind == "ready"
    with working(*here):
        assert next(live).kind == "claimed"
        gate.touch()
        assert [event.kind for event in live] == ["committed", "done"]
    listener.join(30)
    assert kinds(heard) == ["added", "ready", "claimed", "committed", "done"]


def test_a_coroutine_that_follows_a_plan_can_be_cancelled_at_once(
    here: Here, zkplan_client: Client
) -> None:
    plan = zkplan_client.create_plan()
    plan.add_task(int, name="waits")
    heard: list[Event] = []

    async def follow(until: str) -> None:
        async for event in plan.events():
            heard.append(event)
            if event.kind == until:
                return

    async def ends() -> None:
        while "zkplan-wait" in {each.name for each in threading.enumerate()}:
            await asyncio.sleep(0.01)

    async def both() -> None:
        await follow("added")
        waits = asyncio.create_task(follow("never"))
        while len(heard) < 2:
            await asyncio.sleep(0.01)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        await asyncio.wait_for(ends(), 5)  # by itself its thread would wait for 10 s
        assert [event.kind async for event in plan.events(follow=False)] == ["added"]
        plan.mark_ready()
        with working(*here):
            await follow("never")

    asyncio.run(asyncio.wait_for(both(), 60))
    assert kinds(heard) == ["added"] * 2 + ["added", "ready", "claimed", "committed", "done"]
    plan.remove()
    with pytest.raises(PlanNotFound):
        asyncio.run(follow("never"))


def test_the_history_records_the_claims_lapse_and_end_of_a_lease(here: Here) -> None:
    with zkplan.connect(*here, serializer="json") as client:
        client.prepare()
        plan = client.create_plan()
        plan.add_task(zkplan.kind("shrink"), [1], name="small")
        plan.mark_ready()
        with Leases(client) as leases:
            (lost,) = claim(leases, lease=1, wait=20)
            (done,) = claim(leases, lease=60, wait=20)
            assert [each.ok for each in leases.complete([(done.id, 7)])] == [True]
        told = [event for event in plan.history("small") if event.kind != "started"]
        assert kinds(told) == ["added", "claimed", "lapsed", "claimed", "committed"]
        first, second = (each.id.partition("/")[0] for each in (lost, done))
        assert [event.worker for event in told] == ["", first, first, second, second]
        assert [event.attempt for event in told] == [None, 0, 0, 1, 1]
        assert told[-1].seconds is not None


def test_a_merged_history_reads_the_same_as_before(
    here: Here, zkplan_client: Client, znodes: KazooClient
) -> None:
    run = zkplan_client.transport.run
    plan = zkplan_client.create_plan()
    for index in range(30):
        plan.add_task(int, [index])
    plan.mark_ready()
    with working(*here):
        plan.wait(30)
    before = plan.history()
    assert run(compact(plan.path)) > 30
    names = set(znodes.get_children(f"{plan.path}/{HISTORY}"))
    assert len(names) == 2
    assert any(name.startswith("merged-") for name in names)
    assert plan.history() == before
    assert run(compact(plan.path)) == 0


def test_a_full_history_is_trimmed(zkplan_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkplan.protocol.history.compaction.FULL_BYTES", 1)
    run = zkplan_client.transport.run
    plan = zkplan_client.create_plan()
    for index in range(6):
        plan.add_task(int, [index], name=f"task {index}")
        plan.add_task(int, [index])
        run(compact(plan.path))
    whole = run(read_history(plan.path))
    assert whole is not None
    assert len(whole.records) == 12
    run(compact(plan.path, most=1))
    events, left = read(zkplan_client.values, plan.path)
    cut = left.earlier.cut
    assert len(events) + cut.events == 12
    assert cut.events == 10
    assert 0 < cut.until * 1000 <= left.latest[0].ms
    assert "its first 10 events were let go" in missing(left)[0]


def test_a_plan_without_a_history_runs_and_says_so(here: Here, zkplan_client: Client) -> None:
    with zkplan_client.create_plan(history=False) as plan:
        tasks = [plan.add_task(int, [n]) for n in range(3)]
        total = plan.add_task(sum, [tasks])
    with working(*here):
        assert total.result(30) == 3
    with pytest.raises(HistoryNotKept, match="keeps no history"):
        plan.history()


@pytest.mark.parametrize("key", [None, "one"])
def test_adding_tasks_to_a_plan_without_a_history_records_nothing(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """Else its first transactions would be refused, and sent again."""
    plan = zkplan_client.create_plan(history=False, key=key)
    sent: list[Multi] = []
    submit = zkplan_client.transport.submit

    def noted(request: Request, done: Done) -> Call:
        if type(request) is Multi:
            sent.append(request)
        return submit(request, done)

    monkeypatch.setattr(zkplan_client.transport, "submit", noted)
    plan.add_tasks([zkplan.TaskSpec(int) for _ in range(10)])
    assert sent
    of_history = f"{plan.path}/{HISTORY}"
    assert not [op for multi in sent for op in multi.ops if op.path.startswith(of_history)]


def test_a_segment_name_taken_by_a_foreign_znode_is_skipped(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    plan.add_task(int)
    znodes.create(f"{plan.path}/{HISTORY}/seg-0000000003", b"not ours")
    plan.add_task(int)
    plan.add_task(int)
    events, found = read(zkplan_client.values, plan.path)
    assert Counter(kinds(events)) == {"added": 3}
    assert found.damaged == ["seg-0000000003"]


def test_a_refused_transaction_leaves_no_history(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan()
    plan.add_task(int)
    answer = zkplan_client.transport.ask(
        Multi([Create(f"{plan.path}/dead/0000000006"), Create(f"{plan.path}/dead/0000000006")])
    )
    assert answer.at == 1  # the operation of the step itself, as it counts them
    assert kinds(plan.history()) == ["added"]


def test_a_removal_deletes_the_history_first_while_a_worker_still_writes(
    zkplan_client: Client,
) -> None:
    with zkplan_client.create_plan() as plan:
        task = plan.add_task(int)
    history, order = f"{plan.path}/{HISTORY}", list[str]()
    # As of a claim that ends while the plan is removed: the deletion of the history is refused.
    late = Multi([Create(f"{history}/seg-", b"", sequence=True)])

    def watched(step: Step[int]) -> Step[None]:
        answer = None
        with suppress(StopIteration):
            while True:
                request = step.send(answer)
                ops = request.ops if isinstance(request, Multi) else ()
                deleted = {history, task.path} & {op.path for op in ops}
                if deleted and not order:
                    yield late
                order.extend(deleted)
                answer = yield request

    zkplan_client.transport.run(watched(removal.remove(plan.path)))  # type: ignore[arg-type]
    assert order == [history, history, task.path]
