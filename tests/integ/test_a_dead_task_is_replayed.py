"""`zkplan task replay` runs the function of a dead task here and commits nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import Here, Run, key_file, secret_of, tree, wait_until, working
from zkplan import Client, TaskError
from zkplan.author.functions import NamedFunction
from zkplan.runtime.replay import replay

pytestmark = pytest.mark.usefixtures("nothing_stalls")


def divide(a: int, b: int) -> float:
    zkplan.current().log({"a": a})
    zkplan.current().plan.add_task(int)
    if Path("there").exists():
        return a / 1
    return a / b


def test_a_dead_task_runs_here_with_its_arguments_and_commits_nothing(
    here: Here,
    zkplan_client: Client,
    znodes: KazooClient,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with zkplan_client.create_plan("p", attempts=1) as plan:
        bad = plan.add_task(divide, [plan.add_task(int, ["6"]), 0], name="bad")
    with working(*here):
        wait_until(lambda: plan.status().dead, "it is dead")
    before = tree(znodes, zkplan_client.root)
    failed = run("task", "replay", "p", "bad")
    assert failed.code == 1
    assert "ZeroDivisionError" in failed.err
    assert "log: {'a': 6}" in failed.err
    monkeypatch.chdir(tmp_path)
    Path("there").touch()
    logs: list[object] = []
    assert replay(plan, bad, logs.append) == (6.0, 1)
    assert logs == [{"a": 6}]
    assert replay(plan, bad, logs.append, lambda function, *args: args)[0] == (6, 0)
    assert tree(znodes, zkplan_client.root) == before


def test_a_finished_or_waiting_task_is_not_replayed(here: Here, zkplan_client: Client) -> None:
    with zkplan_client.create_plan() as plan:
        first = plan.add_task(int)
        last = plan.add_task(str, [first])
    with pytest.raises(TaskError, match="still missing"):
        replay(plan, last)
    with working(*here):
        plan.wait(30)
    with pytest.raises(TaskError, match="has finished"):
        replay(plan, first)


def test_with_json_only_allowed_functions_are_replayed(
    here: Here, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = tmp_path / "imported"
    (tmp_path / "left_out.py").write_text(f"open({str(imported)!r}, 'w').close()\nf = print")
    monkeypatch.syspath_prepend(tmp_path)
    allowed = f"{divide.__module__}:divide"
    secret: Any = secret_of("json")
    with zkplan.connect(*here, serializer="json", secret=secret) as client:
        with client.create_plan("p", attempts=1) as plan:
            plan.add_task(divide, [6, 0], name="ours")
            plan.add_task(NamedFunction("left_out:f"), name="theirs")
        with working(*here, serializer="json", secret=secret, of_worker={"allow": [allowed]}):
            wait_until(lambda: plan.status().dead == 2, "both are dead")
    keys = ("--serializer", "json", "--secret-file", str(key_file(tmp_path, "json")))
    replayed = ("task", "replay", "p")
    ours = run(*replayed, "ours", *keys, "--allow", allowed)
    assert (ours.code, "ZeroDivisionError" in ours.err) == (1, True)
    theirs = run(*replayed, "theirs", *keys, "--allow", allowed)
    assert theirs.code == 2
    assert "left_out:f is not on the list of allowed functions" in theirs.err
    assert not imported.exists()
    for task in ("ours", "theirs"):
        assert "only allowed functions run" in run(*replayed, task, *keys).err
    assert "--allow needs --serializer json" in run(*replayed, "ours", "--allow", allowed).err
