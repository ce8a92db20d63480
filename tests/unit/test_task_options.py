"""The table of task options: records and every interface hold exactly the options it allows."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import fields
from typing import Any

import pytest
from pydantic import ValidationError

import zkplan
from zkplan.author.task_specs import AddOptions, FunctionOptions, PlanDefaults
from zkplan.cli import run
from zkplan.client import Client
from zkplan.errors import PayloadUndecodable
from zkplan.plan import Plan
from zkplan.protocol.task_options import (
    DEFAULT_OPTIONS,
    DELAY_MAX_S,
    LIMITS_MAX,
    MEMORY_MAX,
    OPTIONS,
    At,
    TaskOptions,
    options_at,
)
from zkplan.service.plans import PlanIn
from zkplan.service.task_adds import FunctionTaskIn

#: A value of each option that is not its default.
OTHERS: dict[str, Any] = {
    "name": "sum",
    "attempts": 5,
    "retry_delay": 2.5,
    "timeout": 60.0,
    "priority": -7,
    "keep": False,
    "pure": True,
    "queue": "gpu",
    "isolation": "process",
    "memory_limit": MEMORY_MAX,
    "not_before": 1.5e9,
    "deadline": 1.6e9,
    "limits": ("licence", "disk"),
    "run_if": "any_failed",
    "fatal": ("builtins:KeyError",),
    "retry_if": "Um1hdGg6c3FydA==",
    "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
    "constants": ("00ff",),
}
#: Values that an option must not have.
WRONG: dict[str, list[Any]] = {
    "name": [7, None],
    "attempts": [0, 1001, 2.0, True, "3", None],
    "retry_delay": [-1, DELAY_MAX_S + 1, True, "1", None],
    "timeout": [0, -1, DELAY_MAX_S + 1, True, "1"],
    "priority": [-5000, 5001, 1.5, None],
    "keep": [0, 1, "yes"],
    "pure": [0, 1, "yes", None],
    "queue": ["", "A B", "a~b", 7, None],
    "isolation": ["container", 7],
    "memory_limit": [0, 1024, MEMORY_MAX + 1, 1e9, "2GB"],
    "not_before": [-1, 1e10, "soon", True],
    "deadline": [-1, 1e10, "soon", True],
    "limits": ["licence", ["plan"], ["A"], [7], ["a"] * (LIMITS_MAX + 1), None],
    "run_if": ["always", 7, None],
    "fatal": ["builtins:KeyError", [7], None],
    "retry_if": [7, [7], None],
    "traceparent": ["00", 7, None],
    "constants": ["00ff", [7], None],
}


def test_the_samples_cover_all_options() -> None:
    assert OPTIONS.keys() == OTHERS.keys() == WRONG.keys()


def test_a_record_holds_only_non_default_options_in_the_order_of_the_table() -> None:
    assert DEFAULT_OPTIONS.to_json() == TaskOptions().to_json() == b"{}"
    options = TaskOptions(**OTHERS)
    stored = json.loads(options.to_json())
    assert list(stored) == list(OPTIONS)
    assert TaskOptions.from_json(options.to_json()) == options
    for name, value in OTHERS.items():
        one = TaskOptions(**{name: value})
        assert list(json.loads(one.to_json())) == [name]
        assert TaskOptions.from_json(one.to_json()) == one


@pytest.mark.parametrize("name", OPTIONS)
def test_a_record_with_a_value_that_the_table_does_not_allow_is_refused(name: str) -> None:
    for value in WRONG[name]:
        with pytest.raises(PayloadUndecodable, match=f"make no sense: {name}"):
            TaskOptions.from_value({name: value})
    nan = json.loads("NaN")
    if OPTIONS[name].values.toml == (int, float):
        assert math.isnan(nan)
        with pytest.raises(PayloadUndecodable):
            TaskOptions.from_value({name: nan})


def test_an_option_of_a_newer_zkplan_is_ignored() -> None:
    assert TaskOptions.from_value({"attempts": 2, "newer": [1]}) == TaskOptions(attempts=2)


def test_each_default_is_a_value_that_the_table_allows() -> None:
    assert all(each.values.fits(getattr(DEFAULT_OPTIONS, name)) for name, each in OPTIONS.items())


def names_in(types: type) -> set[str]:
    return set(types.__annotations__)


def shown_by(function: Any) -> set[str]:
    """The options that editors and help() show."""
    signature = inspect.signature(function)
    assert not any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    return set(signature.parameters)


def test_every_interface_names_exactly_the_options_it_accepts() -> None:
    task, function, plan = (set(options_at(at)) for at in (At.TASK, At.FUNCTION, At.PLAN))
    more = {"after", "key"}
    assert names_in(AddOptions) == task | more
    assert {each.name for each in fields(zkplan.TaskSpec)} == task | more | {"fn", "args", "kwargs"}
    assert names_in(FunctionOptions) == function
    assert names_in(PlanDefaults) == plan
    assert shown_by(Plan.add_task) == task | more | {"self", "fn", "args", "kwargs"}
    assert shown_by(Plan.map) >= task | more
    assert shown_by(Client.create_plan) >= plan
    assert shown_by(zkplan.task) == function | {"fn"}
    assert run._TASK_OPTIONS.keys() == set(options_at(At.FILE))
    of_a_request = {"id", "args", "kwargs", "key", "after", "function"}
    assert FunctionTaskIn.model_fields.keys() == set(options_at(At.HTTP)) | of_a_request
    assert plan - PlanIn.model_fields.keys() == plan - set(options_at(At.HTTP))


def test_create_plan_shows_the_defaults_of_the_table() -> None:
    shown = inspect.signature(Client.create_plan).parameters
    assert {name: shown[name].default for name in options_at(At.PLAN)} == {
        name: getattr(DEFAULT_OPTIONS, name) for name in options_at(At.PLAN)
    }


def test_an_option_of_a_plan_file_has_a_type_of_toml() -> None:
    assert all(OPTIONS[name].values.toml for name in options_at(At.FILE | At.PLAN))


#: In a request `not_before` and `deadline` are delays, or dates.
IN_REQUESTS = [name for name in options_at(At.HTTP) if name not in ("not_before", "deadline")]


@pytest.mark.parametrize("name", IN_REQUESTS)
def test_the_http_service_accepts_the_values_that_the_table_allows(name: str) -> None:
    task: dict[str, Any] = {"function": "math:sqrt"}
    value = OTHERS[name]
    given = ["builtins:KeyError"] if name == "retry_if" else value
    FunctionTaskIn.model_validate(task | {name: list(given) if type(given) is tuple else given})
    for wrong in WRONG[name]:
        if wrong is not None and wrong != ["plan"]:  # `plan` is refused where the task is defined
            with pytest.raises(ValidationError):
                FunctionTaskIn.model_validate(task | {name: wrong})
