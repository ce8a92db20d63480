"""A task with `run_if` gets the failures of its dependencies; some failures are final."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import Here, note, notes, wait_until, working
from zkplan import Client, Failure
from zkplan.protocol.records import OnFailure
from zkplan.protocol.requests import Applied, Multi, SetData


class Wrong(ValueError):
    """An error of a user's own."""


def fail(text: str = "no") -> None:
    raise Wrong(text)


def fail_until(gate: str) -> str:
    if not Path(gate).exists():
        raise Wrong("the gate is shut")
    return "open"


def seen(*values: Any) -> list[str]:
    return [str(each) if isinstance(each, Failure) else repr(each) for each in values]


def kept(failure: Failure) -> tuple[str, str, bool, int, bool]:
    where = "in fail" in failure.traceback and "raise Wrong" in failure.traceback
    return failure.type, failure.message, where, failure.attempt, bool(failure.worker)


@pytest.mark.parametrize("policy", ["hold", "cascade"])
def test_failures_arrive_as_values_if_a_task_accepts_them(
    policy: OnFailure, zkplan_client: Client, here: Here
) -> None:
    with zkplan_client.create_plan("cleans", on_failure=policy, attempts=2, retry_delay=0) as plan:
        good, bad = plan.add_task(int, [7], keep=True), plan.add_task(fail, ["told"])
        facts = plan.add_task(kept, [bad], run_if="all_finished")
        both = plan.add_task(seen, [good, bad], run_if="all_finished", keep=True)
        handler = plan.add_task(seen, [good, bad], run_if="any_failed")
        unasked = plan.add_task(seen, [good], run_if="any_failed")
        after = plan.add_task(seen, [unasked, handler])
        ordered = plan.add_task(seen, ["clean"], after=[bad], run_if="all_finished")
        plain = plan.add_task(seen, [bad, good], keep=True)
        last = plan.add_task(seen, [plain, both], run_if="all_finished")
    with working(*here):
        assert facts.result(30) == ("Wrong", "told", True, 1, True)
        assert both.result(30) == ["7", "Wrong: told"]
        assert after.result(30) == ["None", "['7', 'Wrong: told']"]
        assert ordered.result(30) == ["'clean'"]
        assert (unasked.info().skipped, plan.status().skipped) == (True, 1)
        if policy == "cascade":
            task = f"task {int(bad.number)}, which it depends on"
            told = f"UpstreamFailed: {task}, failed: Wrong: told"
            assert last.result(30) == [told, "['7', 'Wrong: told']"]
            return
        # The dead task stays, and what takes results alone waits for its retry.
        wait_until(lambda: plan.status().state == "failed", "nothing more can run")
        assert [bad.state(), plain.state(), last.state()] == ["dead", "waiting", "waiting"]
        assert bad.skip("instead")
        assert plain.result(30) == ["'instead'", "7"]
        assert last.result(30)
        plan.wait(30)


