"""Why a plan takes no tasks: told from batches of reads between whose parts others change it."""

from __future__ import annotations

import pytest

from zkplan.errors import PlanDrained, PlanNotFound
from zkplan.protocol.author import Author
from zkplan.requests import Node

PATH = "/zkplan/plan-0000000003"
HERE = Node(b"", *[0] * 6)
#: The plan, its `done`, `ready`, `adds` and `authors`.
BARE = [HERE, None, HERE, None, None]
RUNS = [HERE, None, HERE, HERE, HERE]
ENDED = [HERE, HERE, HERE, None, HERE]


def explained(*answers: list[Node | None]) -> bool:
    """Whether nothing is wrong with the plan, after exactly these answers to its reads."""
    step = Author(PATH)._explain_plan()
    next(step)
    for answer in answers[:-1]:
        step.send(answer)
    with pytest.raises(StopIteration):
        step.send(answers[-1])
    return True


def test_a_plan_that_runs_is_read_once() -> None:
    assert explained(RUNS)


def test_a_plan_of_plain_creates_that_is_completed_meanwhile_takes_tasks() -> None:
    completed_between = [*BARE[:4], HERE]
    assert explained(completed_between, RUNS)
    assert explained(BARE, completed_between, RUNS)


def test_a_plan_that_ends_meanwhile_has_ended() -> None:
    ended_between = [HERE, None, HERE, None, HERE]
    with pytest.raises(PlanDrained):
        explained(ended_between, ENDED, ENDED)


def test_what_two_answers_say_is_so() -> None:
    with pytest.raises(PlanNotFound, match="has no `authors`"):
        explained(BARE, BARE)
    going = [HERE, None, HERE, None, HERE]
    with pytest.raises(PlanNotFound, match="is being removed"):
        explained(going, going)
