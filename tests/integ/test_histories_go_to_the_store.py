"""The part of a history that is too large for the tree moves to the store and is still read."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import zkplan
from tests.tools.stores import Place, damaged
from tests.tools.support import Here, Run, pass_gate, started, wait_until
from zkplan import Client, Event, Plan
from zkplan.author.export import export_plan, import_plan
from zkplan.protocol.failpoints import VARIABLE
from zkplan.protocol.history import compaction
from zkplan.protocol.history.compaction import cut_of, spans_of
from zkplan.protocol.layout import HISTORY
from zkplan.protocol.requests import ReadChildren, ReadData
from zkplan.runtime import retention as tidying
from zkplan.service.leases import Leases
from zkplan.values.store_maintenance import keep_oldest
from zkplan.views.history import missing, read, read_state, state_at

from .serving import Service

TASKS = 30


def shout(number: int, _: object) -> int:
    sys.stdout.write(f"number {number}")
    return number


@pytest.fixture
def place(here: Here, tmp_path: Path) -> Place:
    """Only what is large lies there; and histories."""
    return Place(here, tmp_path / "store", 32 * 1024)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree keeps little of a history, and workers of this process see to that all the time."""
    monkeypatch.setattr(compaction, "FULL_BYTES", 1)
    monkeypatch.setattr(compaction, "SEGMENTS_MAX", 8)
    monkeypatch.setattr(compaction, "BYTES_MAX", 300)
    monkeypatch.setattr(tidying, "SEGMENTS", 8)
    monkeypatch.setattr(tidying, "TIDYING_PERIOD_S", 0.02)
    monkeypatch.setattr(tidying, "QUIET_S", 0.2)


def chain_of(plan: Plan, last_queue: str = "default") -> list[zkplan.Task]:
    """Each waits for the one before it, so each transaction is of one or two."""
    tasks = list[zkplan.Task]()
    with plan:
        for number in range(TASKS):
            queue = last_queue if number == TASKS - 1 else "default"
            name = f"task {number}"
            tasks.append(plan.add_task(shout, [number, tasks[-1:]], name=name, queue=queue))
    return tasks


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events if event.kind != "started"]


def places(events: list[Event]) -> list[tuple[int, str, str]]:
    """Without what an earlier event has told, such as the name of a task."""
    return [(event.position, event.kind, event.task) for event in events]


def in_tree(plan: Plan) -> int:
    """The bytes that the tree holds of it, merged."""
    names = plan.client.transport.ask(ReadChildren(f"{plan.path}/{HISTORY}")) or ()
    return sum(span.size for span in spans_of(names))


def cut(plan: Plan) -> compaction.Cut:
    return cut_of(plan.client.transport.ask(ReadData(f"{plan.path}/{HISTORY}")))


def wait_for_store(plan: Plan) -> None:
    """Until what is too much for the tree is in the store."""
    run = plan.client.transport.run
    wait_until(
        lambda: cut(plan).stored and run(compaction.oldest(plan.path)) is None,
        "it is in the store",
    )


def is_whole(events: list[Event]) -> None:
    """Each task was added, claimed and committed once, and nothing is told twice."""
    told = Counter((event.kind, event.name) for event in events if event.task)
    for number in range(TASKS):
        for kind in ("added", "claimed", "committed"):
            assert told[kind, f"task {number}"] == 1
    assert [event.position for event in events] == sorted(event.position for event in events)
    assert len(set(events)) == len(events)