def test_a_retry_after_a_delivered_failure_runs_only_unfinished_tasks(
    zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    gate, file = tmp_path / "gate", tmp_path / "notes"
    with zkplan_client.create_plan("retries", attempts=1) as plan:
        bad = plan.add_task(fail_until, [str(gate)])
        cleaned = plan.add_task(note, [str(file), "cleaned"], after=[bad], run_if="all_finished")
        end = plan.add_task(seen, [bad])
    with working(*here):
        wait_until(lambda: plan.status().state == "failed" and notes(file), "it was told")
        assert cleaned.state() == "finished"
        gate.touch()
        assert bad.retry()
        assert end.result(30) == ["'open'"]
        plan.wait(30)
    assert notes(file) == ["cleaned"]


def test_tasks_added_after_a_dead_task_get_its_failure(zkplan_client: Client, here: Here) -> None:
    with zkplan_client.create_plan("late", attempts=1) as plan:
        bad = plan.add_task(fail)
        plan.add_task(seen, [bad])
    with working(*here):
        wait_until(lambda: plan.status().state == "failed", "it is dead")
        late = plan.add_task(seen, [bad], run_if="any_failed")
        assert late.result(30) == ["Wrong: no"]
        wait_until(lambda: bad.state() == "dead", "it is dead again, and may be retried")


def test_a_check_delivers_a_failure_that_the_author_did_not_deliver(
    zkplan_client: Client, here: Here
) -> None:
    """An author that dies between its add and the look at the dead letter."""
    with zkplan_client.create_plan("late", attempts=1) as plan:
        bad = plan.add_task(fail)
    with working(*here):
        wait_until(lambda: plan.status().state == "failed", "it is dead")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("zkplan.protocol.features.author.send_failures", lambda *_: iter(()))
        late = plan.add_task(seen, [bad], run_if="all_finished")
    assert late.state() == "waiting"
    assert f"task-{bad.number}" in plan.check().published
    with working(*here):
        assert late.result(30) == ["Wrong: no"]


def test_one_failure_is_delivered_to_many(zkplan_client: Client, here: Here) -> None:
    """They do not fit one transaction."""
    with zkplan_client.create_plan("wide", attempts=1) as plan:
        bad = plan.add_task(fail)
        told = [plan.add_task(len, [[bad]], run_if="all_finished") for _ in range(1500)]
        waits = plan.add_task(seen, [bad])
    with working(*here):
        assert plan.results(told, 60) == [1] * 1500
        wait_until(lambda: bad.state() == "dead", "it is dead")
        assert waits.state() == "waiting"
        assert bad.skip("instead")
        assert waits.result(30) == ["'instead'"]


def test_a_wrong_run_if_is_refused(zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan("refuses")
    with pytest.raises(zkplan.InvalidTask, match='run_if must be "all_succeeded"'):
        plan.add_task(int, run_if="one_failed")  # type: ignore[arg-type]
    with pytest.raises(zkplan.InvalidTask, match="a pure task runs only on results"):
        plan.add_task(int, pure=True, run_if="all_finished")
    answer = plan.client.transport.ask(Multi([SetData(f"{plan.path}/add-count", b"", 0)]))
    assert isinstance(answer, Applied), "nothing was added"


def is_worth_it(error: BaseException) -> bool:
    return "later" in str(error)


@pytest.mark.parametrize(
    ("options", "text", "used"),
    [
        ({"fatal": ValueError}, "no", 1),
        ({"fatal": ["KeyError", Wrong]}, "no", 1),
        ({"fatal": f"{__name__}:Wrong"}, "no", 1),
        ({"fatal": (KeyError, TypeError)}, "no", 3),
        ({"retry_if": KeyError}, "no", 1),
        ({"retry_if": ("LookupError", "ValueError")}, "no", 3),
        ({"retry_if": is_worth_it}, "no", 1),
        ({"retry_if": is_worth_it}, "later", 3),
        ({"retry_if": lambda error: error.args == ("later",)}, "later", 3),
        ({"retry_if": lambda error: error.missing}, "no", 3),
        ({"retry_if": is_worth_it, "fatal": Wrong}, "later", 1),
    ],
)
def test_fatal_and_retry_if_decide_which_failures_are_retried(
    options: dict[str, Any], text: str, used: int, zkplan_client: Client, here: Here
) -> None:
    with zkplan_client.create_plan("rules", attempts=3, retry_delay=0) as plan:
        task = plan.add_task(fail, [text], **options)
    with working(*here):
        with pytest.raises(Wrong):
            task.result(30)
        ((_, letter),) = plan.dead()
        assert letter.a == used
        assert letter.error == f"Wrong: {text}"


def test_a_timeout_may_be_fatal(zkplan_client: Client, here: Here) -> None:
    with zkplan_client.create_plan("rules", retry_delay=0, fatal=TimeoutError) as plan:
        task = plan.add_task(wait_until, [bool, "it never is"], {"timeout_s": 1.0}, timeout=0.1)
    with working(*here):
        with pytest.raises(zkplan.TaskFailed, match="TimeoutError"):
            task.result(30)
        ((_, letter),) = plan.dead()
        assert letter.a == 1


@pytest.mark.parametrize(
    "options",
    [
        {"fatal": 7},
        {"fatal": "NoSuchError"},
        {"fatal": [int, "x:y"]},
        {"retry_if": 7},
        {"retry_if": ["NoSuchError"]},
        {"retry_if": int},
    ][:5],
)
def test_invalid_rules_are_refused(options: dict[str, Any], zkplan_client: Client) -> None:
    plan = zkplan_client.create_plan("refuses")
    with pytest.raises(zkplan.InvalidTask, match=next(iter(options))):
        plan.add_task(int, **options)
    with pytest.raises(zkplan.InvalidTask, match="the plan's defaults"):
        zkplan_client.create_plan("refuses", **options)
