"""The description of a task, as `Plan.add_tasks` takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from ..basics.durations import Duration
from ..basics.other_names import refuse_other_names
from ..gates import When
from ..protocol.adding import NewTask
from ..serialization.functions import function_name

#: When a task runs, by how those ended that it waits for.
RunIf = Literal["all_succeeded", "all_finished", "any_failed"]


class TaskHandle:
    """What becomes an edge where it is an argument of a task. Task is the only one."""

    __slots__ = ()

    @property
    def plan(self) -> Any:
        """The plan of the task."""
        raise NotImplementedError

    def _taken(self) -> str | NewTask:
        """What an edge to the task refers to. The handle notes that another task takes it."""
        raise NotImplementedError


@dataclass(eq=False)
class TaskSpec:
    """The description of one task for `Plan.add_tasks`.

    It may be an argument of a later task in the same call. Options left at None take the plan's
    defaults. `Plan.add_task` says what each option means.
    """

    fn: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    name: str | None = None
    attempts: int | None = None
    retry_delay: Duration | None = None
    timeout: Duration | None = None
    priority: int | None = None
    keep: bool | None = None
    pure: bool | None = None
    queue: str | None = None
    after: Sequence[TaskHandle | TaskSpec | When] = ()
    isolation: str | None = None
    memory_limit: str | int | None = None
    key: str | None = None
    not_before: datetime | timedelta | float | None = None
    deadline: datetime | timedelta | float | None = None
    run_if: RunIf | None = None
    fatal: Any = None
    retry_if: Any = None
    limits: Sequence[str] | None = None
    _new: NewTask | None = field(default=None, init=False, repr=False)

    def __new__(cls, *_: Any, **options: Any) -> TaskSpec:
        refuse_other_names(options)
        return super().__new__(cls)

    @property
    def called(self) -> str:
        """The name of the task: that given here, that of the decorator, or the function's."""
        own: dict[str, Any] = getattr(self.fn, "zkplan_options", {})
        return self.name or own.get("name") or function_name(self.fn)

    @property
    def label(self) -> str:
        """How errors name this task."""
        function = function_name(self.fn)
        return f"task {self.name!r} ({function})" if self.name else f"a task of {function}"
