"""Peace has a bound that nothing starts anew, and a plan that stays beyond it is found."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from zkplan.stress.history import Recorder

from . import peace
from .actors.workloads import Workload
from .faults.catalogue import CATALOGUE
from .peace import Peace, recovery_s
from .quiet import Quiet
from .run import Run
from .validate.history import RunHistory
from .validate.validator import Validator

SEED = 5
NAME = f"chaos-{SEED}"


class Stubborn(Validator):
    """Finds another plan done at each look, while one stays."""

    stays = True

    @property
    def standing(self) -> list[str]:
        self.finished += 1
        return [NAME] if self.stays else []

    @standing.setter
    def standing(self, names: list[str]) -> None:
        """It says what it likes."""

    def give_up(self, names: Collection[str]) -> list[str]:
        return [f"L3 {name} is not done" for name in names]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(peace, "recovery_s", lambda session_s: 0.3)
    arena = Quiet(tmp_path)
    validator = Stubborn(arena)
    plan = validator.history._plan(SEED)
    plan.workload = Workload.make(SEED, "one")
    return Run(arena, validator)


def test_a_plan_that_stays_without_a_fault_is_found_in_the_middle_of_a_run(run: Run) -> None:
    run.breathe()
    assert run.outcome.violations == [f"L3 {NAME} is not done"]


class Silent(Stubborn):
    """Has nothing to say of what stood for too long."""

    def give_up(self, names: Collection[str]) -> list[str]:
        return []


@pytest.mark.parametrize("where", ["in between", "at the end"])
def test_a_bound_that_was_missed_is_told_though_nothing_stands_any_more(
    run: Run, where: str
) -> None:
    run.validator.__class__ = Silent
    if where == "in between":
        run.breathe()
    else:
        run._drain(run._peace())
    (found,) = run.outcome.violations
    assert found.startswith("L3 without new faults it took ")


def test_the_end_of_other_plans_does_not_put_off_the_end_of_peace(run: Run) -> None:
    began = time.monotonic()
    run._drain(run._peace())
    assert run.outcome.violations == [f"L3 {NAME} is not done"]
    assert time.monotonic() - began < 30.0


def test_who_breathes_waits_for_those_that_stood_at_first(run: Run) -> None:
    validator = run.validator
    assert isinstance(validator, Stubborn)
    validator.stays = False
    run.breathe()
    assert not run.broken()
    (breath,) = run.outcome.breaths
    assert breath.plans == 0


def test_each_plan_that_stands_adds_its_work_once(run: Run) -> None:
    made = Peace(run.validator, 3.0)
    once = made.allowed_s
    assert once == pytest.approx(0.3 + run.validator.history.plans[NAME].workload.work_s)
    made.see()
    assert made.allowed_s == once


def test_the_work_of_a_plan_is_that_of_its_longest_path() -> None:
    assert Workload.make(1, "one slow").work_s == pytest.approx(1.52)
    assert Workload.make(1, "join").work_s == pytest.approx(0.06)
    # Two failures with delays, and a retry that somebody has to ask for.
    assert Workload.make(1, "retried").work_s == pytest.approx(0.82)
    for shape in ("random", "chain", "adding", "failing", "held", "long"):
        for seed in range(20):
            work = Workload.make(seed, shape)
            assert max(item.seconds for item in work.items.values()) < work.work_s < 40.0


def test_a_longer_session_takes_longer_to_be_noticed() -> None:
    assert recovery_s(10.0) - recovery_s(3.0) == pytest.approx(7.0)
    assert recovery_s(3.0) < 45.0 + 30.0, "what it was before it was derived"


def test_how_soon_a_task_begins_after_an_outage_is_known(tmp_path: Path) -> None:
    journal, history = Recorder(str(tmp_path), "worker-2"), RunHistory(tmp_path, "one")
    facts = {"key": "T", "number": "", "worker": "w", "pid": 2, "by": ""}
    facts |= {"digest": "", "got": [], "keys": 0}
    for n in range(2):
        line = {"plan": NAME, "n": n, "a": n, "uid": str(n), "damaged": [], **facts}
        journal.write("begin", **line)
    journal.close()
    history.read()
    first, second = sorted(history.began_at)
    assert history.goes_on_s(first - 1.0) == pytest.approx(1.0)
    assert history.goes_on_s(first + (second - first) / 2) == pytest.approx((second - first) / 2)
    assert history.goes_on_s(second + 1.0) is None


def test_the_time_until_plans_go_on_is_taken_after_faults_of_all_servers(tmp_path: Path) -> None:
    arena = Quiet(tmp_path)
    run = Run(arena, Validator(arena))
    for name in ("outage", "all servers down for 20 s", "server killed", "quorum lost"):
        run._is_healed(CATALOGUE[name].fault())
    for name in ("leader killed", "follower paused", "worker killed"):
        run._is_healed(CATALOGUE[name].fault())
    assert [name for name, _ in run._back] == [
        "outage",
        "all servers down for 20 s",
        "server killed",
        "quorum lost",
    ]
    events = [json.loads(line) for line in (tmp_path / "arena.jsonl").read_text().splitlines()]
    assert all(event["event"] == "healed" for event in events)
