"""`zkplan.shell` without a worker: the input of a command, its result, and how it ends."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zkplan
from tests.tools.support import wait_until
from zkplan.author.definition import Definer
from zkplan.author.task_specs import TaskSpec
from zkplan.errors import InvalidTask, ShellFailed
from zkplan.protocol.records import TaskRecord
from zkplan.runtime import output as stderr_log
from zkplan.runtime import shell as command
from zkplan.runtime import shell_process as process
from zkplan.runtime.shell_process import Group
from zkplan.values.codec import TASK, Codec, task_options
from zkplan.values.function_codec import describe_function
from zkplan.values.plan_values import Values

shell = zkplan.shell
HOSTILE = ["$(touch x)", "`touch x`", "; touch x", "a'b", 'a"b', "\\", "-n", "*", "", "a\nb", "é"]
#: Everything that the processes of the operating system take.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: not process._has_living(pid), "the whole group has ended")


@settings(max_examples=40, deadline=None)
@given(st.lists(TEXTS | st.sampled_from(HOSTILE), min_size=1, max_size=4))
def test_a_shell_receives_any_value_as_one_word(values: list[str]) -> None:
    printed = shell("printf '%s\\0' {values} end", check=False)(values)
    assert printed.stdout.split("\0")[:-1] == [*values, "end"]
    assert (printed.exit_code, printed.stderr) == (0, "")


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize(
    "form", ["{x}", 'a={x}; printf %s "$a"', "`printf '%s' {x}`", '"$(printf "{x}")"']
)
def test_no_value_is_executed_wherever_its_placeholder_is(
    value: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zkplan.runtime.shell.Template.refuse_quoted", lambda _: None)
    shell(f"printf '%s' {form}", cwd=tmp_path, check=False)(value)
    assert list(tmp_path.iterdir()) == []


def test_a_list_runs_without_a_shell_and_inserts_values_into_its_words() -> None:
    made = shell(["printf", "%s|", "{first}", "--x={second}", "{{}}"])
    assert made(["a b", 1], "$HOME") == "a b|1|--x=$HOME|{}|"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("echo '{x}'", "inside quotes"),
        ('echo "{x}"', "inside quotes"),
        ("echo a\\{x}", "inside quotes"),
        ("cat <<E\n{x}\nE", "here-document"),
        ("awk '{print $1}'", "itself twice"),
        ("echo {x!r}", "is not a placeholder"),
        ("echo {x.y}", "is not a placeholder"),
        ("echo {0}", "is not a placeholder"),
        ("echo {for}", "is not a placeholder"),
        ("echo }", "itself twice"),
        (" ", "not empty"),
        ([], "not empty"),
        (["echo", 1], "list of strings"),
    ],
)
def test_an_unsafe_or_invalid_command_is_refused_when_it_is_defined(wrong: Any, told: str) -> None:
    with pytest.raises(InvalidTask, match=told):
        shell(wrong)


def test_quotes_closed_before_a_placeholder_are_allowed() -> None:
    assert shell("# don't\nprintf %s 'a'\"b\"{x}\\''c'")("-") == "ab-'c"


@pytest.mark.parametrize(
    "options",
    [{"cwd": 1}, {"env": {"A": 1}}, {"input": 1}, {"output_limit": 0}, {"check": 1}],
    ids=lambda options: next(iter(options)),
)
def test_an_option_of_a_wrong_type_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises((InvalidTask, TypeError)):
        shell("true", **options)


@pytest.mark.parametrize("value", [None, True, {"a": 1}, b"bytes", ["a", None], "a\0b"])
def test_a_value_that_cannot_be_a_word_is_refused_by_name(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="argument x of a command"):
        shell("echo {x}")(value)


def test_a_failure_has_exit_code_signal_and_the_end_of_stderr() -> None:
    with pytest.raises(ShellFailed) as failed:
        shell("seq 9999 >&2; echo {x} >&2; exit 7")("it's")
    error = pickle.loads(pickle.dumps(failed.value))
    assert (error.exit_code, error.signal) == (7, "")
    assert error.stderr.endswith("9999\nit's")
    assert len(error.stderr) < 17_000
    assert str(error).startswith(
        "`seq 9999 >&2; echo 'it'\"'\"'s' >&2; exit 7` ended with exit code 7"
    )
    assert len(str(error)) < 2000
    for killed, code in (("kill -9 $$", -9), ("sh -c 'kill -9 $$'; exit $?", 137)):
        with pytest.raises(ShellFailed, match="SIGKILL") as failed:
            shell(killed)()
        assert (failed.value.exit_code, failed.value.signal) == (code, "SIGKILL")


def test_output_is_kept_up_to_its_limit_with_a_mark_where_it_was_cut() -> None:
    assert shell("printf 'a\\n\\n'", output_limit=3)() == "a"
    assert shell("printf 12345", output_limit=3)() == "[zkplan: 2 bytes cut here]\n345"
    many = shell("head -c 3000000 /dev/zero | tr '\\0' x; echo", output_limit=1000)()
    assert many == "[zkplan: 2999001 bytes cut here]\n" + "x" * 999


def test_input_of_any_size_is_written_while_output_is_read() -> None:
    large = "é" * 500_000
    made = shell(["cat"], input="{a}-{{{b}", output_limit=4_000_000)
    assert made(large, b"\xc3\xa9") == f"{large}-{{é"
    assert shell("cat", input=b"{x}")() == "{x}"
    assert shell("exec <&-; echo done", input="{a}")(large) == "done"
    assert shell("cat")() == ""
    with pytest.raises(ValueError, match="give it as input="):
        shell("echo {a}")(large)


def test_a_command_gets_the_environment_of_its_worker_without_the_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ZKPLAN_SECRET", "hidden")
    monkeypatch.setenv("ZKPLAN_ROOT", "/shown")
    printed = shell("env; pwd", cwd=tmp_path, env={"MORE": "than before"})().splitlines()
    assert {"ZKPLAN_ROOT=/shown", "MORE=than before", str(tmp_path)} <= {*printed}
    assert "hidden" not in " ".join(printed)


def test_stderr_is_logged_line_by_line_up_to_a_limit(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stderr_log, "LINES_MAX", 3)
    caplog.set_level(logging.INFO, "shell")
    shell("printf 'one\\ntwo' >&2")()
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["one", "two"]
    caplog.clear()
    shell("seq 100 >&2; head -c 9999 /dev/zero >&2")()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 4
    assert told[3].endswith("only the first 3 lines of its stderr are logged")


class Unwanted(Exception):
    """What the worker raises when the result is not wanted any more."""


def test_all_processes_of_an_unwanted_command_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_S", 0.3)
    # One of them ignores SIGTERM, and neither reads nor closes anything.
    program = "(trap '' TERM; sleep 1000 & wait; sleep 1000) & sleep 1000 & echo $$ >&2; wait"
    group = Group(program, None, dict(os.environ), b"")
    told: list[int] = []

    def check() -> None:
        if told:
            raise Unwanted

    with pytest.raises(Unwanted):
        group.run((9, 9), lambda data: told.append(int(data)), check)
    assert told == [group._process.pid]
    wait_until_gone(told[0])
    assert group._process.returncode == -signal.SIGTERM


def test_processes_that_a_command_leaves_running_end_with_it() -> None:
    pid = int(shell("sleep 1000 & echo $$")())
    wait_until_gone(pid)


#: The worker dies when it has started the command, and is about to start what ends it.
DIES_BETWEEN = """
import os, signal, subprocess, zkplan

