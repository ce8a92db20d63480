"""Tasks of other plans than those with serializer json: functions and arguments pickled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..basics.exceptions import summary_of
from ..errors import NotSerialisable, ZkplanError
from ..serialization import codec as codecs
from ..serialization.functions import dump_function, function_name
from ..store.values import Values
from ..tasks import TaskSpec


def dump_function_pickled(
    spec: TaskSpec, fn: Callable[..., Any], plan_path: str, values: Values
) -> bytes:
    """The function, or a reference to it in the store. Raises NotSerialisable."""
    with _serialising(f"{spec.label}: the function {function_name(fn)}"):
        dumped = dump_function(fn)
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
    for name, value in (*enumerate(args), *kwargs.items()):
        with _serialising(f"{spec.label}: its argument {name!r}, {kind_of(value)},"):
            codecs.dump(value, position_of)
    with _serialising(f"{spec.label}: its arguments"):
        raise failure


def kind_of(value: Any) -> str:
    """What an error says of a value: its type. Errors go to logs, and values may be secret."""
    name = type(value).__qualname__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


@contextmanager
def _serialising(what: str) -> Iterator[None]:
    try:
        yield
    except ZkplanError:
        raise
    except RecursionError as error:
        raise NotSerialisable(
            f"{what} cannot be serialised: it is nested too deeply, or holds itself in a way that "
            "pickle cannot follow; keep it flat, for example as a list of its parts"
        ) from error
    except Exception as error:
        raise NotSerialisable(f"{what} cannot be serialised: {summary_of(error)}") from error
