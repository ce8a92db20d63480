"""The errors: the tree drawn in the docstring is the tree of classes, and all of them travel."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from zkplan import errors
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
from zkplan.serialization import codec

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


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    classes: dict[str, str | None] = {
        name: kind.__bases__[0].__name__ if kind is not ZkplanError else None
        for name, kind in CLASSES.items()
    }
    assert drawn() == classes


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_says_what_it_means(name: str) -> None:
    assert re.match(r"[A-Z].+\.", (CLASSES[name].__doc__ or "").replace("\n", " "))


def test_a_wait_that_is_over_is_a_timeout_as_python_knows_it() -> None:
    assert issubclass(WaitTimeout, TimeoutError)


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
def test_an_error_raised_in_a_task_reaches_the_author_whole(error: ZkplanError) -> None:
    for copy in (pickle.loads(pickle.dumps(error)), codec.load(codec.dump(error))):
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert copy.__dict__ == error.__dict__


def test_a_payload_too_large_says_the_size_the_limit_and_the_way_out() -> None:
    text = str(PayloadTooLarge("the result of task 'a'", 2_000_000, 1_040_000))
    assert text.startswith("the result of task 'a': 2000000 bytes, but one ZooKeeper request")
    for part in ("the result of task 'a'", "2000000", "1040000", "store the data elsewhere"):
        assert part in text
