"""Commands print aligned tables and valid JSON, with only data on standard output."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner

from zkplan.basics.settings import Settings
from zkplan.cli import PrintableFormatter, cli, exit_code
from zkplan.cli.common import (
    connection_options,
    log_to_stderr,
    output_option,
    print_facts,
    print_rows,
)
from zkplan.errors import ServerRolledBack, ZooKeeperUnavailable

ROWS = [
    {"name": "first", "tasks": 3, "seconds": 1.5, "extra": "x"},
    {"name": "a much longer name", "tasks": 12, "seconds": None},
]
COLUMNS = ["name", "tasks", "seconds"]


@pytest.fixture
def logging_restored() -> Iterator[None]:
    """logging.basicConfig changes the whole process."""
    level, kazoo_level = logging.root.level, logging.getLogger("kazoo").level
    yield
    logging.root.setLevel(level)
    logging.getLogger("kazoo").setLevel(kazoo_level)


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        (
            ROWS,
            [
                "name                tasks  seconds",
                "first               3      1.5",
                "a much longer name  12",
            ],
        ),
        ([], ["name  tasks  seconds"]),
    ],
)
def test_a_table_has_aligned_columns_and_no_blanks_at_the_end(
    rows: list[dict[str, Any]], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    print_rows(rows, "table", COLUMNS)
    assert capsys.readouterr().out.splitlines() == lines
    print_rows(rows, "json", COLUMNS)
    assert json.loads(capsys.readouterr().out) == rows, "with every field"


def test_each_fact_starts_a_line_and_its_further_lines_are_indented(
    capsys: pytest.CaptureFixture[str],
) -> None:
    facts = {"name": "sum", "error": "Traceback\n  line 1", "result": None, "empty": ""}
    print_facts(facts, "table")
    assert capsys.readouterr().out.splitlines() == [
        "name    sum",
        "error   Traceback",
        "          line 1",
        "result",
        "empty",
    ]


def test_facts_as_json_are_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"name": "sum", "seconds": 1.25, "state": None}
    print_facts(facts | {"unknown": {1}}, "json")
    assert json.loads(capsys.readouterr().out) == facts | {"unknown": "{1}"}


@pytest.mark.parametrize(
    ("value", "shown"), [(1.0, "1"), (0.1234, "0.123"), (10.0, "10"), (100, "100"), (True, "True")]
)
def test_numbers_are_short(value: float, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"x": value}, "table")
    assert capsys.readouterr().out == f"x  {shown}\n"


def test_logs_go_to_standard_error(
    logging_restored: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # pytest's own would be kept
    log_to_stderr()
    logging.getLogger("zkplan").info("a worker registered")
    logging.getLogger("kazoo").warning("a reconnect")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "INFO zkplan: a worker registered" in captured.err
    assert "a reconnect" not in captured.err


@click.command()
@connection_options
@output_option
def shown(settings: Settings, output: str) -> None:
    facts = {"hosts": settings.hosts, "root": settings.root, "secret": settings.secret_files}
    print_facts(facts | {"time": settings.connect_timeout}, output)


def test_each_connection_option_has_its_environment_variable() -> None:
    environment = {
        "ZKPLAN_HOSTS": "zk1:2181/team",
        "ZKPLAN_ROOT": "/plans",
        "ZKPLAN_SECRET_FILES": "/keys/one:/keys/two",
        "ZKPLAN_CONNECT_TIMEOUT": "2.5",
        "ZKPLAN_OUTPUT": "json",
    }
    result = CliRunner().invoke(shown, [], env=environment)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "hosts": "zk1:2181/team",
        "root": "/plans",
        "secret": ["/keys/one", "/keys/two"],
        "time": 2.5,
    }


def test_a_typed_option_beats_the_environment() -> None:
    result = CliRunner().invoke(
        shown, ["--root", "/typed", "-o", "json"], env={"ZKPLAN_ROOT": "/environment"}
    )
    assert json.loads(result.stdout)["root"] == "/typed"


@pytest.mark.parametrize(
    "words", [[], ["worker"], ["worker", "ls"], ["demo"], ["stress"], ["server"], ["plan", "show"]]
)
def test_each_command_prints_its_help_for_the_short_option(words: list[str]) -> None:
    short, long = (CliRunner().invoke(cli, [*words, option]) for option in ("-h", "--help"))
    assert (short.exit_code, short.output) == (0, long.output)
    assert "-h, --help" in short.output


def test_an_unknown_output_format_is_a_usage_error() -> None:
    assert CliRunner().invoke(shown, ["-o", "yaml"]).exit_code == 2


def test_log_lines_and_tracebacks_cannot_drive_a_terminal() -> None:
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        record = logging.LogRecord("x", 20, "x.py", 1, "of %s", ("\x9bm",), sys.exc_info())
    said = PrintableFormatter("%(message)s").format(record)
    assert said.startswith("of \\x9bm\n  | Traceback")
    assert said.endswith("ValueError: \\x1b[2J")


def test_names_from_the_tree_cannot_drive_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    nasty = "\x1b]0;owned\x07 \x1b[31mred \u202egnp.exe\rback\ud800"
    print_rows([{"name": f"{nasty}\nsecond"}], "table", ["name"])
    print_facts({"name": nasty, "failures": "one\ntwo\x1b[2J"}, "table")
    said = capsys.readouterr().out
    assert all(each.isprintable() for line in said.splitlines() for each in line)
    assert r"\x1b]0;owned\x07 \x1b[31mred \u202egnp.exe\rback\ud800\nsecond" in said
    assert [line.split()[-1] for line in said.splitlines()[-2:]] == ["one", r"two\x1b[2J"]


def test_a_restored_zookeeper_exits_like_an_unreachable_one() -> None:
    """With 2, wrong usage, nobody would start it again."""
    assert exit_code(ServerRolledBack("restored")) == exit_code(ZooKeeperUnavailable("away")) == 3
