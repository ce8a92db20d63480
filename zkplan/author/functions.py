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
    """What a decorated function needs of the plan that is being built. Plan implements it."""

    def add_task(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any: ...


#: The plans in whose `with` blocks the code runs, the innermost last.
open_plans: ContextVar[tuple[PlanOpen, ...]] = ContextVar("zkplan_open_plans", default=())


class TaskFunction:
    """A function with options for its tasks. It is called as it is, but inside the `with` block of
    a plan: there a call adds a task and returns its handle."""

    def __init__(self, fn: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, fn)
        self.__signature__ = _signature(fn)
        self._fn = fn
        #: What `Plan.add_task` takes where the call itself does not say otherwise.
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
            f"{function_name(self._fn)} is a method: @zkplan.task is for functions, since a task "
            "would need the object that the method belongs to"
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
    else, also inside a running task, it calls the function. The options are those of
    `Plan.add_task`; they hold, too, where the function is given to `Plan.add_task`, unless that
    says otherwise. Raises InvalidTask for what is not a function, and TypeError for an unknown
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


# ---- Kinds: `@zkplan.kind("resize")` names a function, so that a task needs nothing but that
# name.


F = TypeVar("F", bound=Callable[..., Any])
#: How errors describe the names of kinds.
KIND_NAMES = "the name of a kind has 1 to 40 of the characters a-z 0-9 . _ -"
_ANY = inspect.Parameter


class Kind:
    """A name that stands for a function: of this program, of a worker, or of another language.

    As a decorator it says that tasks of the kind run that function in workers of this process.
    `Plan.add_task(kind, args)` adds a task of the kind, no matter what runs it.
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
    """The kind of that name, for tasks of plans with serializer json.

    >>> @kind("resize")
    ... def resize(path, width):
    ...     return f"{path}-{width}.png"
    >>> resize("cat", 64)
    'cat-64.png'

    Workers of a process run the kinds that are registered there when they are made. A task of the
    kind is added with `plan.add_task(resize, [path, 64])`. Where the function is not known, such as
    one in another language, `zkplan.kind("resize")` stands for it. Raises InvalidTask for a name
    that does not fit.
    """
    return Kind(name)


def task_kind(fn: object) -> str:
    """The kind of a function that was registered, or of a `Kind`; empty for others."""
    found = getattr(fn, "zkplan_kind", "")
    return found if type(found) is str else ""


# ---- A function that is given by its name alone: another machine has it.


#: What stands in place of a module where a function is known by its kind.
KIND = "kind"
_KIND = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


class NamedFunction:
    """Stands for the function MODULE:NAME in a task of a plan with serializer json.

    Only a worker can find out whether there is such a function, and whether the arguments fit it.
    """

    #: The kind that it names, which its entries have, too; see `kinds`.
    zkplan_kind = ""

    def __init__(self, path: str) -> None:
        """Raises ValueError, whose text says what is wrong with the name."""
        module, _, qualname = path.partition(":")
        why = why_unfit(Name(module, qualname)) if qualname else "it is no MODULE:FUNCTION"
        if why:
            raise ValueError(f"{path!r:.100} names no function that may be run: {why}")
        if module == KIND:
            raise ValueError(f"no module is called {KIND}: give `{KIND}` in place of the function")
        self._take(path, module, qualname)

    @classmethod
    def of_kind(cls, kind: str) -> NamedFunction:
        """The function that workers have registered for this kind of task, in any language.

        Raises ValueError.
        """
        if not _KIND.fullmatch(kind):
            raise ValueError(
                f"a kind has 1 to 40 of the characters a-z 0-9 . _ -, not {kind!r:.100}"
            )
        made = cls.__new__(cls)
        made._take(f"{KIND}:{kind}", KIND, kind)
        made.zkplan_kind = kind
        return made

    def _take(self, path: str, module: str, qualname: str) -> None:
        self.__module__, self.__qualname__ = module, qualname
        #: What the definition of a task holds.
        self.zkplan_dumped = JSON + path.encode()
        if len(self.zkplan_dumped) > NAME_BYTES_MAX:
            raise ValueError(f"the name of a function has at most {NAME_BYTES_MAX - 1} bytes")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{self.__module__}:{self.__qualname__} is not imported here")


# ---- Import the function that MODULE:FUNCTION names.


def function_at(path: str) -> Callable[..., Any]:
    """Raises ValueError, whose text says why there is none."""
    module, separator, name = path.partition(":")
    if not (separator and module and name):
        raise ValueError(f"it is a text MODULE:FUNCTION, unlike {path!r:.100}")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # the module runs, and may raise anything
        raise ValueError(f"{path} cannot be imported: {summary_of(error)}") from error
    if not callable(found):
        raise ValueError(f"{path} is no function but {found!r:.100}")
    function: Callable[..., Any] = found
    return function
