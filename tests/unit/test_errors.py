"""Errors match their tree in the docstring, can be serialised, and show the lines of the user."""

from __future__ import annotations

import inspect
import pickle
import re
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import zkplan
from zkplan import InvalidTask, InvariantViolated, NotSerialisable, errors
from zkplan.basics.public_calls import told_to_caller
from zkplan.errors import (
    ForeignTask,
    PayloadTooLarge,
    PlanFailed,
    PlanNotFound,
    ResultNotKept,
    TaskFailed,
    WaitTimeout,
    ZkplanError,
)
from zkplan.protocol.records import PlanRecord
from zkplan.transport import Transport
from zkplan.values import codec
from zkplan.values.codec import Codec
from zkplan.values.plan_values import Values

CLASSES = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, BaseException)
}
_LINE = re.compile(r"^([│ ]*(?:├── |└── )?)([A-Z][A-Za-z]+)(?: |$)")


def drawn() -> dict[str, str | None]:
    """The names in the docstring's tree, each with the one above it."""
    above: list[str] = []
    found: dict[str, str | None] = {}
    tree = inspect.getdoc(errors) or ""
    for line in tree.partition("\n\n")[2].splitlines():
        match = _LINE.match(line)
        assert match is not None, line
        depth = len(match[1]) // 4
        del above[depth:]
        found[match[2]] = above[-1] if above else None
        above.append(match[2])
    return found


def test_the_tree_in_the_docstring_matches_the_error_classes() -> None:
    classes: dict[str, str | None] = {
        name: kind.__bases__[0].__name__ if kind is not ZkplanError else None
        for name, kind in CLASSES.items()
    }
    assert drawn() == classes
    assert issubclass(WaitTimeout, TimeoutError), "as its line says"


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_says_what_it_means(name: str) -> None:
    assert re.match(r"[A-Z].+\.", (CLASSES[name].__doc__ or "").replace("\n", " "))


@pytest.mark.parametrize(
    "error",
    [
        ZkplanError("a message"),
        PlanNotFound("/zkplan/plan-0000000001", "there is no such plan"),
        PlanFailed("/zkplan/plan-0000000001", "two tasks are dead", {"one": "ValueError: no"}),
        ForeignTask("task 'a'", "an argument is a task of another plan"),
        ResultNotKept("task 'a'", "its result was not kept"),
        TaskFailed("task 'a'", "it failed", "Traceback …"),
        PayloadTooLarge("the result", 2_000_000, 1_040_000),
        WaitTimeout("the time is over"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_raised_in_a_task_reaches_the_author_with_all_fields(error: ZkplanError) -> None:
    for copy in (pickle.loads(pickle.dumps(error)), codec.load(codec.dump(error))):
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert copy.__dict__ == error.__dict__


PACKAGE = Path(zkplan.__file__).parent


def frames_of(error: BaseException) -> list[str]:
    found = traceback.extract_tb(error.__traceback__)
    return [frame.filename for frame in found if Path(frame.filename).is_relative_to(PACKAGE)]


@pytest.mark.parametrize(
    ("args", "kind"),
    [([1, 2, 3], InvalidTask), ("text", InvalidTask), ([(each for each in "")], NotSerialisable)],
)
def test_a_refused_task_has_a_traceback_of_one_frame(args: Any, kind: type[Exception]) -> None:
    offline: Any = SimpleNamespace(values=Values(cast("Transport", None), Codec()))
    plan = zkplan.Plan(offline, "/zkplan/plan-0000000003", PlanRecord("", "", 0.0))
    with pytest.raises(kind) as refused:
        plan.add_task(len, args)
    assert len(frames_of(refused.value)) == 1
    assert "codec.py" not in "".join(traceback.format_exception(refused.value))


def test_the_error_of_a_task_has_a_traceback_of_one_frame() -> None:
    def deep() -> None:
        raise ValueError("of the task") from TaskFailed("t", "it failed", "remote lines")

    with pytest.raises(ValueError, match="of the task") as told:
        told_to_caller(deep)()
    assert [Path(name).name for name in frames_of(told.value)] == ["public_calls.py"]
    assert isinstance(told.value.__cause__, TaskFailed)


def test_a_bug_of_zkplan_is_shown_with_its_full_traceback() -> None:
    def deep() -> None:
        raise InvariantViolated("of zkplan")

    with pytest.raises(InvariantViolated) as told:
        told_to_caller(deep)()
    assert traceback.extract_tb(told.value.__traceback__)[-1].name == "deep"
