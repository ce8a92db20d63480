"""Options that people look for under the name that other libraries have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def refuse_other_names(options: Mapping[str, Any]) -> None:
    """Raises TypeError for `retries`, and says what to give instead."""
    if "retries" in options:
        retries = options["retries"]
        attempts = retries + 1 if type(retries) is int else "RETRIES + 1"
        raise TypeError(
            f"there is no option `retries`; did you mean attempts={attempts}? `attempts` counts "
            "the first run of a task, too"
        )


def takes_attempts(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Of a function with the options of tasks: refuse other names for them, and say so."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        refuse_other_names(kwargs)
        return function(*args, **kwargs)

    return call
