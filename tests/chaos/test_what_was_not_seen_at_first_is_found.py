"""The checker finds what a reader of it got past it: swapped values, a pause between two looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from .actors.workloads import digest_of
from .judges.case import Case
from .judges.checks import late_executions, violations
from .judges.checks_operators import violations_of_operations
from .judges.histories import Execution
from .judges.operations import Operation
from .test_the_checker_bites import doomed, honest


def numbered(case: Case) -> Case:
    """As the author was told, and as the tasks recorded."""
    for batch in case.plan.batches.values():
        batch.numbers = [f"number of {key}" for key in batch.keys]
    for execution in case.everything:
        execution.number = f"number of {execution.key}"
    kept = [each._replace(number=f"number of {each.key}") for each in case.left.kept]
    return replace(case, left=replace(case.left, kept=kept))


def arguments_in_another_order(case: Case) -> Case:
    needy = next(each for each in case.everything if len(each.got) > 1)
    workload = case.plan.workload
    pairs = [(key, workload.digests[key]) for key in workload.items[needy.key].needs]
    assert digest_of(needy.key, pairs) == needy.digest
    needy.digest = digest_of(needy.key, pairs[::-1])
    return case


def results_under_each_others_numbers(case: Case) -> Case:
    one, other, *others = case.left.kept
    swapped = [one._replace(number=other.number), other._replace(number=one.number), *others]
    return replace(case, left=replace(case.left, kept=swapped))


def tasks_under_each_others_numbers(case: Case) -> Case:
    one, other, *_ = case.everything
    one.number, other.number = other.number, one.number
    return case


TAMPERED: dict[str, Callable[[Case], Case]] = {
    "S3 arguments are exact": arguments_in_another_order,
    "the kept result of": results_under_each_others_numbers,
    "ran as task": tasks_under_each_others_numbers,
}


@pytest.mark.parametrize("what", TAMPERED)
def test_swapped_values_are_found(tmp_path: Path, what: str) -> None:
    case = numbered(honest(tmp_path, "random", 1))
    assert violations(case) == []
    found = violations(replace(TAMPERED[what](case)))
    assert any(what in text for text in found), found


def test_a_task_that_a_task_added_keeps_its_number(tmp_path: Path) -> None:
    """Its author is not there to tell it."""
    case = numbered(honest(tmp_path, "failing", 1))
    twice = next(runs for key, runs in case.plan.executions.items() if len(runs) > 1)
    for batch in case.plan.batches.values():
        batch.numbers = []
    assert violations(case) == []
    twice[1].number = "another"
    assert any("ran as task another" in text for text in violations(case))


def paused(case: Case, begun: float, answered: float, resumed: float | None) -> list[Operation]:
    nothing_seen = {"late": list[str]()}
    found = [Operation("1", "pause", "/p", begun, {}, answered, "done", nothing_seen)]
    if resumed is not None:
        found.append(Operation("2", "resume", "/p", resumed, {}, resumed + 0.1, "done"))
    case.ledger.operations.of_plan[case.plan.workload.name] += found
    return found


def test_what_is_claimed_between_two_looks_at_a_paused_plan_is_found(tmp_path: Path) -> None:
    case = honest(tmp_path, "chain", 1)
    first, second, third, *_ = sorted(case.everything, key=lambda each: each.began)
    assert first.ended is not None
    assert second.ended is not None
    # What began before the pause, and what was claimed before it, may come to its end in it.
    during = (first.ended + 0.1, first.ended + 0.2, third.began - 0.1)
    assert violations_of_operations(case, paused(case, *during)) == []
    whole = paused(case, second.ended - 0.2, second.ended - 0.1, third.began + 0.1)
    (found,) = violations_of_operations(case, whole)
    assert found.startswith("S9")
    assert f"{third} began in a paused plan" in found


@pytest.mark.parametrize("resumed", ["in between", "begun before", "never"])
def test_only_between_the_answer_and_the_next_resume_a_plan_is_paused(
    tmp_path: Path, resumed: str
) -> None:
    case = honest(tmp_path, "chain", 1)
    last = max(case.everything, key=lambda each: each.began)
    maker = case.by_uid[last.got[0]]
    assert maker.ended is not None
    at = {"in between": maker.ended + 0.1, "begun before": 0.05, "never": None}[resumed]
    operations = paused(case, 0.1, maker.ended - 0.1, at)
    found = violations_of_operations(case, operations)
    assert len(found) == (1 if resumed == "never" else 0)


def late(case: Case, execution: Execution) -> list[str]:
    case.ledger.plans[case.plan.workload.name] = case.plan
    case.ledger.late.append((case.plan.workload.name, execution))
    return list(late_executions(case.ledger))


def test_what_begins_after_the_end_had_its_arguments_and_an_earlier_claim(tmp_path: Path) -> None:
    case, dead = doomed(tmp_path)
    case.plan.committed, case.plan.buried = {}, {dead: case.left.dead[dead].n}
    last = case.plan.executions[dead][-1]
    # Under the last claim, by a worker that was lost with it.
    assert late(case, replace(last, n=case.left.dead[dead].n)) == []
    (found,) = late(case, replace(last, n=case.left.dead[dead].n + 1))
    assert "out of attempts" in found
    (found,) = late(case, replace(last, digest="wrong"))
    assert found.startswith("S3")
    key = next(key for key, fate in case.plan.workload.fates.items() if fate == "cut")
    case.plan.buried[key] = 0
    digest, needs = case.plan.workload.digests[key], case.plan.workload.items[key].needs
    ran = replace(last, key=key, n=0, digest=digest, got=["uid"] * len(needs), keys=len(needs))
    (found,) = late(case, ran)
    assert "out of attempts" in found
