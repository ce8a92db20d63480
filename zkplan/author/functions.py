"""Name the functions of tasks: @task, @kind, MODULE:FUNCTION, and names that only workers know."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, overload

from ..basics.public_calls import refuse_other_names
from ..basics.text import summary_of
from ..errors import InvalidTask
from ..protocol.layout import parse_queue
from ..values.function_codec import function_name
from ..values.functions_by_name import NAME_BYTES_MAX, Name, register, why_unfit
from ..values.json_values import JSON
from .task_specs import FunctionOptions, shows

if TYPE_CHECKING:
    from typing_extensions import Unpack


class PlanOpen(Protocol):
    """The part of an open plan that a decorated function calls. Plan implements it."""

    def add_task(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any: ...


#: The plans whose `with` blocks are open here, the innermost last.
open_plans: ContextVar[tuple[PlanOpen, ...]] = ContextVar("zkplan_open_plans", default=())


class TaskFunction:
    """A function with options for its tasks. Inside the `with` block of a plan, a call adds a task
    and returns its handle; everywhere else it calls the function."""

    def __init__(self, fn: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, fn)
        self.__signature__ = _signature(fn)
        self._fn = fn
        #: Options for `Plan.add_task`, unless its call gives others.
        self.zkplan_options = options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        plans = open_plans.get()
        if plans:
            return plans[-1].add_task(self, args, kwargs)
        return self._fn(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        raise TypeError(
            f"{function_name(self._fn)} is a method: @zkplan.task is for functions only, because a "
            "task would also need the object of the method"
        )

    def __repr__(self) -> str:
        return f"<zkplan.task {function_name(self._fn)}>"


@overload
def task(fn: Callable[..., Any], /) -> TaskFunction: ...
@overload
def task(**options: Unpack[FunctionOptions]) -> Callable[[Callable[..., Any]], TaskFunction]: ...
@shows(FunctionOptions)
def task(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function whose calls in the `with` block of a plan add tasks.

    >>> @task(attempts=5)
    ... def double(x):
    ...     return 2 * x
    >>> double(4)
    8

    Inside `with client.create_plan() as plan:` the call `double(4)` adds a task to the plan of the
    innermost block and returns its handle, which may be an argument of the next call. Everywhere
    else, also inside a running task, the call runs the function. The options are those of
    `Plan.add_task`, which also uses them if it gets the decorated function, unless its own options
    override them. Raises InvalidTask if `fn` is not a function, and TypeError for an unknown
    option.
    """
    refuse_other_names(options)
    unknown = options.keys() - FunctionOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"@zkplan.task has no option {', '.join(sorted(unknown))}")
    if fn is not None and not callable(fn):
        raise InvalidTask("", f"@zkplan.task is for a function, not for {fn!r}")

    def decorate(fn: Callable[..., Any]) -> TaskFunction:
        return TaskFunction(fn, options)

    return decorate if fn is None else decorate(fn)


def _signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # many builtins have none
        return None


# ---- Kinds: `@zkplan.kind("resize")` names a function, so that a task needs only that name.


F = TypeVar("F", bound=Callable[..., Any])
#: How errors describe the names of kinds.
KIND_NAMES = "the name of a kind must have 1 to 40 of the characters a-z 0-9 . _ -"
_ANY = inspect.Parameter


class Kind:
    """A name that stands for a function: of this program, of a worker, or of another language.

    As a decorator, a kind registers a function: the workers of this process run it for tasks of the
    kind. `Plan.add_task(kind, args)` adds a task of the kind, whoever runs the task.
    """

    __signature__ = inspect.Signature(
        [
            _ANY("args", _ANY.VAR_POSITIONAL),
            _ANY("kwargs", _ANY.VAR_KEYWORD),
        ]
    )

    def __init__(self, name: str) -> None:
        if type(name) is not str or parse_queue(name) is None:
            raise InvalidTask("", f"{KIND_NAMES}, unlike {name!r:.60}")
        self.zkplan_kind = self.__name__ = self.__qualname__ = name

    def __call__(self, fn: F) -> F:
        if not callable(fn):
            raise InvalidTask("", f"@zkplan.kind is for a function, not for {fn!r:.60}")
        fn.zkplan_kind = self.zkplan_kind  # type: ignore[attr-defined]
        register(self.zkplan_kind, fn)
        return fn

    def __repr__(self) -> str:
        return f"zkplan.kind({self.zkplan_kind!r})"


def kind(name: str) -> Kind:
    """The kind with this name, for tasks of plans with serializer json.

    >>> @kind("resize")
    ... def resize(path, width):
    ...     return f"{path}-{width}.png"
    >>> resize("cat", 64)
    'cat-64.png'

    A worker runs the kinds that its process has registered when the worker is made. To add a task
    of the kind, call `plan.add_task(resize, [path, 64])`. If the function is not known here, for
    example because it is in another language, pass `zkplan.kind("resize")` instead. Raises
    InvalidTask for a malformed name.
    """
    return Kind(name)


def task_kind(fn: object) -> str:
    """The kind of a registered function or of a `Kind`; empty for anything else."""
    found = getattr(fn, "zkplan_kind", "")
    return found if type(found) is str else ""


# ---- A function that is known by its name alone, because only other machines have it.


#: Stands in place of a module if the name of a function is a kind.
KIND = "kind"
_KIND = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


class NamedFunction:
    """Stands for the function MODULE:NAME in a task of a plan with serializer json.

    Only a worker can find out whether the function exists, and whether the arguments fit it.
    """

    #: The kind that this function is known by, or empty; see `task_kind`.
    zkplan_kind = ""

    def __init__(self, path: str) -> None:
        """Raises ValueError, whose text names the mistake."""
        module, _, qualname = path.partition(":")
        why = why_unfit(Name(module, qualname)) if qualname else "it is not MODULE:FUNCTION"
        if why:
            raise ValueError(f"{path!r:.100} names no function that may run: {why}")
        if module == KIND:
            raise ValueError(f"no module is called {KIND}: give `{KIND}` in place of the function")
        self._take(path, module, qualname)

    @classmethod
    def of_kind(cls, kind: str) -> NamedFunction:
        """The function, in any language, that workers have registered for this kind.

        Raises ValueError.
        """
        if not _KIND.fullmatch(kind):
            raise ValueError(
                f"a kind must have 1 to 40 of the characters a-z 0-9 . _ -, not {kind!r:.100}"
            )
        made = cls.__new__(cls)
        made._take(f"{KIND}:{kind}", KIND, kind)
        made.zkplan_kind = kind
        return made

    def _take(self, path: str, module: str, qualname: str) -> None:
        self.__module__, self.__qualname__ = module, qualname
        #: The bytes that stand for the function in the definition of a task.
        self.zkplan_dumped = JSON + path.encode()
        if len(self.zkplan_dumped) > NAME_BYTES_MAX:
            raise ValueError(f"the name of a function has at most {NAME_BYTES_MAX - 1} bytes")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{self.__module__}:{self.__qualname__} is not imported here")


# ---- Import the function that MODULE:FUNCTION names.


def function_at(path: str) -> Callable[..., Any]:
    """Import and return the function at `path`. Raises ValueError with the reason."""
    module, separator, name = path.partition(":")
    if not (separator and module and name):
        raise ValueError(f"it must be MODULE:FUNCTION, not {path!r:.100}")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs the module, which may raise anything
        raise ValueError(f"{path} cannot be imported: {summary_of(error)}") from error
    if not callable(found):
        raise ValueError(f"{path} is not a function but {found!r:.100}")
    function: Callable[..., Any] = found
    return function
