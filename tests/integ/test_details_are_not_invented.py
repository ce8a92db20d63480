"""All views of an ended task show only what the history knows, and say so if it is missing."""

from __future__ import annotations

from typing import Any

import pytest

import zkplan
from tests.tools.support import Here, Run, working
from zkplan import Client, InvalidTask
from zkplan.protocol.history.compaction import compact
from zkplan.views.history_search import past_of

from .serving import serving

pytestmark = pytest.mark.usefixtures("nothing_stalls")


def fails_first() -> int:
    if zkplan.current().attempt == 0:
        raise ValueError
    return 7


def test_all_views_of_a_finished_task_agree_and_show_null_for_unknown_facts(
    here: Here, zkplan_client: Client, run: Run
) -> None:
    zkplan_client.set_limit("few", 2)
    with zkplan_client.create_plan("ended", queue="fast") as plan:
        options: dict[str, Any] = {"attempts": 3, "retry_delay": 0.0, "limits": ["few"]}
        again = plan.add_task(fails_first, name="again", priority=7, **options)
        plan.add_task(str, [again], name="behind")
    with working(*here, of_worker={"queues": ["fast"]}) as worker:
        plan.wait(30)
    info = again.info()
    known = {"name": "again", "queue": "fast", "priority": 7, "attempts_used": 2}
    known |= {"worker": worker.id, "failed": False, "last_error": "", "doubt": ""}
    assert {name: getattr(info, name) for name in known} == known
    unknown = ("attempts", "timeout", "retry_delay", "run_if", "pure", "function", "arrived")
    assert {name: getattr(info, name) for name in unknown} == dict.fromkeys(unknown)
    facts = run("task", "show", "ended", "again", "-o", "json").data
    shown = ("name", "queue", "priority", "attempts_used", "worker")
    assert {name: facts[name] for name in shown} == {name: known[name] for name in shown}
    lines = run("task", "show", "ended", "again").out.splitlines()
    assert ["priority", "7"] in [line.split() for line in lines]
    with serving(*here) as service:
        found = service.get(f"/plans/{int(plan.number)}/tasks/{int(again.number)}")
    assert {name: found[name] for name in known} == known
    assert {name: found[name] for name in unknown} == dict.fromkeys(unknown)
    assert (found["limits"], info.limits, found["since"]) == (["few"], ("few",), info.since)


def test_a_number_that_was_never_a_task_is_not_found(
    here: Here, zkplan_client: Client, run: Run
) -> None:
    """Nor is one below the numbers of the tasks, or between them, which another child has."""
    with zkplan_client.create_plan("short") as plan:
        first = plan.add_task(int, ["7"], name="first")
        late = plan.add_task(str, [first], queue="late", keep=False)
    with working(*here, of_worker={"queues": ["default", "late"]}):
        plan.wait(30)
    assert (int(first.number), int(late.number)) == (7, 8)
    for number in (3, 5, 6, 9, 50):
        never = plan.task(number)
        for ask in (never.state, never.info, never.why, never.skip, never.cancel, never.retry):
            with pytest.raises(InvalidTask, match=f"has no task {number}, and never had one"):
                ask()
    for words in (["why"], ["show"], ["retry"], ["skip", "--yes"], ["set", "--priority", "1"]):
        failed = run("task", words[0], "short", "6", *words[1:])
        assert (failed.code, f"`zkplan task ls {int(plan.number)}`" in failed.err) == (2, True)
    assert late.why().causes[0].code == "finished"
    with serving(*here) as service:
        path = f"/v1/plans/{int(plan.number)}/tasks"
        asked = [service.ask("GET", f"{path}/{number}") for number in (3, 5, 6, 50, 8)]
        asked.append(service.ask("POST", f"{path}/6/retry"))
    assert [answer.status for answer in asked] == [404, 404, 404, 404, 200, 404]


def test_without_a_history_a_missing_task_has_finished_or_never_existed(
    here: Here, zkplan_client: Client, run: Run
) -> None:
    with zkplan_client.create_plan("silent", history=False) as plan:
        first = plan.add_task(int, ["7"])
        last = plan.add_task(str, [first], queue="late")
    with working(*here, of_worker={"queues": ["default", "late"]}):
        plan.wait(30)
    assert (int(first.number), int(last.number)) == (6, 7)
    doubt = f"plan {int(plan.number)} keeps no history"
    for number in (6, 5):  # 5 was never a task, but nothing says so any more
        info = plan.task(number).info()
        assert (info.state, info.doubt) == ("finished", doubt)
        assert (info.queue, info.priority, info.worker, info.attempts_used) == (None,) * 4
    told = f"has finished, or never was a task: {doubt}."
    assert told in run("task", "why", "silent", "5").out
    assert doubt in run("task", "show", "silent", "5").out
    assert last.info().doubt == "", "its kept result says that it was one"
    for number in (4, 50):
        with pytest.raises(InvalidTask, match="never had one"):
            plan.task(number).state()


def test_a_history_without_its_beginning_knows_all_later_task_numbers(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zkplan.protocol.history.compaction.FULL_BYTES", 1)
    run = zkplan_client.transport.run
    plan = zkplan_client.create_plan()
    for index in range(3):
        plan.add_task(int, [index], queue=f"queue-{index}")
        plan.add_task(int, [index])
        run(compact(plan.path))
    plan.mark_ready()  # the next number is that of `ready`
    run(compact(plan.path, most=1))
    tasks = [int(task.number) for task in plan.tasks()]
    assert tasks == [7, 8, 9, 10, 11, 12]
    past = past_of(zkplan_client.values, plan.path, [f"{n:010d}" for n in (6, 7, 12, 13, 99)])
    found = [(each.never, bool(each.doubt), each.task is not None) for each in past.values()]
    doubtful, known, never = (False, True, False), (False, False, True), (True, False, False)
    assert found == [doubtful, doubtful, known, never, never]
    assert "let go" in past["0000000006"].doubt
