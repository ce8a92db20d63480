"""Defining a task: arguments become edges, options are checked, and every error names the task."""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkplan.author.definition import EDGES_MAX, RECORD_BYTES_MAX, Definer
from zkplan.author.task_specs import TaskSpec
from zkplan.errors import ForeignTask, InvalidTask, NotSerialisable, PayloadTooLarge
from zkplan.plan import Plan
from zkplan.protocol.core.add import NewTask
from zkplan.protocol.layout import rank_of
from zkplan.protocol.records import TaskRecord
from zkplan.protocol.task_options import DEFAULT_OPTIONS, DELAY_MAX_S, TaskOptions
from zkplan.tasks import Task
from zkplan.transport import Transport
from zkplan.values import codec as codecs
from zkplan.values.codec import TASK, Codec
from zkplan.values.plan_values import Values

PATH = "/zkplan/plan-0000000003"
CODEC = Codec()
VALUES = Values(cast("Transport", None), CODEC)


class Somewhere:
    """A plan as far as a handle of a task needs one."""

    def __init__(self, path: str = PATH) -> None:
        self.path = path

    def flush(self) -> None:
        raise AssertionError("defining a task sends nothing")


def task(number: int, path: str = PATH) -> Task:
    return Task(cast("Plan", Somewhere(path)), f"{number:010d}")


def definer(defaults: TaskOptions = DEFAULT_OPTIONS) -> Definer:
    return Definer(PATH, VALUES, defaults=defaults)


def made(
    fn: Callable[..., Any],
    args: Any = (),
    kwargs: Any = None,
    defaults: TaskOptions = DEFAULT_OPTIONS,
    **options: Any,
) -> NewTask:
    return definer(defaults).define(TaskSpec(fn, args, kwargs, **options))


def record(new: NewTask) -> TaskRecord:
    return TaskRecord.from_bytes(CODEC.open(TASK, new.record)[1])


def call(new: NewTask, *values: Any) -> tuple[Any, Any]:
    """The arguments of the function once `values` came down the edges."""
    args, kwargs = codecs.load(record(new).arguments, values)
    return args, kwargs


def test_tasks_at_any_depth_become_edges_in_the_order_they_appear() -> None:
    new = made(anything, (task(5), [1, (task(6), {"a": [task(7)]})]), {"named": {"x": task(8)}})
    assert new.deps == [f"{number:010d}" for number in (5, 6, 7, 8)]
    assert record(new).positions == 4
    args, kwargs = call(new, "five", "six", "seven", "eight")
    assert args == ("five", [1, ("six", {"a": ["seven"]})])
    assert kwargs == {"named": {"x": "eight"}}


def test_tasks_in_sets_and_as_keys_become_edges() -> None:
    new = made(print, ({task(5)}, {task(6): "v"}, frozenset([task(7)])))
    assert sorted(map(str, new.deps)) == [f"{number:010d}" for number in (5, 6, 7)]
    values = {f"{number:010d}": number for number in (5, 6, 7)}
    args, _ = call(new, *(values[str(dep)] for dep in new.deps))
    assert args == ({5}, {6: "v"}, frozenset([7]))


