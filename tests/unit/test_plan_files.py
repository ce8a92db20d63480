"""Plan files: what they may contain, and each mistake is reported with its file, task and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkplan.author.task_specs import TaskSpec
from zkplan.cli.run import read_plan_file, tasks_of
from zkplan.errors import InvalidPlanFile

TOP = Path(__file__).parents[2]


def tasks(folder: Path, text: str, **params: str) -> dict[str | None, TaskSpec]:
    file = folder / "plan.toml"
    file.write_text(text, encoding="utf-8")
    return {spec.name: spec for spec in tasks_of(read_plan_file(file), params)}


def test_tasks_are_ordered_after_those_they_reference_at_any_depth(tmp_path: Path) -> None:
    made = tasks(
        tmp_path,
        """
        [plan]
        on_failure = "cascade"
        [params]
        n = 3
        deep = false
        [tasks.last]
        call = "builtins:dict"
        kwargs = { a = [{ b = { task = "first" } }, { param = "n" }], task = { param = "deep" } }
        after = ["middle"]
        timeout = 1.5
        [tasks.middle]
        shell = ["echo", "{x}"]
        args = ["x"]
        [tasks.first]
        shell = "echo {x}"
        args = [["a", 1]]
        attempts = 7
        """,
        n="12",
        deep="true",
    )
    assert list(made).index("last") == 2
    last, first = made["last"], made["first"]
    assert last.kwargs == {"a": [{"b": first}, 12], "task": True}
    assert (last.fn, last.after, last.timeout, first.attempts) == (dict, [made["middle"]], 1.5, 7)


T = '[tasks.t]\nshell = "echo {x}"\nargs = [1]\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = ", "is not TOML"),
        ("", "there is no task"),
        ("[tusks]", "tusks: there is no such key here; there are params, plan, tasks"),
        (f"[plan]\nquota = 'a'\n{T}", "[plan] quota: there is no such key"),
        (f"[plan]\nname = ''\n{T}", "[plan]: the name of a plan must have 1 to 200"),
        (f"[plan]\nattempts = 0\n{T}", "[plan]: the defaults of its tasks: attempts must be 1 to"),
        (f"[plan]\non_failure = 'x'\n{T}", '[plan]: on_failure must be "hold" or "cascade"'),
        (f"[plan]\nattempts = true\n{T}", "[plan] attempts: it must be a whole number, not true"),
        (f"[params]\na = []\n{T}", "[params] a: a default must be a text"),
        ("[tasks]\nt = 1", "[tasks.t]: a task must be a table"),
        ("[tasks.t]", "[tasks.t]: it needs either shell"),
        (f"{T}call = 'a:b'", "[tasks.t]: it needs either shell"),
        (f"{T}quota = 'a'", "[tasks.t] quota: there is no such key"),
        (f"{T}timeout = '1'", "[tasks.t] timeout: it must be a number, not a text"),
        (f"{T}timeout = -1", "[tasks.t]: task 't' (echo {x}): timeout must be above 0"),
        (f"{T}after = [1]", "[tasks.t] after: an array must hold only names of tasks"),
        (f"{T}after = ['u']", "[tasks.t] after: there is no task 'u'; there are: t"),
        (f"{T}after = ['t']", "[tasks]: tasks wait for one another: t → t"),
        ("[tasks.t]\nshell = 'echo {x}'", "[tasks.t]: task 't' (echo {x}): its arguments do not"),
        ("[tasks.t]\nshell = \"'{x}'\"\nargs = [1]", "[tasks.t]: zkplan.shell: "),
        ("[tasks.t]\nshell = ''", "[tasks.t]: zkplan.shell: a command must"),
        ("[tasks.t]\nshell = '{x}'\nargs = [{task = 'u'}]", "[tasks.t] args: there is no task"),
        ("[tasks.t]\nshell = '{x}'\nargs = [{task = [1]}]", "[tasks.t] args: there is no task"),
        ("[tasks.t]\nshell = '{x}'\nargs = [{param = 'u'}]", "[tasks.t]: there is no parameter"),
        ("[tasks.t]\nshell = '{x}'\nargs = [true]", "[tasks.t]: the argument x of a command must"),
        ("[tasks.t]\ncall = 'json'", "[tasks.t] call: it must be MODULE:FUNCTION"),
        ("[tasks.t]\ncall = 'json:no'", "[tasks.t] call: json:no cannot be imported"),
        ("[tasks.t]\ncall = 'sys:path'", "[tasks.t] call: sys:path is not a function"),
        ("[tasks.t]\ncall = 'json:dumps'\ncwd = '/'", "[tasks.t] cwd: there is no such key"),
    ],
)
def test_a_mistake_is_reported_with_its_file_task_and_key(
    text: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidPlanFile) as refused:
        tasks(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path}/plan.toml")
    assert told in str(refused.value)


def test_a_cycle_is_reported_with_all_its_tasks(tmp_path: Path) -> None:
    text = "".join(
        f"[tasks.{name}]\nshell = '{{x}}'\nargs = [{{task = '{needed}'}}]\n"
        for name, needed in ("ab", "bc", "ca")
    )
    with pytest.raises(InvalidPlanFile, match=r"wait for one another: . → . → . → ."):
        tasks(tmp_path, text)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"m": "1"}, "no parameter 'm'; there are: n"),
        ({"n": "x"}, "n: the given value must be a whole number"),
    ],
)
def test_a_parameter_must_be_declared_and_have_the_type_of_its_default(
    params: dict[str, str], told: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidPlanFile, match=told):
        tasks(tmp_path, f"[params]\nn = 3\n{T}", **params)


def test_a_file_that_is_missing_is_reported() -> None:
    with pytest.raises(InvalidPlanFile, match="cannot be read: No such file"):
        read_plan_file("nowhere.toml")


def test_the_guide_shows_the_example_as_it_is() -> None:
    example = (TOP / "examples" / "report.toml").read_text(encoding="utf-8")
    assert f"```toml\n{example}```" in (TOP / "docs" / "start" / "guide.md").read_text("utf-8")
