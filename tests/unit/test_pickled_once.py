"""A function by value is pickled once as long as nothing that it holds has changed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from zkplan.values.function_codec import dump_function, load_function
from zkplan.values.pickled_once import PARTS_MAX, PickledFunctions

SOURCE = """
import operator
FACTOR, TABLE, NAMES, PAIR = 2, {"a": 1}, ["x"], (1, [2])
class Thing: size = 1
THING = Thing()
def helper(): return FACTOR
def add(a: list[int] = 1, *, b=2): return a + b
def deep(): return helper() + operator.add(1, 1)
def again(n=3): return n and again(n - 1) + helper()
def reads(): return TABLE["a"], NAMES, len(NAMES), PAIR
def holds(): return THING.size
def makes(n):
    def counted(): return n
    def grow():
        nonlocal n
        n += 1
    return counted, grow
"""
Names = dict[str, Any]


@pytest.fixture
def names() -> Names:
    """What a program defines in `__main__`."""
    made: Names = {"__name__": "__main__"}
    exec(SOURCE, made)
    return made


def decoded(function: Callable[..., Any]) -> Callable[..., Any]:
    return load_function(dump_function(function))


def another(n: int = 0) -> Any:
    return f"other {n}"


CHANGES: dict[str, tuple[str, Callable[[Names], object]]] = {
    "a global": ("deep", lambda names: names.update(FACTOR=7)),
    "a function that it calls": ("deep", lambda names: names.update(helper=lambda: 9)),
    "the code of one that it calls": (
        "deep",
        lambda names: setattr(names["helper"], "__code__", (lambda: 5).__code__),
    ),
    "a builtin that is hidden": ("reads", lambda names: names.update(len=lambda _: "hidden")),
    "a value in a dictionary": ("reads", lambda names: names["TABLE"].update(a=2)),
    "an item of a list": ("reads", lambda names: names["NAMES"].append("y")),
    "a list in a tuple": ("reads", lambda names: names["PAIR"][1].append(3)),
    "an object of a class": ("holds", lambda names: setattr(names["THING"], "size", 5)),
    "its class": ("holds", lambda names: setattr(names["Thing"], "size", 6)),
    "a default": ("add", lambda names: setattr(names["add"], "__defaults__", (10,))),
    "a default by name": ("add", lambda names: names["add"].__kwdefaults__.update(b=20)),
    "its code": ("add", lambda names: setattr(names["add"], "__code__", another.__code__)),
    "what it calls when it calls itself": ("again", lambda names: names.update(FACTOR=8)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_function_that_changed_in_a_part_is_pickled_anew(change: str, names: Names) -> None:
    name, apply = CHANGES[change]
    function = names[name]
    before = decoded(function)()
    assert decoded(function)() == before
    apply(names)
    assert decoded(function)() == function() != before


def test_a_variable_of_an_enclosing_function_may_change(names: Names) -> None:
    counted, grow = names["makes"](1)
    assert decoded(counted)() == 1
    grow()
    assert decoded(counted)() == 2


def test_the_arguments_of_a_partial_may_change(names: Names) -> None:
    numbers = [1]
    function = functools.partial(names["add"], numbers, b=numbers)
    assert decoded(function)() == [1, 1]
    numbers.append(2)
    assert decoded(function)() == [1, 2, 1, 2]


@pytest.mark.parametrize("name", ["add", "deep", "again", "reads"])
def test_a_function_that_did_not_change_is_pickled_once(name: str, names: Names) -> None:
    first = dump_function(names[name])
    assert dump_function(names[name]) is first
    names[name].mark = 1
    assert dump_function(names[name]) is not first


@pytest.mark.parametrize("name", ["holds", "wide"])
def test_a_function_whose_parts_nobody_can_compare_is_pickled_each_time(
    name: str, names: Names
) -> None:
    names["TABLE"].update(dict.fromkeys(map(str, range(PARTS_MAX)), 0))
    names["wide"] = names["reads"]
    assert dump_function(names[name]) is not dump_function(names[name])


def test_recently_used_functions_are_kept_within_the_bounds(names: Names) -> None:
    kept = PickledFunctions(functions_max=2, bytes_max=100)
    made: list[Any] = []

    def pickle(function: Callable[..., Any]) -> bytes:
        made.append(function)
        return bytes(40)

    one, two, three = (FunctionType(another.__code__, names, str(n)) for n in range(3))
    for function in (one, two, one, two, three, two, one):
        kept.pickled(function, pickle)
    assert made == [one, two, three, one]
    kept.pickled(three, lambda _: bytes(101))
    for function in (three, two, one):
        kept.pickled(function, pickle)
    assert made[4:] == [three, two, one]
