"""The traceback of an error of the user shows the lines of the user, and one of zkplan."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import zkplan
from zkplan import InvalidTask, InvariantViolated, NotSerialisable, TaskFailed
from zkplan.protocol.records import PlanRecord
from zkplan.serialization.codec import Codec
from zkplan.tracebacks import told_to_caller

PACKAGE = Path(zkplan.__file__).parent


def frames_of(error: BaseException) -> list[str]:
    found = traceback.extract_tb(error.__traceback__)
    return [frame.filename for frame in found if Path(frame.filename).is_relative_to(PACKAGE)]


@pytest.mark.parametrize(
    ("args", "kind"),
    [([1, 2, 3], InvalidTask), ("text", InvalidTask), ([(each for each in "")], NotSerialisable)],
)
def test_a_task_that_is_refused_is_told_in_one_frame(args: Any, kind: type[Exception]) -> None:
    offline: Any = SimpleNamespace(codec=Codec())
    plan = zkplan.Plan(offline, "/zkplan/plan-0000000003", PlanRecord("", "", 0.0))
    with pytest.raises(kind) as refused:
        plan.add_task(len, args)
    assert len(frames_of(refused.value)) == 1
    assert "codec.py" not in "".join(traceback.format_exception(refused.value))


def test_the_error_of_a_task_is_told_in_one_frame() -> None:
    def deep() -> None:
        raise ValueError("of the task") from TaskFailed("t", "it failed", "remote lines")

    with pytest.raises(ValueError, match="of the task") as told:
        told_to_caller(deep)()
    assert [Path(name).name for name in frames_of(told.value)] == ["tracebacks.py"]
    assert isinstance(told.value.__cause__, TaskFailed)


def test_a_bug_is_shown_as_a_whole() -> None:
    def deep() -> None:
        raise InvariantViolated("of zkplan")

    with pytest.raises(InvariantViolated) as told:
        told_to_caller(deep)()
    assert traceback.extract_tb(told.value.__traceback__)[-1].name == "deep"
