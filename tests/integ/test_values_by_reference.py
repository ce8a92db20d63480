"""Values in a store work like others, are deleted when not needed, and are reported when lost."""

from __future__ import annotations

import logging
import operator
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.stores import Place, damaged, key_of
from tests.tools.support import Here, described, note, notes, wait_until, working
from zkplan import Client, ZkplanError
from zkplan.author.export import export_plan, import_plan
from zkplan.errors import PayloadUndecodable, StoredValueLost, StoreUnavailable


def noted(file: str, name: str, *values: Any) -> str:
    note(file, name)
    return name + "".join(map(str, values))


def wait_for(file: str) -> str:
    wait_until(Path(file).exists, "the gate opens")
    return "through"


# ---- they come and go


def test_every_value_lies_in_the_store_and_arrives(place: Place, client: Client) -> None:
    with client.create_plan() as plan:
        first = plan.add_task(operator.add, [[1], [2]], keep=True)
        last = plan.add_task(operator.add, [first, [3]])
    with place.working():
        assert plan.results([first, last], 30) == [[1, 2], [1, 2, 3]]
    assert key_of(last) in place.keys(plan)
    assert [
        len(client.transport.client.get(f"{plan.path}/results/{t.number}")[0]) < 200
        for t in (first, last)
    ] == [True, True]


