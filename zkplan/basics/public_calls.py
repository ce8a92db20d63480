"""Helpers of the public calls: durations, hints at misnamed options, and short tracebacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from ..errors import PayloadError, PlanError, TaskError, TaskFailed, WaitTimeout

Duration = timedelta | float


@overload
def in_seconds(duration: Duration) -> float: ...
@overload
def in_seconds(duration: Duration | None) -> float | None: ...
def in_seconds(duration: Any) -> Any:
    """Return a timedelta in seconds, and anything else unchanged, for a later check to refuse.

    >>> in_seconds(timedelta(minutes=2)), in_seconds(5), in_seconds(None)
    (120.0, 5, None)
    """
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


# ---- Options that have another name in other libraries.


_P = ParamSpec("_P")
_R = TypeVar("_R")


def refuse_other_names(options: Mapping[str, Any]) -> None:
    """Raise TypeError for the option `retries`, naming the option to give instead."""
    if "retries" in options:
        retries = options["retries"]
        attempts = retries + 1 if type(retries) is int else "RETRIES + 1"
        raise TypeError(
            f"there is no option `retries`; did you mean attempts={attempts}? `attempts` counts "
            "the first run of a task, too"
        )


# ---- Short tracebacks: an error in a user's call shows the user's lines, without zkplan's own.


#: Errors of the caller. For a bug of zkplan or a fault of a server, the traceback stays whole.
_FOR_THE_CALLER = (PlanError, TaskError, PayloadError, WaitTimeout)


def told_to_caller(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Remove zkplan's own frames from errors that the caller or a task of the caller caused."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            cause = error.__cause__
            if not (isinstance(error, _FOR_THE_CALLER) or isinstance(cause, TaskFailed)):
                raise
            if cause is not None:
                # Also leave out the error from which the cause came, if zkplan caught that error.
                before = cause.__context__.__traceback__ if cause.__context__ else None
                cause.__suppress_context__ |= before is not _without_ours(before)
                cause.__traceback__ = _without_ours(cause.__traceback__)
            raise error.with_traceback(None) from cause

    return call


def _without_ours(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and _is_ours(frames.tb_frame.f_globals.get("__name__")):
        frames = frames.tb_next
    return frames


def _is_ours(module: object) -> bool:
    # A module may have any name, and code that `exec` runs has none.
    return isinstance(module, str) and module.startswith("zkplan.")
