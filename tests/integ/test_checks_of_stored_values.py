"""`zkplan plan check` finds lost values in the store, and deletes values that nothing needs."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest

import zkplan
from tests.tools.stores import Place, key_of
from tests.tools.support import Here, wait_until
from zkplan import Client, PlanFailed
from zkplan.values import check_blobs as compare


def wait_for(file: str) -> str:
    wait_until(Path(file).exists, "the gate opens")
    return "through"


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_check_reports_a_lost_blob_and_the_task_that_needs_it(
    place: Place, client: Client, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.create_plan() as plan:
        kept = plan.add_task(operator.add, [[1], [2]], name="the sum")
        dead = plan.add_task(operator.truediv, [1, 0], name="fails", attempts=1)
        plan.add_task(operator.neg, [dead], name="waits")
    with place.working(), pytest.raises(PlanFailed):
        plan.wait(30)
    assert plan.check().problems == []
    for name in place.blobs(plan):
        file = place.folder_of(plan) / name
        file.unlink() if how == "gone" else file.write_bytes(file.read_bytes()[::-1])
    report = plan.check(repair=False)
    said = "\n".join(report.problems)
    for part in ("(the sum): its result", "(waits): its function", key_of(kept), f"is {how}"):
        assert part in said
    assert report.unread == 0
    if how == "damaged":  # with less to read it says what it has not read
        monkeypatch.setattr(compare, "READ_BYTES_MAX", 0)
        bounded = plan.check(repair=False)
        assert len(bounded.problems) == 1
        assert bounded.unread == len(report.problems) - 1


def test_a_check_deletes_only_blobs_that_nothing_can_refer_to(
    place: Place, client: Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with client.create_plan() as plan:
        task = plan.add_task(wait_for, [str(gate)])
    digest = "0" * 32
    with place.working():
        wait_until(task.running, "the task runs")
        folder = place.folder_of(plan)
        live = f"{task.number}.0-{digest}"
        names = [live, f"{task.number}.7-{digest}", f"add-{digest}", f"add-{digest}.ab.part"]
        for name in [*names, "foreign"]:
            (folder / name).touch()
        before = set(place.blobs(plan))
        assert plan.check(repair=False).unreferenced == [f"{task.number}.7-{digest}"]
        assert set(place.blobs(plan)) == before
        assert plan.check().deleted == [f"{task.number}.7-{digest}"]
        assert set(place.blobs(plan)) == before - {f"{task.number}.7-{digest}"}
        plan.cancel()
        assert set(plan.check().deleted) == {f"add-{digest}", f"add-{digest}.ab.part"}
        gate.touch()


@pytest.mark.parametrize("is_done", [False, True])
def test_a_check_without_a_store_says_that_values_were_not_checked(
    place: Place, client: Client, here: Here, is_done: bool
) -> None:
    with client.create_plan() as plan:
        plan.add_task(operator.add, [[1], [2]], name="the sum")
    if is_done:
        with place.working():
            plan.wait(30)
    with zkplan.connect(*here) as bare:
        report = bare.plan(plan.path).check()
        assert report.problems == []
        for said in ("the sum", "not looked at", "--store or ZKPLAN_STORE"):
            assert said in report.unchecked
        with bare.create_plan() as small:
            small.add_task(operator.add, [[1], [2]])
        assert small.check().unchecked == ""
    assert plan.check().unchecked == ""
