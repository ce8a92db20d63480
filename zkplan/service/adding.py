"""Turn the tasks of a request into those of `Plan.add_tasks`: functions by name, edges by ID."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InvalidTask
from ..functions.named import NamedFunction
from ..functions.task_spec import TaskSpec
from ..plan import Plan
from ..serialization.json_values import DEPTH_MAX
from ..tasks import Task
from .asked import number_text
from .fields import TaskOptionsIn
from .task_models import FunctionTaskIn, KindTaskIn

#: What stands for the result of a task in arguments.
TASK = "$task"
_OPTIONS = (*TaskOptionsIn.model_fields, "name", "key", "not_before", "deadline", "run_if")
_REF = f'{{"{TASK}": REF}}, where REF is the number of a task, or the id of one before it'


def specs_of(
    plan: Plan,
    wanted: Sequence[FunctionTaskIn | KindTaskIn],
    repeat: str | None = None,
    places: Sequence[str] = (),
) -> list[TaskSpec]:
    """The tasks in the order of the request. With `repeat`, the key of a request that may be sent
    again, each has a key of its own. `places` say where each stands in the request. Raises
    InvalidTask."""
    by_id: dict[str, TaskSpec] = {}
    functions: dict[str, NamedFunction] = {}
    specs = []
    for index, each in enumerate(wanted):
        where = places[index] if places else f"tasks[{index}]"
        refs = _Refs(plan, by_id, where)
        options = {name: value for name in _OPTIONS if (value := getattr(each, name)) is not None}
        if repeat is not None:
            options.setdefault("key", f"{repeat}#{index}")
        spec = TaskSpec(
            _function(each, functions, where),
            refs.replaced(each.args, 0),
            refs.replaced(each.kwargs, 0),
            after=[refs.task(ref) for ref in each.after],
            **options,
        )
        if each.id is not None:
            if each.id in by_id:
                raise InvalidTask("", f"{where}: the id {each.id!r} is that of a task before it")
            by_id[each.id] = spec
        specs.append(spec)
    return specs


def _function(
    wanted: FunctionTaskIn | KindTaskIn, made: dict[str, NamedFunction], where: str
) -> NamedFunction:
    """One object for each name: tasks of one function are checked once."""
    is_kind = isinstance(wanted, KindTaskIn)
    name = wanted.kind if isinstance(wanted, KindTaskIn) else wanted.function
    known = f"{is_kind}{name}"
    if known not in made:
        try:
            made[known] = NamedFunction.of_kind(name) if is_kind else NamedFunction(name)
        except ValueError as error:
            raise InvalidTask("", f"{where}: {error}") from None
    return made[known]


class _Refs:
    """Finds the tasks that one task of a request refers to."""

    def __init__(self, plan: Plan, by_id: dict[str, TaskSpec], where: str) -> None:
        self._plan, self._by_id, self._where = plan, by_id, where

    def task(self, ref: Any) -> Any:
        """Raises InvalidTask."""
        if type(ref) is int and 0 <= ref < 10**10:
            return Task(self._plan, number_text(ref))
        if type(ref) is str and ref in self._by_id:
            return self._by_id[ref]
        known = ", ".join(list(self._by_id)[:20]) or "none"
        told = f"there is no task {ref!r:.100} before it; ids before it: {known}. Write {_REF}"
        raise InvalidTask("", f"{self._where}: {told}")

    def replaced(self, value: Any, depth: int) -> Any:
        """The value with tasks in place of references. Raises InvalidTask."""
        if depth > DEPTH_MAX:
            told = f"its arguments are nested too deeply (more than {DEPTH_MAX} levels)"
            raise InvalidTask("", f"{self._where}: {told}")
        if isinstance(value, list):
            return [self.replaced(each, depth + 1) for each in value]
        if isinstance(value, dict):
            if TASK in value:
                if len(value) > 1:
                    told = f"{TASK} stands alone in its object: {_REF}"
                    raise InvalidTask("", f"{self._where}: {told}")
                return self.task(value[TASK])
            return {key: self.replaced(each, depth + 1) for key, each in value.items()}
        return value
