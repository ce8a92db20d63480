"""No command shows a password, a key or an argument: each is run under several conditions."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tests.tools.command_tree import commands
from tests.tools.support import Here, Run, key_file, working
from zkplan.cli import cli
from zkplan.testing.server_process import free_port

from .planted import (
    ARGUMENT,
    CANARY,
    OPTIONS,
    PASSWORD,
    SECRET,
    SECRETS,
    Closed,
    closed_root,
    everything_logged,
    file_with,
)

PLANS = ("failed", "done", "cancelled", "defining")
PLAN_FILE = """
[params]
given = "x"
number = 1
[tasks.a]
call = "operator:pos"
args = ["{given}"]
"""


class Line(NamedTuple):
    """A command, its arguments, and the exit codes for its owner: of each plan, or one for all.

    What stands in braces is of the test: see `filled`.
    """

    command: str
    words: str = ""
    codes: tuple[int, ...] = (0,)
    #: The exit code for a login that no access list names.
    shut: int = 2
    #: Whether it asks no server.
    is_offline: bool = False
    #: Whether its user asks for values.
    shows_values: bool = False

    def code(self, plan: str) -> int:
        return dict(zip(PLANS, itertools.cycle(self.codes), strict=False))[plan]


#: They change nothing. Each is run for a table and for JSON.
READS = (
    Line("plan ls"),
    Line("plan show", "{plan}"),
    Line("plan why", "{plan}"),
    Line("plan history", "{plan}"),
    Line("plan history", "--all-plans"),
    Line("plan timeline", "{plan}"),
    Line("plan graph", "{plan}"),
    Line("plan check", "{plan}"),
    Line("plan wait", "{plan} --timeout 0", (1, 0, 1, 4)),
    Line("plan archived", "--store memory://archives", shut=0),
    Line("task ls", "{plan}"),
    Line("task ls", "{plan} --all"),
    Line("task ls", "{plan} --outcomes"),
    Line("task ls", "--all-plans"),
    Line("task show", "{plan} {first}"),
    Line("task show", "{plan} {second}"),
    Line("task show", "{plan} {second} --values", shows_values=True),
    Line("task logs", "{plan} {first}"),
    Line("task why", "{plan} {first}"),
    Line("task replay", "{plan} {first}", (1, 2, 1, 0), shows_values=True),
    Line("queue ls"),
    Line("limit ls"),
    Line("top", "--once"),
    Line("metrics"),
    Line("schedule ls"),
    Line("schedule show", "planted"),
    Line("schedule next", "planted"),
    Line("config show", shut=0, is_offline=True),
    Line("config check", shut=1),
    Line("root show"),
    Line("run", "{folder}/plan.toml --param given={value} --check", shut=0, is_offline=True),
    Line("root budget show", "--count"),
    Line("root retention show", shut=0),  # that none is set, which is no secret
    Line("worker ls"),
)
#: Each is run once, in this order: what removes comes last.
CHANGES = (
    Line("plan graph", "{plan} --format mermaid"),
    Line("plan export", "{plan} --out {folder}/{name}.out", (2, 0, 0, 0)),
    Line("root init"),
    Line("root lock"),
    Line("root rotate-key"),
    Line("root budget set", "--znodes 90000"),
    Line("root budget rm"),
    Line("root retention set", "7d --yes"),
    Line("root retention rm", "--yes"),
    Line("root new-key", "{folder}/{name}.key", shut=0, is_offline=True),
    Line("serve new-token", "--tokens {folder}/tokens --role read", shut=0, is_offline=True),
    Line("limit set", "planted 3"),
    Line("schedule add", "planted @yearly operator:pos --args {json}"),
    Line("schedule pause", "planted"),
    Line("schedule resume", "planted"),
    Line("schedule trigger", "planted"),
    Line("run", "{folder}/plan.toml --param given={value} --no-wait"),
    Line("run", "{folder}/plan.toml --param given={value} --timeout 0", (4,)),
    Line("plan import", "{folder}/exported --copy"),
    Line("worker pause", "{worker}"),
    Line("worker resume", "{worker}"),
    Line("plan set", "{plan} --weight 2", (0, 2, 1, 2)),
    Line("plan mark-ready", "{plan}", (0, 0, 1, 0)),
    Line("plan pause", "{plan}", (0, 2, 1, 0)),
    Line("plan resume", "{plan}", (0, 2, 1, 0)),
    Line("task set", "{plan} {second} --priority 1", (0, 2, 1, 0)),
    Line("task retry", "{plan} {first}", (0, 2, 1, 2)),
    Line("plan retry", "{plan}", (0, 0, 1, 0)),
    Line("task skip", "{plan} {second} --value {json} --yes", (0, 2, 1, 0)),
    Line("task cancel", "{plan} {first} --yes", (0, 2, 1, 0)),
    Line("plan cancel", "{plan}", (0, 2, 0, 0)),
    Line("plan gc", "--yes"),
    Line("plan rm", "{plan} --yes"),
    Line("schedule rm", "planted"),
    Line("limit rm", "planted"),
    Line("worker drain", "{worker}"),
)
#: They end before anything is written. What somebody has typed is not told either.
WRONG = (
    Line("plan show", "nowhere", (2,)),
    Line("task show", "{plan} nowhere", (2,)),
    Line("schedule show", "nowhere", (2,)),
    Line("worker drain", "nowhere", (2,)),
    Line("plan import", "{folder}/plan.toml", (2,)),
    Line("task skip", "{plan} {second} --yes --value {value}", (2,)),
    Line("schedule add", "another @yearly operator:pos --args {value}", (2,)),
    Line("schedule add", "another @yearly operator:pos --args {text}", (2,)),
    Line("run", "{folder}/plan.toml --param {value}", (2,)),
    Line("run", "{folder}/plan.toml --param number={value}", (2,)),
    Line("run", "{folder}/wrong.toml", (2,)),
    Line("plan ls", "--secret-file {folder}/weak.keys", (2,)),
    Line("plan ls", "--login-file {folder}/weak.keys --login-user= ", (2,)),
    Line("server", "--listen 127.0.0.1:0 --login-file {folder}/weak.keys", (2,)),
)
#: They run until they are told to stop, or start processes: here only without a server.
STAYING = (
    *(Line("worker"), Line("serve"), Line("metrics", "--listen 127.0.0.1:0")),
    *(Line("demo"), Line("stress")),
)


def test_these_tests_try_each_command() -> None:
    named = {f"zkplan {line.command}" for line in (*READS, *CHANGES, *STAYING, *WRONG)}
    assert named == set(commands(cli, "zkplan"))


class World:
    """Runs lines as somebody, and searches what they say."""

    def __init__(
        self, run: Run, patch: pytest.MonkeyPatch, folder: Path, closed: Closed, worker: str
    ) -> None:
        self._run, self._patch, self._folder = run, patch, folder
        self._worker, self._plans = worker, {}
        for name, plan in closed.plans.items():
            second = int(plan.task("second").number)
            numbers = {"plan": int(plan.number), "first": second - 1, "second": second}
            self._plans[name] = numbers
        self.environment = {
            "ZKPLAN_HOSTS": closed.hosts,
            "ZKPLAN_ROOT": closed.root,
            "ZKPLAN_SECRET_FILES": file_with(folder, SECRET),
            "ZKPLAN_LOGIN_USER": "owner",
            "ZKPLAN_LOGIN_PASSWORD": PASSWORD,
        }
        closed.client.export_plan(closed.plans["defining"], folder / "exported")
        (folder / "plan.toml").write_text(PLAN_FILE)
        (folder / "wrong.toml").write_text(PLAN_FILE.replace('["{given}"]', f'"{ARGUMENT}"'))
        file_with(folder, PASSWORD, "weak.keys")

    def _words(self, line: Line, name: str) -> list[str]:
        numbers, folder = self._plans[name], self._folder
        values = {"value": ARGUMENT, "text": f'"{ARGUMENT}"', "json": f'["{ARGUMENT}"]'}
        given = {"folder": folder, "worker": self._worker, "name": name}
        return [*line.command.split(), *line.words.format(**numbers, **values, **given).split()]

    def __call__(self, line: Line, name: str, *, is_owner: bool = False) -> Iterator[int]:
        """Its exit code, and that with JSON for output."""
        searched = SECRETS if is_owner and line.shows_values else CANARY
        for more in ([], ["-o", "json"]) if line in READS and has_output(line) else ([],):
            for variable, value in self.environment.items():  # a worker takes some away
                self._patch.setenv(variable, value)
            words = [*self._words(line, name), *more]
            said = self._run(*words)
            told = said.out + said.err
            assert searched.search(told) is None, f"{words} shows it: {told}"
            assert "Traceback" not in said.err or line.command == "task replay", told
            yield said.code


def has_output(line: Line) -> bool:
    command: click.Command = cli
    for word in line.command.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return any(each.name == "output" for each in command.params)


def of_each_plan(lines: tuple[Line, ...], plans: list[str]) -> Iterator[tuple[Line, str]]:
    """Each line for each plan; once, if it names none."""
    for line in lines:
        for name in plans if "{plan}" in line.words or "{name}" in line.words else plans[:1]:
            yield line, name


@pytest.fixture
def world(here: Here, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The world of the owner, with plans of its own and a worker that runs nothing of them."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands add the current folder
    hosts, root = here[0], f"{here[1]}-closed"
    idle = {"queues": ("elsewhere",)}
    with (
        closed_root(hosts, root) as closed,
        working(hosts, root, of_worker=idle, **OPTIONS),
        everything_logged() as log,
    ):
        (worker,) = closed.client.workers()
        yield World(run, monkeypatch, tmp_path, closed, worker.id)
    told = log.getvalue()
    assert CANARY.search(told) is None
    assert "Sending request" in told  # of kazoo, which tells most


def quickly(plan: str) -> pytest.MarkDecorator:
    """This plan in the quick form, all of them in the other."""
    forms = [[plan], pytest.param([*PLANS], marks=pytest.mark.slow)]
    return pytest.mark.parametrize("plans", forms, ids=("one plan", "all plans"))


@quickly("failed")
def test_no_command_of_the_owner_prints_a_secret(
    plans: list[str], world: World, tmp_path: Path
) -> None:
    for lines in (READS, WRONG, CHANGES):
        for line, name in of_each_plan(lines, plans):
            wanted = line.code(name)
            assert {*world(line, name, is_owner=True)} == {wanted}, (line, name)
    files = [tmp_path / "exported", *tmp_path.glob("*.out")]
    assert len(files) == len(plans)  # and one more, but the plan that failed is not exported
    for file in files:
        content = content_of(file)
        assert ARGUMENT.encode() in content  # so what is searched is what the tree holds
        assert SECRETS.search(content.decode(errors="replace")) is None
        assert bytes.fromhex(SECRET.partition(":")[2]) not in content
    for made in (*tmp_path.glob("*.key"), tmp_path / "tokens"):
        assert made.stat().st_mode & 0o077 == 0


def content_of(file: Path) -> bytes:
    """All that stands in an exported file: its lines, and what they carry in base64."""
    written = gzip.decompress(file.read_bytes())
    lines = [json.loads(line) for line in written.splitlines()]
    carried = [base64.b64decode(line["base64"]) for line in lines if "base64" in line]
    return b"\n".join([written, *carried])


@quickly("done")
def test_with_another_key_no_command_prints_a_secret_or_a_value(
    plans: list[str], world: World, tmp_path: Path
) -> None:
    """He has the login, so he sees and changes what access lists alone guard."""
    world.environment["ZKPLAN_SECRET_FILES"] = str(key_file(tmp_path, "another"))
    codes: dict[str, set[int]] = {}
    for line, name in of_each_plan((*READS, *CHANGES), plans):
        codes.setdefault(f"{line.command} {line.words}".strip(), set()).update(world(line, name))
    refused = ("plan show {plan}", "task replay {plan} {first}", "worker pause {worker}")
    assert [codes[each] for each in refused] == [{2}] * 3
    assert 2 in codes["task show {plan} {second} --values"]
    assert codes["plan ls"] == codes["task ls {plan}"] == {0}


@pytest.mark.parametrize("user", ["other", ""])
def test_with_another_login_or_none_each_command_refuses_without_a_secret(
    user: str, world: World
) -> None:
    world.environment["ZKPLAN_LOGIN_USER"] = user
    if not user:
        world.environment["ZKPLAN_LOGIN_PASSWORD"] = ""
    for line, name in of_each_plan((*READS, *CHANGES), ["failed"]):
        assert {*world(line, name)} == {line.shut}, line


@pytest.mark.parametrize("some", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_without_a_server_no_command_prints_a_secret(some: bool, world: World) -> None:
    """The quick form takes the first line of each group of commands."""
    lines: tuple[Line, ...] = (*READS, *CHANGES, *STAYING)
    if some:
        lines = tuple({line.command.split()[0]: line for line in reversed(lines)}.values())
    world.environment["ZKPLAN_HOSTS"] = f"127.0.0.1:{free_port()}"
    world.environment["ZKPLAN_CONNECT_TIMEOUT"] = "0.01"
    for line, name in of_each_plan(lines, ["failed"]):
        wanted = 0 if line.is_offline else 1 if line.command == "config check" else 3
        assert {*world(line, name)} == {wanted}, line


def test_with_wrong_settings_no_command_prints_a_secret(world: World, tmp_path: Path) -> None:
    """The password is on the line that is wrong."""
    profile = f'[profiles.x]\nhosts = "a:1"\nlogin.user = "o"\nlogin.password = "{PASSWORD}\n'
    file = file_with(tmp_path, profile, "wrong-profile.toml")
    world.environment = {"ZKPLAN_CONFIG": file, "ZKPLAN_PROFILE": "x"}
    for line, name in of_each_plan((*READS, *CHANGES, *STAYING), ["failed"]):
        asks_nothing = line.command in ("root new-key", "serve new-token")
        assert {*world(line, name)} == {0 if asks_nothing else 2}, line
