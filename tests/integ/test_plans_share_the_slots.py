"""Plans that run at the same time share the slots of the workers by their weights."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import zkplan
from tests.tools.support import Here, Run, wait_until, working
from zkplan.errors import InvalidTask, PlanCancelled, PlanDrained, PlanError

#: The notes of tasks: when each ended, the name of its plan, and its seconds.
RECORD: list[tuple[float, str, float]] = []
#: Seconds for which a share is measured, and seconds after a change that are not measured.
WINDOW_S, FOLLOWS_S = 1.2, 1.0


def noted(plan: str, *_: object) -> None:
    began = time.monotonic()
    threading.Event().wait(0.02)
    RECORD.append((time.monotonic(), plan, time.monotonic() - began))


def slowly(plan: str, *_: object) -> None:
    threading.Event().wait(0.23)  # such long tasks are not claimed ahead
    noted(plan)


@contextmanager
def beside(client: zkplan.Client, weight: int, size: int = 600) -> Iterator[list[zkplan.Plan]]:
    """An old plan of that weight and a new one, with a long queue each; cancelled at the end."""
    RECORD.clear()
    made = []
    for name, its_weight in (("old", weight), ("new", 1)):
        with client.create_plan(name, weight=its_weight) as plan:
            plan.map(noted, [name] * size, chunksize=1)
        made.append(plan)
    try:
        yield made
    finally:
        for plan in made:
            plan.cancel()


def share_of(plan: str) -> float:
    """The part of the slots' time that this plan has from now on, by the tasks' own record."""
    begin = time.monotonic()
    threading.Event().wait(WINDOW_S)
    had: Counter[str] = Counter()
    for when, name, seconds in RECORD:
        if when >= begin:
            had[name] += seconds  # type: ignore[assignment]
    return had[plan] / had.total()


@pytest.mark.slow
def test_shares_follow_the_weights_and_their_changes_within_a_tenth(
    zkplan_client: zkplan.Client, here: Here, run: Run
) -> None:
    with beside(zkplan_client, 3, 2000) as (heavy, light), ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(working(*here, threads=2))
        wait_until(lambda: len(RECORD) > 50, "the workers are busy")
        assert share_of("old") == pytest.approx(0.75, rel=0.1)
        told = run("plan", "set", light.number, "--weight", "9", "-o", "json")
        assert (told.data["weight"], told.data["priority"]) == (9, 0)
        threading.Event().wait(FOLLOWS_S)
        assert share_of("new") == pytest.approx(0.75, rel=0.1)
        # A new small plan starts at once, and a higher priority has all.
        with zkplan_client.create_plan("small") as small:
            small.add_task(noted, ["small"])
        begin = time.monotonic()
        wait_until(lambda: any(name == "small" for _, name, _ in RECORD), "the small plan runs")
        assert time.monotonic() - begin < 1.0
        heavy.set(priority=1)
        threading.Event().wait(FOLLOWS_S)
        assert share_of("old") == 1.0
        assert heavy.status().weight == 3
        assert heavy.status().priority == 1


@pytest.mark.parametrize(("policy", "share"), [("greedy", 1.0), ("balanced", 0.5)])
def test_a_worker_shares_its_slots_by_its_policy(
    zkplan_client: zkplan.Client, here: Here, policy: str, share: float
) -> None:
    with beside(zkplan_client, 7), working(*here, of_worker={"share": policy}):
        wait_until(lambda: len(RECORD) > 20, "the worker is busy")
        assert share_of("old") == pytest.approx(share, rel=0.1)


def test_chains_of_an_old_plan_do_not_starve_a_new_plan(
    zkplan_client: zkplan.Client, here: Here
) -> None:
    """A commit claims the next task of a chain by itself, so no slot would ever be free."""
    RECORD.clear()
    with zkplan_client.create_plan("old") as old:
        for _ in range(2):
            before: list[zkplan.Task] = []
            for _ in range(30):
                before = [old.add_task(slowly, ["old", *before])]
    with working(*here, threads=2):
        wait_until(lambda: len(RECORD) >= 2, "the chains run")
        with zkplan_client.create_plan("new") as new:
            new.map(slowly, ["new"] * 3, chunksize=1)
        new.wait(10)
        assert Counter(name for _, name, _ in RECORD)["old"] < 30
        old.cancel()


def test_the_share_of_a_plan_is_not_set_before_it_is_ready_and_survives_a_pause(
    zkplan_client: zkplan.Client,
) -> None:
    with pytest.raises(InvalidTask, match="weight must be a whole number from 1 to 1000, not 0"):
        zkplan_client.create_plan(weight=0)
    plan = zkplan_client.create_plan("p", weight=2, priority=3)
    plan.add_task(noted, ["p"])
    with pytest.raises(PlanError, match="give weight and priority to create_plan"):
        plan.set(weight=5)
    plan.mark_ready()
    with pytest.raises(InvalidTask, match="priority must be -4999 to 5000, not 5001"):
        plan.set(priority=5001)
    assert (plan.status().weight, plan.status().priority) == (2, 3)
    plan.set(weight=5)
    plan.set(priority=-1)
    plan.pause()
    plan.set(weight=6)
    assert plan.status().state == "paused"
    plan.resume()
    assert (plan.status().weight, plan.status().priority) == (6, -1)
    plan.cancel()
    with pytest.raises(PlanCancelled, match="does not run any more"):
        plan.set(weight=1)
    done = zkplan_client.create_plan("empty")
    done.mark_ready()
    done.wait(10)
    with pytest.raises(PlanDrained):
        done.set(weight=1)
