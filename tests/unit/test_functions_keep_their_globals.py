"""Functions that travel by value keep their globals, even if many threads send them at once."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dill.temp
import pytest

from zkplan.errors import NotSerialisable
from zkplan.values.codec import Codec
from zkplan.values.function_codec import dump_function, load_function
from zkplan.values.pickle_by_value import global_names

THREADS, ROUNDS = 4, 30
#: Functions of all kinds of code.
MODULES = ("argparse", "asyncio.tasks", "dataclasses", "inspect", "pathlib", "typing", "unittest")


def helper(value: int) -> int:
    return deeper(value) + 1


def deeper(value: int) -> int:
    return len(range(value))


def by_value() -> Callable[[int], int]:
    """Of `__main__`, so that helper and what that calls travel, too."""
    helpers = {
        function.__name__: types.FunctionType(function.__code__, {"__name__": "__main__"})
        for function in (helper, deeper)
    }
    for function in helpers.values():
        function.__module__ = "__main__"
        function.__globals__.update(helpers)
    return helpers["helper"]


def test_a_function_by_value_never_touches_the_standard_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is one for all threads: what others print meanwhile would be lost."""

    def replaced(*_: object) -> None:
        raise AssertionError("sys.stdout is replaced")

    monkeypatch.setattr(dill.temp, "capture", replaced)
    assert load_function(dump_function(by_value()))(6) == 7


def test_a_relative_import_in_a_function_by_value_starts_at_its_package() -> None:
    space: dict[str, Any] = {"__name__": "__main__", "__package__": "zkplan.values"}
    exec(
        "def work():\n    from .pickle_by_value import global_names\n    return global_names", space
    )
    assert load_function(dump_function(space["work"]))() is global_names


def test_the_error_names_the_part_of_a_function_that_cannot_travel() -> None:
    unsendable = memoryview(b"")

    def helper(ahead: Any = None) -> Any:
        return ahead, unsendable, report

    def report() -> Any:
        return helper()

    class Reader:
        source = unsendable

        def read(self) -> Any:
            return self.source

    for function, told in (
        (report, r"It uses helper, which uses unsendable, a memoryview: make that inside"),
        (functools.partial(helper, 1), r"It uses .*helper, which uses unsendable, a memoryview"),
        (Reader().read, r"It uses its object, .*Reader, which uses its attribute source, a memo"),
    ):
        with pytest.raises(NotSerialisable, match=told):
            Codec().seal_value(function)


def test_functions_that_threads_send_at_once_keep_their_globals() -> None:
    """As tasks do that add tasks: a function without its globals fails where it runs."""
    begin = threading.Barrier(THREADS)

    def send(_: int) -> list[Any]:
        begin.wait()
        return [load_function(dump_function(by_value()))(6) for _ in range(ROUNDS)]

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            assert list(pool.map(send, range(THREADS))) == [[7] * ROUNDS] * THREADS
    finally:
        sys.setswitchinterval(switching)


def functions_of(module: str) -> Iterator[types.FunctionType]:
    for found in vars(importlib.import_module(module)).values():
        inside = vars(found).values() if isinstance(found, type) else [found]
        yield from (each for each in inside if isinstance(each, types.FunctionType))


@functools.cache
def names_by_dill() -> Callable[[Any], list[str]]:
    """What zkplan replaces, from a copy of the module that is not touched."""
    found = importlib.util.find_spec("dill.detect")
    assert found is not None
    assert found.loader is not None
    fresh = importlib.util.module_from_spec(found)
    found.loader.exec_module(fresh)
    return fresh.nestedglobals  # type: ignore[no-any-return]


@pytest.mark.parametrize("module", MODULES)
def test_the_names_of_globals_are_those_that_dill_finds(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        functions = list(functions_of(module))
        assert functions
        for function in functions:
            names = set(global_names(function)) - {"__package__"}
            assert names == set(names_by_dill()(function)) - {"__package__"}, function