class Holder:
    """An object that keeps something."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept


def test_a_task_within_an_object_becomes_an_edge() -> None:
    new = made(print, (Holder([task(5)]),))
    assert new.deps == ["0000000005"]
    (holder,), _ = call(new, "five")
    assert holder.kept == ["five"]


shapes = st.recursive(
    st.integers(0, 5).map(task) | st.integers() | st.text(max_size=3) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


def replaced(shape: Any) -> Any:
    """`shape` with a text in place of each task."""
    if isinstance(shape, Task):
        return f"result of {shape.number}"
    if isinstance(shape, list):
        return [replaced(item) for item in shape]
    if isinstance(shape, tuple):
        return tuple(replaced(item) for item in shape)
    if isinstance(shape, dict):
        return {key: replaced(item) for key, item in shape.items()}
    return shape


@given(st.lists(shapes, max_size=4))
def test_each_task_in_an_argument_of_any_shape_is_replaced_by_its_result(args: list[Any]) -> None:
    new = made(print, args)
    assert len(new.deps) == len(set(new.deps)) == record(new).positions
    assert call(new, *(f"result of {dep}" for dep in new.deps)) == (tuple(replaced(args)), {})


def test_an_earlier_task_of_the_same_call_may_be_an_argument() -> None:
    one_call, first = definer(), TaskSpec(math.sqrt, (4,))
    before = one_call.define(first)
    assert one_call.define(TaskSpec(math.sqrt, (first,))).deps == [before]


def test_a_later_task_of_the_same_call_may_not() -> None:
    later = TaskSpec(math.sqrt, (4,), name="later")
    with pytest.raises(InvalidTask, match=r"task 'later' .* not an earlier spec") as caught:
        made(print, (later,), name="sum")
    assert "task 'sum' (print)" in str(caught.value)


def test_a_task_of_another_plan_is_refused_by_name() -> None:
    with pytest.raises(ForeignTask, match="a task of another plan") as caught:
        made(print, ([task(5, "/zkplan/plan-0000000004")],), name="sum")
    assert caught.value.task == "task 'sum' (print)"
    assert "plan-0000000004" in str(caught.value)


def test_a_task_hidden_in_a_closure_is_refused_with_what_to_do() -> None:
    hidden = task(5)
    with pytest.raises(NotSerialisable, match="takes it as an argument"):
        made(lambda: hidden)


def anything(*args: Any, **kwargs: Any) -> None:
    """Takes every call."""


def rows() -> Iterator[int]:
    yield 1


async def stream() -> AsyncIterator[int]:
    yield 1


NO_LISTS: list[Any] = ["ab", b"ab", 5, {1, 2}, {"a": 1}, iter([])]
NO_NAMES: list[Any] = [[], "ab", {1: 2}, 5]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        *(((fn,), "return a list") for fn in (rows, stream, functools.partial(rows))),
        *(((fn,), "a task needs a function") for fn in (None, 7, "math.sqrt", task(5))),
        *(((print, args), "must be a list or tuple") for args in NO_LISTS),
        *(((print, (), kwargs), "must be a dict with names") for kwargs in NO_NAMES),
    ],
)
def test_a_malformed_call_is_refused_with_what_to_do(call: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(InvalidTask, match=reason):
        made(*call)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("name", [7, "x" * 201]),
        ("attempts", [0, -1, 1001, 2.0, "3", True]),
        ("retry_delay", [-0.1, DELAY_MAX_S + 1, math.nan, math.inf, "1", True]),
        ("timeout", [0, -1, DELAY_MAX_S + 1, math.nan, "1", True]),
        ("priority", [-5000, 5001, 1.5, "1"]),
        ("keep", ["yes", 2, 1, 0]),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(option: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidTask, match=option) as caught:
            made(math.sqrt, (4,), **{option: value})
        assert "sqrt" in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 1000, "retry_delay": 0, "timeout": 1, "priority": 5000, "keep": False},
        {"name": "x" * 200, "retry_delay": DELAY_MAX_S, "timeout": DELAY_MAX_S, "priority": -4999},
    ],
)
def test_options_at_their_bounds_are_accepted_and_read_back(options: dict[str, Any]) -> None:
    found = TaskOptions.from_json(record(made(math.sqrt, (4,), **options)).options)
    assert found == TaskOptions(**options)


def test_omitted_options_default_to_those_of_the_plan() -> None:
    defaults = TaskOptions(attempts=7, retry_delay=2.0, timeout=9.0, priority=3, keep=True)
    new = made(math.sqrt, (4,), defaults=defaults, attempts=1, keep=False)
    assert TaskOptions.from_json(record(new).options) == TaskOptions(
        attempts=1, retry_delay=2.0, timeout=9.0, priority=3, keep=False
    )
    assert new.rank == rank_of(3)


def test_an_argument_that_cannot_be_serialised_is_named() -> None:
    with pytest.raises(NotSerialisable) as caught:
        made(print, (1, rows()), name="sum")
    for part in ("task 'sum' (print)", "argument 1", "generator"):
        assert part in str(caught.value)
    with pytest.raises(NotSerialisable, match="argument 'items'"):
        made(anything, (), {"items": rows()})
    hidden = rows()
    with pytest.raises(NotSerialisable, match=r"argument 0, a function, .* It uses hidden, a gen"):
        made(print, (lambda: hidden,))


def test_a_function_that_cannot_be_serialised_is_named() -> None:
    hidden = rows()
    with pytest.raises(
        NotSerialisable, match=r"task 'sum' .* serialised.* It uses hidden, a generator"
    ):
        made(lambda: hidden, name="sum")


def test_an_error_while_an_argument_is_reduced_is_reported() -> None:
    class Stubborn:
        def __reduce__(self) -> Any:
            raise LookupError("stays here")

    with pytest.raises(
        NotSerialisable, match=r"argument 0, a .*Stubborn, .*LookupError: stays here"
    ):
        made(print, (Stubborn(),))


def test_a_task_too_large_is_refused_with_its_size() -> None:
    with pytest.raises(PayloadTooLarge, match=r"task 'sum'.*store for large values") as caught:
        made(print, (bytes(RECORD_BYTES_MAX),), name="sum")
    assert caught.value.size > caught.value.limit == RECORD_BYTES_MAX


def test_too_many_edges_are_refused_with_what_to_do() -> None:
    tasks = [task(number) for number in range(EDGES_MAX + 1)]
    with pytest.raises(InvalidTask, match="join them in groups"):
        made(print, (tasks,))


def test_a_function_used_before_is_serialised_once() -> None:
    one_call, spec = definer(), TaskSpec(lambda: 1)
    one_call.define(spec)
    (known,) = one_call._functions
    one_call._functions[known] = b"Rmath:sqrt"
    assert record(one_call.define(TaskSpec(spec.fn))).function == b"Rmath:sqrt"


def test_errors_name_a_task_without_a_name_by_its_function() -> None:
    assert TaskSpec(math.sqrt).label == "a task of sqrt"
    assert TaskSpec(math.sqrt, name="root").label == "task 'root' (sqrt)"
    assert TaskSpec(functools.partial(math.sqrt)).label == "a task of sqrt"


def test_a_handle_is_shown_with_its_name_or_number() -> None:
    assert repr(task(5)) == f"<Task 0000000005 of {PATH}>"
    new = NewTask("a task", "5000", b"", [])
    plan = cast("Plan", Somewhere())
    handle = Task(plan, new=new)
    assert repr(handle) == f"<Task (not sent yet) of {PATH}>"
    new.number = "0000000007"  # as its add does, whether anybody has asked for it or not
    assert repr(handle) == f"<Task 0000000007 of {PATH}>"
    assert repr(Task(plan, "0000000005", "sum")) == f"<Task sum of {PATH}>"


def test_an_unsent_handle_becomes_an_edge_to_its_definition() -> None:
    new = NewTask("a task", "5000", b"", [])
    handle = Task(cast("Plan", Somewhere()), new=new)
    assert made(print, (handle,)).deps == [new]
    new.number = "0000000009"
    assert made(print, (handle,)).deps == ["0000000009"]


def three(a: int, b: int = 2, *, c: int = 3) -> int:
    return a + b + c


def needs_c(a: int, *, c: int) -> int:
    return a + c


def any_number(a: int, *more: int) -> int:
    return a + sum(more)


@functools.wraps(three)
def with_a_connection(*args: Any) -> int:
    return three(0, *args)


class Called:
    def __call__(self, x: int) -> int:
        return x


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (three, (), {}),
        (three, (1, 2, 3), {}),
        (three, (1,), {"d": 4}),
        (three, (1,), {"a": 1}),
        (needs_c, (1,), {}),
        (any_number, (), {}),
        (lambda: 1, (1,), {}),
        (Called(), (), {}),
        (functools.partial(three, 1), (2, 3), {}),
        (len, (), {}),
    ],
)
def test_arguments_that_do_not_fit_the_function_are_refused(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(InvalidTask, match="its arguments do not fit"):
        made(fn, args, kwargs)


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (three, (1,), {}),
        (three, (1, 2), {"c": 3}),
        (needs_c, (1,), {"c": 2}),
        (any_number, (1, 2, 3, 4), {}),
        (with_a_connection, (), {}),
        (functools.partial(three, 1), (2,), {}),
        (Called(), (1,), {}),
        (int, ("7", 8), {}),
        (dict, (), {"anything": 1}),
    ],
)
def test_arguments_that_fit_are_taken(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    assert made(fn, args, kwargs).deps == []


def test_the_refusal_of_arguments_names_the_function_and_the_mismatch() -> None:
    with pytest.raises(InvalidTask, match=r"'sum'.*three\(a.*missing a required argument: 'a'"):
        made(three, name="sum")


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "tab\t", "nul\0"])
def test_a_name_that_cannot_be_printed_is_refused(name: str) -> None:
    with pytest.raises(InvalidTask, match="printable"):
        made(int, name=name)


def test_an_explicit_zero_beats_the_priority_of_the_plan() -> None:
    defaults = TaskOptions(priority=7)
    assert made(int, defaults=defaults).rank == rank_of(7)
    assert made(int, defaults=defaults, priority=0).rank == rank_of(0)
