"""Why a plan takes no tasks: told from batches of reads between whose parts others change it."""

from __future__ import annotations

import pytest

from zkplan.errors import PlanDrained, PlanNotFound
from zkplan.protocol.author import Author
from zkplan.protocol.requests import Node

PATH = "/zkplan/plan-0000000003"
HERE = Node(b"", *[0] * 6)
#: The plan, its `done`, `ready`, `add-count` and `add-ids`.
BARE = [HERE, None, HERE, None, None]
RUNS = [HERE, None, HERE, HERE, HERE]
ENDED = [HERE, HERE, HERE, None, HERE]


def explained(*answers: list[Node | None]) -> None:
    """Raises what is wrong with the plan; it must take exactly these answers to tell."""
    step = Author(PATH)._explain_plan()
    next(step)
    for answer in answers[:-1]:
        try:
            step.send(answer)
        except (PlanDrained, PlanNotFound, StopIteration) as early:
            pytest.fail(f"told after {answer}: {early!r}")
    with pytest.raises(StopIteration):
        step.send(answers[-1])


def test_a_plan_that_runs_is_read_once() -> None:
    explained(RUNS)


def test_a_plan_of_plain_creates_that_is_completed_meanwhile_takes_tasks() -> None:
    completed_between = [*BARE[:4], HERE]
    explained(completed_between, RUNS)
    explained(BARE, completed_between, RUNS)


def test_a_plan_that_ends_meanwhile_has_ended() -> None:
    ended_between = [HERE, None, HERE, None, HERE]
    with pytest.raises(PlanDrained):
        explained(ended_between, ENDED, ENDED)


def test_what_two_answers_say_is_so() -> None:
    with pytest.raises(PlanNotFound, match="has no `add-ids`"):
        explained(BARE, BARE)
    going = [HERE, None, HERE, None, HERE]
    with pytest.raises(PlanNotFound, match="is being removed"):
        explained(going, going)
