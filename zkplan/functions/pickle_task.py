"""Tasks of other plans than those with serializer json: functions and arguments pickled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ZkplanError
from ..serialization import codec as codecs
from ..serialization.blame import kind_of, not_serialisable
from ..serialization.functions import dump_function, function_name
from ..store.values import Values
from .task_spec import TaskSpec


def dump_function_pickled(
    spec: TaskSpec, fn: Callable[..., Any], plan_path: str, values: Values
) -> bytes:
    """The function, or a reference to it in the store. Raises NotSerialisable."""
    try:
        dumped = dump_function(fn)
    except ZkplanError:
        raise
    except Exception as error:
        what = f"{spec.label}: the function {function_name(fn)}"
        raise not_serialisable(what, fn, error) from error
    return values.function(plan_path, dumped)


def dump_call_pickled(
    spec: TaskSpec,
    args: Sequence[Any],
    plan_path: str,
    values: Values,
    position_of: Callable[[Any], int | None],
) -> bytes:
    """The arguments. Raises NotSerialisable, which names the argument."""
    kwargs = spec.kwargs or {}
    try:
        return values.dump_call(plan_path, args, dict(kwargs), position_of)
    except ZkplanError:
        raise
    except Exception as error:
        failure = error
    reduce_task = codecs.task_reducer(position_of)
    for name, value in (*enumerate(args), *kwargs.items()):
        try:
            codecs.dump(value, position_of)
        except ZkplanError:
            raise
        except Exception as error:
            what = f"{spec.label}: its argument {name!r}, {kind_of(value)},"
            raise not_serialisable(what, value, error, reduce_task) from error
    raise not_serialisable(f"{spec.label}: its arguments", None, failure) from failure
