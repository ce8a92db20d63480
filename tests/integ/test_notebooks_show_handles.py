"""Notebooks show true counts of a plan, its status and a task, and no markup from their names."""

from __future__ import annotations

import pytest

import zkplan
from tests.tools.support import fail
from zkplan import Client

HOSTILE = "<img src=x onerror=alert(1)>"

pytestmark = pytest.mark.either


def test_a_notebook_shows_counts_and_never_markup_of_a_name(
    zkplan_client: Client, worker: zkplan.Worker
) -> None:
    with zkplan_client.create_plan(HOSTILE) as plan:
        good = plan.add_task(int, ["7"], name="good")
        bad = plan.add_task(fail, name=HOSTILE, attempts=1)
    good.result(timeout=30)
    bad.exception(timeout=30)

    shown = plan._repr_html_()
    assert "2 tasks: 1 finished, 1 dead" in shown
    assert "1 finished, 1 dead" in plan.status()._repr_html_()
    dead = bad._repr_html_()
    assert dead is not None
    assert "dead" in dead
    assert "1 of 1 used" in dead
    for html in (shown, plan.status()._repr_html_(), dead):
        assert "<img" not in html
        assert "&lt;img" in html


def test_a_notebook_shows_why_a_plan_cannot_be_read(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan("gone")
    with plan:
        task = plan.add_task(int)
        assert task._repr_html_() is None  # and the add is still kept back
        assert plan.status().added == 0
    plan.remove()
    assert "PlanNotFound" in plan._repr_html_()
    assert "PlanNotFound" in str(task._repr_html_())