def test_old_history_moves_to_the_store_and_all_with_the_store_read_it_whole(
    here: Here, place: Place, run: Run, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.client() as client, zkplan.connect(*here) as without:
        plan = client.create_plan("long")
        heard = list[Event]()
        listener = threading.Thread(target=lambda: heard.extend(plan.events()), daemon=True)
        listener.start()
        with place.working(of_worker={"task_output": 4096}):
            tasks = chain_of(plan)
            plan.wait(60)
            wait_for_store(plan)
        listener.join(30)
        events = plan.history()
        is_whole(events)
        assert heard == events
        assert set(place.keys(plan)) == {"history"}  # it is not swept
        assert cut(plan).lost == 0
        assert missing(read(client.values, plan.path)[1]) == []
        monkeypatch.setenv("ZKPLAN_STORE", place.options["store"])
        names = [f"task {number}" for number in range(TASKS)]
        listed = run("task", "ls", "long", "--all", "-o", "json").data
        assert [row["name"] for row in listed] == names
        shown = run("task", "show", "long", "task 0", "-o", "json").data
        assert (shown["ended"], shown["attempts_used"]) == ("committed", 1)
        assert "number 0" in run("task", "logs", "long", "task 0").out
        middle = next(event for event in events if event.name == "task 9" and event.size)
        assert state_at(client.values, plan.path, middle.when).tasks[int(tasks[9].number)].gone
        told = run("plan", "history", "long", "-o", "json")
        assert (len(told.data), told.err) == (len(events), "")
        assert plan.check().problems == []

        service = Service(*here, store=place.options["store"]).start()
        try:
            page = service.get(f"/plans/{int(plan.number)}/history?limit=500")
        finally:
            service.stop()
        assert (len(page["items"]), page["missing"]) == (len(events), [])

        # Without the store as ever, and what to do.
        left = read(without.values, plan.path)[0]
        assert places(left) == places(events)[-len(left) :]
        gone = len(events) - len(left)
        monkeypatch.delenv("ZKPLAN_STORE")
        for told in (run("plan", "history", "long"), run("plan", "timeline", "long")):
            assert f"its first {gone} events were let go: its size is limited; {gone}" in told.err
            assert "none is configured here: give the one of its workers" in told.err
        assert "a store, and none" in run("task", "ls", "long", "--all").err
        # Nor does somebody without it let go what others keep.
        without.transport.run(compaction.compact(plan.path, 1))
        assert cut(plan).lost == 0

        # An export has no history, so it needs no store.
        folder, file = place.folder_of(plan), place.folder.parent / "file"
        export_plan(plan, file, remove=True)
        assert not folder.exists()
        moved = without.plan(import_plan(without, file))
        found = read(without.values, moved.path)[1]
        assert missing(found) == ["it begins with the import of the plan"]


def test_a_lease_service_moves_history_to_the_store_if_no_worker_runs(
    here: Here, place: Place, short: None
) -> None:
    with zkplan.connect(*here, serializer="json", **place.options) as client:
        client.prepare()
        plan = client.create_plan()
        for number in range(TASKS):
            plan.add_task(zkplan.kind("shrink"), [number])
        with Leases(client):
            wait_for_store(plan)
        assert kinds(plan.history()) == ["added"] * TASKS


def test_a_damaged_or_missing_part_is_named_and_hides_no_later_part(
    place: Place, client: Client, short: None
) -> None:
    with place.working():
        plan = client.create_plan()
        chain_of(plan)
        plan.wait(60)
        wait_for_store(plan)
    events, folder = plan.history(), place.folder_of(plan)
    parts = place.blobs(plan)
    assert len(parts) > 1
    wrong = folder / parts[-2]
    good = wrong.read_bytes()
    for bad, says in ((damaged(good), "is damaged"), (good[:9], "is damaged"), (None, "is not")):
        if bad is None:
            wrong.unlink()
        else:
            wrong.write_bytes(bad)
            assert f"restore {folder.name}/{wrong.name}" in str(plan.check().problems)
        with place.client() as fresh:  # the other one remembers what it has read
            left, found = read(fresh.values, plan.path)
        assert places(left) == places(events)[-len(left) :]
        (told,) = missing(found)
        assert f"{len(events) - len(left)} were let go" in told
        assert f"{folder.name}/{wrong.name}" in told
        assert says in told
    wrong.write_bytes(good)
    with place.client() as fresh:
        assert fresh.plan(plan.path).history() == events


def test_an_unreachable_store_stops_no_plan_and_gets_the_rest_later(
    place: Place, client: Client, short: None, told: Callable[[str], object]
) -> None:
    plan = client.create_plan()
    place.folder.mkdir()
    with place.working():
        place.take_away()
        chain_of(plan)
        plan.wait(60)
        told(f"the oldest history of {plan.path} stays in the tree")
        wait_until(lambda: in_tree(plan) > 600, "it is merged")
        is_whole(plan.history())
        assert cut(plan) == compaction.Cut()
        place.bring_back()
        wait_for_store(plan)
    is_whole(plan.history())
    assert cut(plan).lost == 0


def test_history_dropped_while_the_store_was_away_shows_no_task_as_running(
    place: Place, client: Client, short: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tidying, "TIDYING_PERIOD_S", 3600.0)
    monkeypatch.setattr(compaction, "BYTES_MAX", 1)
    run, plan, gate = client.transport.run, client.create_plan(), tmp_path / "gate"
    slow = plan.add_task(pass_gate, [str(gate)])
    plan.mark_ready()

    def more() -> None:
        for _ in range(4):
            plan.add_task(int, priority=-5)
        run(compaction.compact(plan.path, has_store=True))

    with place.working(threads=1):
        wait_until(lambda: plan.history(slow)[-1].kind == "claimed", "it runs")
        more()
        more()
        assert keep_oldest(client.transport, client.values, plan.path) > 0
        before = cut(plan)
        plan.pause()  # or the worker might end it
        gate.touch()
        wait_until(lambda: plan.history(slow)[-1].kind == "committed", "it has ended")
    more()
    more()
    monkeypatch.setattr(compaction, "AWAY_BYTES_MAX", 1)  # as if there was much more
    run(compaction.compact(plan.path, has_store=True))
    lost = cut(plan).lost
    assert lost > 0
    assert cut(plan).stored == before.stored
    monkeypatch.setattr(compaction, "AWAY_BYTES_MAX", 10_000)
    more()
    more()
    assert keep_oldest(client.transport, client.values, plan.path) > 0
    state, found = read_state(client.values, plan.path)
    assert missing(found) == [f"of its older events {lost} were let go: its size is limited"]
    assert int(slow.number) not in state.tasks
    assert kinds(plan.history(slow)) == ["added", "claimed"]  # it has ended in the gap
    early = state_at(client.values, plan.path, plan.history(slow)[-1].when)
    assert early.tasks[int(slow.number)].place == "c"


def test_a_death_between_writing_a_part_and_deleting_records_nothing_twice(
    here: Here, place: Place, tmp_path: Path, short: None
) -> None:
    """The part lies in the store, and its znode still in the tree."""
    with place.client() as client:
        plan = client.create_plan()
        # The last task is left to the second worker. Only who writes a history tidies it up, and
        # the first one may have run all of its tasks before it dies.
        chain_of(plan, last_queue="last")
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / "sitecustomize.py").write_text(
            "from zkplan.protocol.history import compaction\n"
            "from zkplan.runtime import retention as tidying\n"
            "compaction.FULL_BYTES, compaction.SEGMENTS_MAX, compaction.BYTES_MAX = 1, 8, 300\n"
            "tidying.SEGMENTS, tidying.TIDYING_PERIOD_S, tidying.QUIET_S = 8, 0.02, 0.2\n"
        )
        paths = os.pathsep.join(
            filter(None, [str(tmp_path / "code"), os.environ.get("PYTHONPATH")])
        )
        env = os.environ | {"PYTHONPATH": paths, VARIABLE: "store.written=kill"}
        hosts, root = here
        options = ("--hosts", hosts, "--root", root, "--store", place.options["store"])
        with started(sys.executable, "-m", "zkplan", "worker", *options, env=env) as process:
            assert process.wait(60) == -9
        (part,) = place.blobs(plan)
        assert part.startswith("history-")
        assert cut(plan) == compaction.Cut()
        events = plan.history()
        assert len(set(events)) == len(events)
        with place.working(of_worker={"queues": ["default", "last"]}):
            plan.wait(60)
            wait_for_store(plan)
        after = plan.history()
        assert after[: len(events)] == events
        told = Counter((event.kind, event.name) for event in after if event.kind == "committed")
        assert set(told.values()) == {1}
        assert len(told) == TASKS
        assert len(set(after)) == len(after)
        assert part in place.blobs(plan)
