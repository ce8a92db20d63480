"""A store that comes and goes: messages about it are right, and no blob is left behind."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.stores import Place
from tests.tools.support import Here, wait_until
from zkplan import Client
from zkplan.errors import PlanNotFound, StoreUnavailable, ZooKeeperUnavailable
from zkplan.integrations.prometheus_process import Health
from zkplan.protocol.features import remove_plan as removal
from zkplan.values.store import Store


def said_by(wait: Callable[[float], Any]) -> str:
    with pytest.raises(zkplan.WaitTimeout) as ended:
        wait(0.2)
    return str(ended.value)


def test_a_read_that_fails_while_the_store_comes_back_loses_no_value(
    place: Place, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.create_plan() as plan:
        plan.add_task(operator.add, [[1], [2]])
    store, (blob, *_) = Store(place.options["store"]), place.blobs(plan)
    real = store._fs.open

    def away(path: str, mode: str) -> Any:
        monkeypatch.setattr(store._fs, "open", real)
        raise FileNotFoundError(path)

    monkeypatch.setattr(store._fs, "open", away)
    with pytest.raises(StoreUnavailable, match="could not be read"):
        store.read(place.folder_of(plan).name, blob)
    assert store.read(place.folder_of(plan).name, blob)


def test_an_unmounted_store_folder_is_reported_and_not_taken_for_an_empty_one(
    place: Place, client: Client, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with client.create_plan() as plan:
        plan.add_task(operator.add, [[1], [2]])
    folder = place.folder_of(plan)
    place.folder.rename(tmp_path / "not mounted")
    with pytest.raises(StoreUnavailable, match="unmounted perhaps"):
        plan.check()
    assert plan.remove() == 1
    assert f"not its folder {folder.name}" in caplog.text


@pytest.mark.parametrize("how", ["away", "another one"])
def test_a_wait_that_ends_says_that_the_plan_waits_for_the_store(
    place: Place, client: Client, here: Here, how: str, tmp_path: Path
) -> None:
    with client.create_plan() as plan:
        task = plan.add_task(operator.add, [[1], [2]])
    other = Place(here, tmp_path / "other")
    if how == "away":
        place.take_away()
    with (place if how == "away" else other).working() as worker:
        wait_until(lambda: "StoreUnavailable" in task.info().last_error, "the worker has told")
        assert "the store cannot be used" in Health(worker).ready()
        named = f"the store file://{place.folder if how == 'away' else other.folder} "
        # Between two tries the task is claimed for a moment.
        wait_until(lambda: named in said_by(plan.wait), "the plan's wait names the store")
        wait_until(lambda: named in said_by(task.result), "the task's wait names it")


def test_a_repeated_removal_deletes_the_folder_that_an_unanswered_one_left(
    place: Place, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.create_plan() as plan:
        plan.add_task(operator.add, [[1], [2]])
    folder, real = place.folder_of(plan), removal.remove

    def unanswered(plan_path: str, *options: Any) -> Any:
        yield from real(plan_path, *options)
        raise ZooKeeperUnavailable("no answer")

    monkeypatch.setattr(removal, "remove", unanswered)
    with pytest.raises(ZooKeeperUnavailable):
        plan.remove()
    monkeypatch.undo()
    assert folder.exists()
    with pytest.raises(PlanNotFound):
        plan.remove()
    assert not folder.exists()
