"""Commands as tasks, plan files, and order without value, on a server."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import zkplan
from tests.tools.support import TOP, WAIT_S, Here, Run, WorkerProcess, note, notes, wait_until
from zkplan import Client
from zkplan.runtime import shell_process as process

shell = zkplan.shell
#: Writes its process group, and then ends only when it is told to, which it writes, too.
LONG = "f={file}; trap 'echo told >> $f; exit' TERM; echo $$ >> $f; sleep 1000 & wait"


def started(file: Path) -> int:
    """The process group of LONG."""
    wait_until(lambda: notes(file), "the command has started")
    return int(notes(file)[0])


def wait_until_ended(file: Path, group: int) -> None:
    wait_until(lambda: not process._has_living(group), "all processes of the command end")
    assert notes(file)[1:] == ["told"]


@pytest.mark.usefixtures("worker")
def test_results_with_any_characters_reach_commands_unchanged(zkplan_client: Client) -> None:
    hostile = "$(exit 1) `x` ; ' \" \\ *"
    echo = shell("printf '%s' {x}")
    with zkplan_client.create_plan() as plan:
        first = echo(hostile)
        lengths = [plan.add_task(len, [first]), echo(x=first)]
        last = plan.add_task(zkplan.task(name="all")(shell("echo {xs} >&2; echo {xs}")), [lengths])
        mapped = plan.map(shell("echo {x}"), range(3), chunksize=2)
    assert last.result(WAIT_S) == f"{len(hostile)} {hostile}"
    assert (last.name, first.name) == ("all", "printf '%s' {x}")
    assert mapped[:] == ["0", "1", "2"]


@pytest.mark.usefixtures("worker")
def test_a_failed_command_fails_its_task_with_all_known_details(zkplan_client: Client) -> None:
    with zkplan_client.create_plan(attempts=1) as plan:
        task = plan.add_task(shell("echo no data >&2; exit 3"), name="broken")
        checked = plan.add_task(shell("echo some; exit 3", check=False))
    with pytest.raises(zkplan.ShellFailed, match="ended with exit code 3:\nno data") as failed:
        task.result(WAIT_S)
    assert (failed.value.exit_code, failed.value.stderr) == (3, "no data")
    assert failed.value.task == "broken"
    assert checked.result(WAIT_S) == zkplan.ShellResult(3, "some", "")
    ((_, letter),) = plan.dead()
    assert letter.error.startswith("ShellFailed: `echo no data >&2; exit 3` ended with")


@pytest.mark.usefixtures("worker")
def test_a_task_runs_after_tasks_whose_results_it_does_not_take(
    zkplan_client: Client, tmp_path: Path
) -> None:
    with zkplan_client.create_plan() as plan:
        before = [plan.add_task(note, [str(tmp_path / "n"), each]) for each in "ab"]
        count = plan.add_task(notes, [str(tmp_path / "n")], after=before)
        both = plan.add_task(len, [count], after=[count, *before])
    assert both.result(WAIT_S) == 2
    with pytest.raises(zkplan.InvalidTask, match="after must be a list of tasks"):
        plan.add_task(len, [""], after="ab")  # type: ignore[arg-type]


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("by", ["cancel", "timeout"])
def test_a_command_ends_when_its_task_ends(by: str, zkplan_client: Client, tmp_path: Path) -> None:
    file = tmp_path / "notes"
    with zkplan_client.create_plan(attempts=1) as plan:
        # The time-out may be over only after the command has set its trap.
        task = plan.add_task(shell(LONG), [file], timeout=3 if by == "timeout" else None)
    group = started(file)
    if by == "cancel":
        plan.cancel()
    else:
        with pytest.raises(zkplan.TaskFailed, match="TimeoutError"):
            task.result(WAIT_S)
    wait_until_ended(file, group)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_ends_when_its_worker_ends(
    by: signal.Signals, zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    with zkplan_client.create_plan() as plan:
        plan.add_task(shell(LONG), [file])
    with WorkerProcess(*here, tmp_path, "--grace", "0") as worker:
        group = started(file)
        worker.process.send(by)
        wait_until_ended(file, group)
    plan.cancel()


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    file = tmp_path / "plan.toml"
    file.write_text("[plan]\nname = 'filed'\nattempts = 1\n[tasks.t]\nshell = 'exit 4'\n")
    return file


@pytest.mark.usefixtures("worker")
def test_a_plan_file_is_run_and_a_failure_sets_the_exit_code(
    run: Run, plan_file: Path, zkplan_client: Client
) -> None:
    failed = run("run", str(plan_file))
    assert failed.code == 1
    assert "`exit 4` ended with exit code 4" in failed.err
    number = run("run", str(plan_file), "--no-wait", "--name", "other")
    assert (number.code, number.out.strip().isdecimal()) == (0, True)
    assert zkplan_client.plan(number.out.strip()).name == "other"
    done = run("run", str(TOP / "examples" / "report.toml"), "--param", "day=x; y", "-o", "json")
    assert (done.code, done.data["state"], done.data["finished"]) == (0, "done", 4)
    plan = zkplan_client.plan("report")
    assert [plan.task(name).result() for name in ("words", "tell")] == [
        ["1", "2", "3"],
        "x; y is done",
    ]


def test_a_wrong_plan_file_and_a_mere_check_write_nothing(
    run: Run, plan_file: Path, zkplan_client: Client
) -> None:
    checked = run("run", str(plan_file), "--check")
    assert (checked.code, checked.out) == (0, "")
    assert "1 task, nothing is wrong" in checked.err
    assert run("run", str(plan_file), "--param", "a").code == 2
    plan_file.write_text("[tasks.t]\nshell = 'true'\nlimit = 1\n")
    wrong = run("run", str(plan_file))
    assert wrong.code == 2
    assert f"{plan_file}: [tasks.t] limit: there is no such key here" in wrong.err
    assert zkplan_client.plans() == []


def test_a_run_that_times_out_ends_with_its_own_exit_code(run: Run, plan_file: Path) -> None:
    assert run("run", str(plan_file), "--timeout", "0.2").code == 4
