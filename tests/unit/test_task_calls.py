"""Calls are checked when a task is defined: arguments fit the function, names can be printed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from zkplan.errors import InvalidTask
from zkplan.protocol.layout import rank_of
from zkplan.protocol.records import TaskOptions

from .test_task_definition import made


def three(a: int, b: int = 2, *, c: int = 3) -> int:
    return a + b + c


def needs_c(a: int, *, c: int) -> int:
    return a + c


def any_number(a: int, *more: int) -> int:
    return a + sum(more)


@functools.wraps(three)
def with_a_connection(*args: Any) -> int:
    return three(0, *args)


class Called:
    def __call__(self, x: int) -> int:
        return x


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (three, (), {}),
        (three, (1, 2, 3), {}),
        (three, (1,), {"d": 4}),
        (three, (1,), {"a": 1}),
        (needs_c, (1,), {}),
        (any_number, (), {}),
        (lambda: 1, (1,), {}),
        (Called(), (), {}),
        (functools.partial(three, 1), (2, 3), {}),
        (len, (), {}),
    ],
)
def test_arguments_that_do_not_fit_the_function_are_refused(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(InvalidTask, match="its arguments do not fit"):
        made(fn, args, kwargs)


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (three, (1,), {}),
        (three, (1, 2), {"c": 3}),
        (needs_c, (1,), {"c": 2}),
        (any_number, (1, 2, 3, 4), {}),
        (with_a_connection, (), {}),
        (functools.partial(three, 1), (2,), {}),
        (Called(), (1,), {}),
        (int, ("7", 8), {}),
        (dict, (), {"anything": 1}),
    ],
)
def test_arguments_that_fit_are_taken(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    assert made(fn, args, kwargs).deps == []


def test_the_refusal_of_arguments_names_the_function_and_the_mismatch() -> None:
    with pytest.raises(InvalidTask, match=r"'sum'.*three\(a.*missing a required argument: 'a'"):
        made(three, name="sum")


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "tab\t", "nul\0"])
def test_a_name_that_cannot_be_printed_is_refused(name: str) -> None:
    with pytest.raises(InvalidTask, match="printable"):
        made(int, name=name)


def test_an_explicit_zero_goes_before_the_priority_of_the_plan() -> None:
    defaults = TaskOptions(priority=7)
    assert made(int, defaults=defaults).rank == rank_of(7)
    assert made(int, defaults=defaults, priority=0).rank == rank_of(0)
