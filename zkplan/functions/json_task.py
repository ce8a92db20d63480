"""Tasks of plans with serializer json: functions by name, arguments as JSON, or a clear refusal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import NotSerialisable
from ..serialization.by_name import dump_name
from ..serialization.functions import function_name
from ..serialization.json_values import NotJson, dump_json
from ..serialization.kinds import dump_kind
from ..store.values import Values
from .kinds import task_kind
from .mapping import run_chunk
from .named import NamedFunction
from .task_spec import TaskSpec


def dump_function_json(spec: TaskSpec, fn: Callable[..., Any]) -> bytes:
    """The name of the function. Raises NotSerialisable, which says what to do."""
    if kind := task_kind(fn):
        return dump_kind(kind)
    if type(fn) is NamedFunction:
        return fn.zkplan_dumped
    of_each = each_of(fn)
    if task_kind(of_each):
        raise NotSerialisable(
            f"{spec.label}: a map makes tasks of a function, not of a kind: add one task for each "
            "item with add_tasks"
        )
    if hasattr(of_each, "zkplan_stands_for"):
        raise NotSerialisable(
            f"{spec.label}: with serializer json a task of a map makes one command: give map "
            "chunksize=1"
        )
    try:
        return dump_name(fn if of_each is None else of_each, each=of_each is not None)
    except ValueError as error:
        raise NotSerialisable(
            f"{spec.label}: with serializer json a function travels by its name, and "
            f"{function_name(fn)} cannot: {error}"
        ) from None


def dump_call_json(
    spec: TaskSpec,
    args: Sequence[Any],
    plan_path: str,
    values: Values,
    position_of: Callable[[Any], int | None],
) -> bytes:
    """The arguments. Raises NotSerialisable, which names the argument and the place in it."""
    why, kwargs = getattr(spec.fn, "zkplan_not_json", ""), spec.kwargs or {}
    if why:
        raise NotSerialisable(f"{spec.label}: {why}")
    if each_of(spec.fn) is not None:
        # The calls of one task of a map: each is a tuple, because a function is called with it.
        args = [[[*call] for call in calls] for calls in args]
    try:
        return values.dump_call_json(plan_path, args, kwargs, position_of)
    except NotJson as error:
        failure = error
    for name, value in (*enumerate(args), *kwargs.items()):
        try:
            dump_json(value, position_of)
        except NotJson as error:
            raise NotSerialisable(f"{spec.label}: its argument {name!r}: {error}") from None
    raise NotSerialisable(f"{spec.label}: its arguments: {failure}")


def each_of(fn: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function that a task of `Plan.map` calls for each item; None for any other function."""
    if isinstance(fn, functools.partial) and fn.func is run_chunk:
        return fn.args[0]  # type: ignore[no-any-return]
    return None