def test_a_limit_of_the_environment_says_which_values_lie_in_the_store(
    place: Place, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKPLAN_INLINE_LIMIT", "100")
    with zkplan.connect(*here, store=place.options["store"]) as client:
        plan = client.create_plan()
        plan.add_task(len, ["x" * 50])
        assert place.keys(plan) == []
        plan.add_task(len, ["x" * 200])
        assert place.keys(plan) == ["add"]


def test_a_done_plan_keeps_only_the_blobs_of_kept_results(place: Place, client: Client) -> None:
    with client.create_plan() as plan:
        first = plan.add_task(operator.add, [[1], [2]])
        last = plan.add_task(operator.add, [first, [3]])
    assert set(place.keys(plan)) == {"add"}
    with place.working():
        plan.wait(30)
        place.wait_for_keys(plan, key_of(last))
    assert last.result(5) == [1, 2, 3]


def test_an_author_that_ends_a_plan_sweeps_its_blobs(place: Place, client: Client) -> None:
    """As if the worker that committed the last task had died before it looked for the end."""
    with client.create_plan() as plan:
        pass
    place.folder_of(plan).mkdir(parents=True)
    (place.folder_of(plan) / f"0000000005.0-{'0' * 32}").touch()
    assert plan.is_drained()
    place.wait_for_keys(plan)


def test_closing_a_client_waits_for_the_sweep(place: Place) -> None:
    with place.client() as client, place.working():
        with client.create_plan() as plan:
            plan.add_task(operator.add, [[1], [2]], keep=False)
        plan.wait(30)
    assert place.blobs(plan) == []


def test_a_sweep_that_fails_is_only_logged(
    place: Place, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with client.create_plan() as plan:
        plan.add_task(operator.add, [[1], [2]], keep=False)
    with place.working(), caplog.at_level(logging.WARNING, "zkplan.store"):
        place.folder_of(plan)  # known, before the store goes
        plan.wait(30)
        place.wait_for_keys(plan)
        place.take_away()
        client.sweeper.plan_is_done(plan.path)
        wait_until(lambda: "is not deleted" in caplog.text, "the failure is logged")


def test_without_a_store_a_finished_plan_starts_no_thread(here: Here) -> None:
    with zkplan.connect(*here) as client, working(*here):
        with client.create_plan() as plan:
            plan.add_task(abs, [-1])
        plan.wait(30)
        client.sweeper.plan_is_done(plan.path)
        names = [thread.name for thread in threading.enumerate()]
    # An embedded server of another test may have one.
    assert not client.sweeper._is_running, names


def test_a_removed_plan_leaves_no_folder_in_the_store(place: Place, client: Client) -> None:
    with client.create_plan() as plan:
        plan.add_task(operator.add, [[1], [2]])
    folder = place.folder_of(plan)
    assert folder.exists()
    assert plan.remove() == 1
    assert not folder.exists()


def test_a_plan_is_removed_while_its_store_is_away_and_its_folder_is_named(
    place: Place, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with client.create_plan() as plan:
        plan.add_task(operator.add, [[1], [2]])
    folder = place.folder_of(plan)
    place.take_away()
    assert plan.remove() == 1
    assert folder.name in caplog.text
    assert client.plans() == []


# ---- faults


def damage(place: Place, plan: zkplan.Plan, key: str) -> None:
    (blob,) = (name for name in place.blobs(plan) if name.startswith(f"{key}-"))
    file = place.folder_of(plan) / blob
    file.write_bytes(damaged(file.read_bytes()))


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_lost_blob_fails_its_task_with_a_message_that_says_what_to_do(
    place: Place, client: Client, how: str, tmp_path: Path
) -> None:
    with client.create_plan(retry_delay=0) as plan:
        task = plan.add_task(noted, [str(tmp_path / "ran"), "sum"], name="the sum")
    plan.pause()
    saved = tmp_path / "saved"
    shutil.copytree(place.folder_of(plan), saved)
    for name in place.blobs(plan):
        file = place.folder_of(plan) / name
        file.unlink() if how == "gone" else file.write_bytes(b"zkb1" + file.read_bytes())
    (place.folder_of(plan) / "another").touch()
    plan.resume()
    with place.working():
        with pytest.raises(StoredValueLost) as lost:
            task.result(30)
        for said in ("the sum", "Restore it", f"zkplan plan retry {int(plan.number)}"):
            assert said in str(lost.value)
        assert notes(tmp_path / "ran") == []
        shutil.copytree(saved, place.folder_of(plan), dirs_exist_ok=True)
        assert plan.retry() == 1
        assert task.result(30) == "sum"


def test_a_kept_result_that_is_lost_names_its_task(place: Place, client: Client) -> None:
    with client.create_plan() as plan:
        task = plan.add_task(operator.add, [[1], [2]], name="the sum")
    with place.working():
        plan.wait(30)
    damage(place, plan, key_of(task))
    with place.client() as other, pytest.raises(StoredValueLost, match=r"the sum.*Restore"):
        other.plan(plan.path).task("the sum").result(5)


def test_a_worker_without_a_store_leaves_the_task_to_others_and_says_why(
    place: Place, client: Client, here: Here, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with client.create_plan(attempts=1) as plan:
        task = plan.add_task(noted, [str(tmp_path / "ran"), "done"])
    with working(*here) as worker:
        wait_until(lambda: "left to others" in caplog.text, "the worker says why")
        assert worker.statistics().left_to_others >= 1
        assert "none is configured here" in caplog.text
        with place.working():
            assert task.result(30) == "done"
    assert notes(tmp_path / "ran") == ["done"]


@pytest.mark.parametrize("how", ["away", "another one"])
def test_a_worker_hands_back_while_its_store_is_away_and_goes_on_later(
    place: Place, client: Client, how: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with client.create_plan(attempts=1) as plan:
        task = plan.add_task(noted, [str(tmp_path / "ran"), "done"])
    if how == "away":
        place.take_away()
    else:
        folder = place.folder_of(plan)
        folder.rename(tmp_path / "elsewhere")
    with place.working():
        wait_until(lambda: "are handed back, and run when" in caplog.text, "tasks go back")
        wait_until(lambda: task.state() == "runnable", "the task is runnable again")
        if how == "away":
            place.bring_back()
        else:
            (tmp_path / "elsewhere").rename(folder)
        assert task.result(30) == "done"
    assert notes(tmp_path / "ran") == ["done"]


def start_and_wait(file: str, gate: str) -> str:
    note(file, "started")
    return wait_for(gate)


def test_a_result_waits_for_a_store_that_failed_while_its_task_ran(
    place: Place, client: Client, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    file, gate = tmp_path / "ran", tmp_path / "gate"
    with client.create_plan(attempts=1) as plan:
        task = plan.add_task(start_and_wait, [str(file), str(gate)])
    with place.working():
        wait_until(lambda: notes(file), "the task runs")
        place.take_away()
        gate.touch()
        wait_until(lambda: "keeps its result until there is a store" in caplog.text, "it waits")
        place.bring_back()
        assert task.result(30) == "through"
    assert notes(file) == ["started"]


def test_an_author_whose_store_is_away_adds_nothing(place: Place, client: Client) -> None:
    plan = client.create_plan()
    place.folder.mkdir(exist_ok=True)
    place.take_away()
    with pytest.raises(StoreUnavailable, match="cannot be"):
        plan.add_task(operator.add, [[1], [2]])
    assert plan.status().tasks == 0


# ---- archive


def test_a_plan_with_blobs_moves_with_them(
    place: Place, client: Client, there: Here, tmp_path: Path
) -> None:
    with client.create_plan() as plan:
        first = plan.add_task(operator.add, [[1], [2]], keep=True)
    with place.working():
        plan.results([first], 30)
    done = plan
    with client.create_plan("goes on") as plan:
        first = plan.add_task(noted, [str(tmp_path / "ran"), "first"], keep=True, name="first")
        middle = plan.add_task(wait_for, [str(tmp_path / "gate")], attempts=1, name="middle")
        plan.add_task(noted, [str(tmp_path / "ran"), "last", first, middle], name="last")
    with place.working(grace=0.1):
        first.result(30)
        plan.pause()
    export_plan(plan, tmp_path / "plan", wait=10, remove=True)
    export_plan(done, tmp_path / "done")
    target = Place(there, tmp_path / "other store")
    with target.client() as other:
        found = other.plan(int(import_plan(other, tmp_path / "plan")))
        again = other.plan(int(import_plan(other, tmp_path / "plan", copy=True)))
        kept = other.plan(int(import_plan(other, tmp_path / "done")))
        assert target.folder_of(found) != target.folder_of(again)
        assert target.blobs(found) == target.blobs(again)
        assert found.check().problems == again.check().problems == []
        assert kept.results(timeout=5) == [[1, 2]]
        shutil.rmtree(place.folder)
        (tmp_path / "gate").touch()
        found.resume()
        again.remove()
        with target.working():
            assert found.task("last").result(30) == "lastfirstthrough"
            found.wait(30)
    assert sorted(notes(tmp_path / "ran")) == ["first", "last"]


def test_an_import_without_a_store_is_refused_before_anything_is_written(
    place: Place, client: Client, here: Here, tmp_path: Path
) -> None:
    plan = client.create_plan("large")
    plan.add_task(operator.add, [[1], [2]])
    export_plan(plan, tmp_path / "plan")
    plan.remove()
    with zkplan.connect(*here) as bare:
        with pytest.raises(ZkplanError, match="need a store"):
            import_plan(bare, tmp_path / "plan")
        assert bare.plans() == []


def test_an_export_without_the_store_or_with_a_lost_blob_leaves_no_file(
    place: Place, client: Client, here: Here, tmp_path: Path
) -> None:
    plan = client.create_plan("large")
    plan.add_task(operator.add, [[1], [2]])
    with zkplan.connect(*here) as bare, pytest.raises(PayloadUndecodable, match="none is config"):
        export_plan(bare.plan(plan.path), tmp_path / "plan")
    for name in place.blobs(plan):
        (place.folder_of(plan) / name).unlink()
    (place.folder_of(plan) / "another").touch()
    with place.client() as other, pytest.raises(StoredValueLost, match="cannot be exported"):
        export_plan(other.plan(plan.path), tmp_path / "plan")
    assert not (tmp_path / "plan").exists()


def test_a_failed_import_leaves_no_folder_in_the_store(
    place: Place, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = client.create_plan("large")
    plan.add_task(operator.add, [[1], [2]])
    export_plan(plan, tmp_path / "plan", remove=True)
    real, calls = client.values.store.write, []  # type: ignore[union-attr]

    def full(*arguments: Any) -> None:
        real(*arguments)
        calls.append(arguments)
        raise StoreUnavailable("the store is full")

    monkeypatch.setattr(client.values.store, "write", full)
    with pytest.raises(StoreUnavailable, match="full"):
        import_plan(client, tmp_path / "plan")
    assert calls
    assert client.plans() == []
    assert list(place.folder.glob("plan-*")) == []


def test_the_function_of_a_map_is_stored_once(place: Place, client: Client) -> None:
    large = bytes(1000)
    with client.create_plan() as plan:
        found = plan.map(lambda number: len(large) + number, range(6), chunksize=2)
    # One for the function, and one for the constant arguments of each task.
    assert place.keys(plan) == ["add"] * 4
    with place.working():
        assert list(found) == [1000 + number for number in range(6)]


def test_a_value_in_the_store_is_shown_with_its_size(place: Place, client: Client) -> None:
    with client.create_plan() as plan:
        task = plan.add_task(bytes, [5])
    with place.working():
        task.result(30)
    assert described(task, values=True)["value"] == repr(bytes(5))
    [outcome] = plan.outcomes()
    folder = place.folder_of(plan)
    assert outcome.size in [path.stat().st_size for path in folder.iterdir()]
