"""The judge compares the tree of a run with its store, and finds faults in both."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import zkplan
from tests.tools.stores import Place, damaged
from zkplan.embedded import EmbeddedServer
from zkplan.errors import StoreUnavailable
from zkplan.protocol.history import compaction
from zkplan.protocol.history.compaction import History, compact, let_go, oldest
from zkplan.values.blobs import HISTORY, key_of
from zkplan.values.store_maintenance import keep_oldest

from .faults.target import EVERYBODY, Target
from .validate.blobs import Blobs
from .validate.history import RunHistory
from .validate.removals import Removed
from .validate.snapshot import remains_at_end
from .validate.windows import Window


@pytest.fixture
def place(zk_server: EmbeddedServer, tmp_path: Path) -> Place:
    return Place((zk_server.hosts, f"/{tmp_path.name}"), tmp_path / "store")


@pytest.fixture
def client(place: Place) -> Iterator[zkplan.Client]:
    with place.client() as client:
        yield client


@pytest.fixture
def plan(client: zkplan.Client) -> zkplan.Plan:
    """Its one task refers to two blobs, and will never run."""
    plan = client.create_plan("chaos-1")
    plan.add_task(operator.add, [[1], [2]])
    plan.cancel()
    return plan


@pytest.fixture
def blobs(place: Place) -> Blobs:
    return Blobs(place)


def test_a_reference_without_its_blob_is_found(
    blobs: Blobs, place: Place, plan: zkplan.Plan
) -> None:
    (place.folder_of(plan) / place.blobs(plan)[0]).unlink()
    (found,) = blobs.missing(plan)
    assert found.startswith("S10")


def test_an_unreferenced_blob_that_a_check_leaves_is_found(
    blobs: Blobs, place: Place, plan: zkplan.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.folder_of(plan) / f"add-{'0' * 32}").touch()
    assert blobs.judge(plan) == []
    assert (blobs.checked, len(place.blobs(plan))) == (1, 2)
    (place.folder_of(plan) / f"add-{'0' * 32}").touch()
    monkeypatch.setattr(plan, "check", lambda: None)
    (found,) = blobs.judge(plan)
    assert found.startswith("S10 after a check")


@pytest.fixture
def long(client: zkplan.Client, monkeypatch: pytest.MonkeyPatch) -> zkplan.Plan:
    """The tree keeps two transactions of its history."""
    monkeypatch.setattr(compaction, "FULL_BYTES", 1)
    monkeypatch.setattr(compaction, "SEGMENTS_MAX", 2)
    monkeypatch.setattr(compaction, "BYTES_MAX", 1)
    plan = client.create_plan()
    go_on(plan)
    return plan


def go_on(plan: zkplan.Plan) -> None:
    for _ in range(4):
        plan.add_task(int)
    plan.client.transport.run(compact(plan.path, has_store=True))


def told(place: Place, plan: zkplan.Plan) -> History:
    """Its history as the judge reads it, who remembers nothing."""
    with place.client() as fresh:
        found = remains_at_end(fresh, plan, 0).history
    assert found is not None
    return found


def test_a_history_is_judged_with_its_parts_in_the_store(
    blobs: Blobs, place: Place, client: zkplan.Client, long: zkplan.Plan
) -> None:
    go_on(long)
    whole = told(place, long)
    assert keep_oldest(client.transport, client.values, long.path) > 2
    moved = told(place, long)
    assert moved.records == whole.records
    assert (moved.cut.events, moved.damaged) == (0, [])
    assert blobs.judge(long) == []  # no blob without a reference
    parts = [name for name in place.blobs(long) if key_of(name) == HISTORY]
    part = place.folder_of(long) / parts[1]
    good = part.read_bytes()
    for bad, says in ((damaged(good), "is damaged"), (None, "is not in the store")):
        part.unlink()
        if bad is not None:
            part.write_bytes(bad)
        left = told(place, long)
        (found,) = left.damaged
        assert part.name in found
        assert says in found
        assert left.records == whole.records[-len(left.records) :]
        part.write_bytes(good)
    place.take_away()
    with pytest.raises(StoreUnavailable):
        told(place, long)
    place.bring_back()
    assert told(place, long) == moved


def test_the_judge_finds_events_missing_from_both_tree_and_store(
    place: Place, client: zkplan.Client, long: zkplan.Plan
) -> None:
    run, everything = client.transport.run, told(place, long).records
    assert keep_oldest(client.transport, client.values, long.path) == 1
    go_on(long)
    everything += told(place, long).records[len(everything) :]
    found = run(oldest(long.path))
    assert found is not None
    assert run(let_go(long.path, found))
    assert keep_oldest(client.transport, client.values, long.path) == 1
    left = told(place, long)
    assert left.damaged == [f"a beginning of {found.events} events (let go)"]
    first, last, _, _ = found.span
    assert left.records == [each for each in everything if not first <= each.number <= last]


AFTER, FAULT = 5.0, Window("a fault", 0.0, Target(store=True))


@pytest.mark.parametrize(
    ("written", "known", "windows", "found"),
    [
        (-AFTER, True, [], "was removed, and not its"),
        (AFTER, True, [], ""),
        (-AFTER, True, [FAULT], ""),
        (-AFTER, True, [Window("a fault", 0.0, EVERYBODY)], "was removed, and not its"),
        (-AFTER, False, [], "its plan is not known"),
    ],
)
def test_a_store_folder_left_by_a_removal_is_reported_unless_a_fault_excuses_it(
    blobs: Blobs,
    place: Place,
    plan: zkplan.Plan,
    tmp_path: Path,
    written: float,
    known: bool,
    windows: list[Window],
    found: str,
) -> None:
    folder, client, now = place.folder_of(plan), plan.client, time.monotonic()
    removed = {plan.path: Removed("chaos-1", now + 1, now)} if known else {}
    history = RunHistory(tmp_path)
    history.windows = windows
    assert list(blobs.left(client, removed, history)) == [], "while the plan stands"
    plan.remove()
    folder.mkdir()
    (folder / "blob").touch()
    at = time.time() + written
    os.utime(folder / "blob", (at, at))
    told = list(blobs.left(client, removed, history))
    assert [found in text for text in told] == [True] * bool(found), told
