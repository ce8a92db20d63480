"""Shorten tracebacks of errors in a user's call to the user's lines, without those of zkplan."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType

from ..errors import PayloadError, PlanError, TaskError, TaskFailed, WaitTimeout
from .other_names import _P, _R

#: Errors that the caller caused. A bug of zkplan or a fault of a server shows the whole traceback.
_FOR_THE_CALLER = (PlanError, TaskError, PayloadError, WaitTimeout)


def told_to_caller(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Leave out zkplan's own frames from errors that the caller or the caller's task caused."""

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            cause = error.__cause__
            if not (isinstance(error, _FOR_THE_CALLER) or isinstance(cause, TaskFailed)):
                raise
            if cause is not None:
                # The error that it came from is left out too, if zkplan caught it.
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
    """A module may have any name, and code that `exec` runs has none."""
    return isinstance(module, str) and module.startswith("zkplan.")