class Popen(subprocess.Popen):
    def __init__(self, *args, **kwargs):
        if os.path.exists("pid"):
            os.kill(os.getpid(), signal.SIGKILL)
        super().__init__(*args, **kwargs)
        open("pid", "w").write(str(self.pid))

subprocess.Popen = Popen
zkplan.shell("echo begun > begun; sleep 1000; true")()
"""


def test_a_command_whose_worker_dies_before_it_can_end_it_never_begins(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", DIES_BETWEEN], cwd=tmp_path, check=False)
    assert ran.returncode == -signal.SIGKILL
    wait_until_gone(int((tmp_path / "pid").read_text()))
    assert not (tmp_path / "begun").exists()


def test_a_command_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    for missing in (["no-such-program"], "no-such-program"):
        with pytest.raises(ShellFailed, match=r"exit code 127(.|\n)*not found"):
            shell(missing)()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        shell("true", cwd=tmp_path / "nowhere")()


def test_a_shell_task_refers_to_a_function_that_workers_import() -> None:
    values = Values(None, Codec())  # type: ignore[arg-type]
    decorated = zkplan.task(attempts=9)(shell("echo {x}"))
    for fn, attempts in ((shell("echo {x}"), 3), (decorated, 9)):
        made = Definer("/zkplan/plan-0000000001", values).define(TaskSpec(fn, ["a"]))
        record = TaskRecord.from_bytes(values.codec.open(TASK, made.record)[1])
        assert describe_function(record.function) == f"{command.__name__}.run_command"
        assert record.arguments[:1] == b"P", "builtin data alone, which any version of Python reads"
        options = task_options(record)
        assert (options.name, options.attempts) == ("echo {x}", attempts)
    with pytest.raises(InvalidTask, match="do not fit"):
        Definer("/p", values).define(TaskSpec(shell("echo {x}"), []))
