"""What public calls share: durations, hints at misnamed options, and short tracebacks."""

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
    """Return a timedelta in seconds, and anything else as it is: the next check refuses it.

    >>> in_seconds(timedelta(minutes=2)), in_seconds(5), in_seconds(None)
    (120.0, 5, None)
    """
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


# ---- Options that people look for under the name that other libraries have for them.


_P = ParamSpec("_P")
_R = TypeVar("_R")


def refuse_other_names(options: Mapping[str, Any]) -> None:
    """Raises TypeError for `retries`, with the option to give instead."""
    if "retries" in options:
        retries = options["retries"]
        attempts = retries + 1 if type(retries) is int else "RETRIES + 1"
        raise TypeError(
            f"there is no option `retries`; did you mean attempts={attempts}? `attempts` counts "
            "the first run of a task, too"
        )


# ---- Tracebacks of errors in a user's call show the user's lines, without those of zkplan.


#: Errors of the caller. A bug of zkplan or a fault of a server shows the whole traceback.
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
                # Leave out the error that it came from, too, if zkplan caught it.
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
