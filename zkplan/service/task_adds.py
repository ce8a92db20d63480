"""The route that adds tasks, and how the tasks of a request refer to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from ..author.functions import NamedFunction
from ..author.task_specs import RunIf, TaskSpec
from ..errors import InvalidTask
from ..plan import Plan
from ..protocol.task_options import At, options_at
from ..tasks import Task
from ..values.json_values import DEPTH_MAX
from .answers import documented
from .parameters import (
    NUMBER_MAX,
    Label,
    MomentIn,
    PlanOf,
    Strict,
    TaskOptionsIn,
    idempotency_key_header,
    needs,
    number_text,
)

#: How many tasks one request may add.
TASKS_MAX = 5000
LocalId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,80}$")]
#: A task of the plan, by its number, or an earlier task of the same request, by its id.
TaskRef = Annotated[int, Field(ge=0, le=NUMBER_MAX)] | LocalId


class _TaskIn(TaskOptionsIn):
    id: Annotated[LocalId | None, Field(description="Later tasks of this request may name it.")] = (
        None
    )
    args: Annotated[
        list[Any],
        Field(description='Anywhere in args, {"$task": REF} stands for the result of that task.'),
    ] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    name: Label | None = None
    key: Annotated[
        Label | None, Field(description="A plan has one task for each key: a repeat adds nothing.")
    ] = None
    after: Annotated[list[TaskRef], Field(max_length=1000)] = Field(default_factory=list)
    not_before: MomentIn | None = None
    deadline: MomentIn | None = None
    run_if: RunIf | None = None


class FunctionTaskIn(_TaskIn):
    """A task that runs MODULE:FUNCTION, which a worker imports."""

    function: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*"
            r":[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*$",
            max_length=500,
        ),
    ]


class KindTaskIn(_TaskIn):
    """A task of a kind, for programs in any language that do this kind of work."""

    kind: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")]


AnyTaskIn = FunctionTaskIn | KindTaskIn


class TasksIn(Strict):
    """Tasks to add. Each may refer only to tasks before it, and to those of the plan."""

    tasks: Annotated[list[AnyTaskIn], Field(max_length=TASKS_MAX)]


class AddedTask(BaseModel):
    """A task that is in the plan now. `existed`: its key was there already."""

    number: int
    name: str
    id: str | None
    existed: bool


class AddedTasks(BaseModel):
    """The tasks that were added, in the order of the request."""

    tasks: list[AddedTask]


router = APIRouter(tags=["tasks"], responses=documented(404, 409, 422))


@router.post("/plans/{plan}/tasks", status_code=201, dependencies=[needs("author")])
def add_tasks(
    plan: PlanOf,
    wanted: TasksIn,
    idempotency_key: Annotated[
        str | None,
        idempotency_key_header("Gives each task a key: a repeat of the request adds nothing."),
    ] = None,
) -> AddedTasks:
    """Add tasks. All are checked before the first is written. Their values are JSON.

    If only some could be written, the problem has `added`: how many, from the first on, are in the
    plan.
    """
    added = plan.add_tasks(specs_of(plan, wanted.tasks, idempotency_key))
    return AddedTasks(
        tasks=[
            AddedTask(number=int(each.number), name=each.name, id=sent.id, existed=not each.is_new)
            for each, sent in zip(added, wanted.tasks, strict=True)
        ]
    )


#: The key of an object in arguments that stands for the result of a task.
TASK = "$task"
_OPTIONS = (*options_at(At.HTTP), "key")
_REF = f'{{"{TASK}": REF}}, where REF is the number of a task, or the id of one before it'


def specs_of(
    plan: Plan,
    wanted: Sequence[AnyTaskIn],
    repeat: str | None = None,
    places: Sequence[str] = (),
) -> list[TaskSpec]:
    """The tasks in the order of the request.

    With `repeat`, the key of a request that may be sent again, each task has a key. `places` names
    the tasks in errors, by default tasks[0] and so on. Raises InvalidTask.
    """
    by_id: dict[str, TaskSpec] = {}
    functions: dict[tuple[bool, str], NamedFunction] = {}
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
                raise InvalidTask("", f"{where}: a task before it has the id {each.id!r}")
            by_id[each.id] = spec
        specs.append(spec)
    return specs


def _function(
    wanted: AnyTaskIn, made: dict[tuple[bool, str], NamedFunction], where: str
) -> NamedFunction:
    """One object for each name, so that a function is checked once for all its tasks."""
    is_kind = isinstance(wanted, KindTaskIn)
    name = wanted.kind if isinstance(wanted, KindTaskIn) else wanted.function
    if (is_kind, name) not in made:
        try:
            made[is_kind, name] = NamedFunction.of_kind(name) if is_kind else NamedFunction(name)
        except ValueError as error:
            raise InvalidTask("", f"{where}: {error}") from None
    return made[is_kind, name]


class _Refs:
    """Finds the tasks that one task of a request refers to."""

    def __init__(self, plan: Plan, by_id: dict[str, TaskSpec], where: str) -> None:
        self._plan, self._by_id, self._where = plan, by_id, where

    def _wrong(self, why: str) -> InvalidTask:
        return InvalidTask("", f"{self._where}: {why}")

    def task(self, ref: Any) -> Any:
        """Raises InvalidTask."""
        if type(ref) is int and 0 <= ref < 10**10:
            return Task(self._plan, number_text(ref))
        if type(ref) is str and ref in self._by_id:
            return self._by_id[ref]
        known = ", ".join(list(self._by_id)[:20]) or "none"
        raise self._wrong(
            f"there is no task {ref!r:.100} before it; ids before it: {known}. Write {_REF}"
        )

    def replaced(self, value: Any, depth: int) -> Any:
        """The value with tasks in place of references. Raises InvalidTask."""
        if depth > DEPTH_MAX:
            raise self._wrong(f"its arguments are nested too deeply (more than {DEPTH_MAX} levels)")
        if isinstance(value, list):
            return [self.replaced(each, depth + 1) for each in value]
        if isinstance(value, dict):
            if TASK in value:
                if len(value) > 1:
                    raise self._wrong(f"{TASK} must be alone in its object: {_REF}")
                return self.task(value[TASK])
            return {key: self.replaced(each, depth + 1) for key, each in value.items()}
        return value
