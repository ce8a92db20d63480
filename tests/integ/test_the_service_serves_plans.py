"""A program in any language makes a plan over HTTP, sees it run, and decides about its tasks."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import pass_gate, wait_until, working

from .serving import Event, Service, serving

HERE = __name__
HOSTILE = "<script>window.hit = 1</script> \x1b[2J\r\u202e"


def add(a: int, b: int) -> int:
    return a + b


def fail_without(path: str, value: Any = None) -> Any:
    """Fails until there is such a file."""
    if not Path(path).exists():
        raise ValueError(f"there is no file {Path(path).name} <script>alert(1)</script>")
    return value


def speak(path: str) -> str:
    """Its first attempt fails; its second one goes on once there is such a file."""
    attempt = zkplan.current().attempt
    sys.stdout.write(f"attempt {attempt} {HOSTILE}\n")
    if not attempt:
        raise ValueError("no")
    pass_gate(path)
    sys.stdout.write("through\n")
    return "spoken"


def long_text(size: int) -> str:
    return "x" * size


@pytest.fixture
def service(here: tuple[str, str]) -> Iterator[Service]:
    with serving(*here) as running:
        yield running


def worker_of(here: tuple[str, str], **options: Any) -> Any:
    """A worker that decodes JSON alone, and may run the functions of this module."""
    return working(*here, of_worker={"allow": [f"{HERE}:*"]}, serializer="json", **options)


def until(events: Iterator[Event], **wanted: Any) -> Event:
    """The first event of the plan with these facts."""
    for event in events:
        if event.name == "plan" and wanted.items() <= event.data.items():
            return event
    raise AssertionError(f"the stream ended before {wanted}")


def test_the_history_comes_in_pages_and_as_a_time_line(
    here: tuple[str, str], service: Service
) -> None:
    number = service.ask("POST", "/v1/plans", {"name": "told"}).data["number"]
    history, step = f"/v1/plans/{number}/history", f"{HERE}:add"
    first = {"id": "one", "function": step, "args": [1, 2], "name": "one"}
    last = {"function": step, "args": [{"$task": "one"}, 4], "name": "last"}
    service.ask("POST", f"/v1/plans/{number}/tasks", {"tasks": [first, last]})
    service.ask("POST", f"/v1/plans/{number}/ready")
    with worker_of(here) as worker:
        wait_until(
            lambda: service.ask("GET", f"/v1/plans/{number}").data["state"] == "done", "it is done"
        )
    whole = service.ask("GET", f"{history}?limit=500")
    events = whole.data["items"]
    told = [(event["kind"], event["name"]) for event in events]
    assert told[:3] == [("added", "one"), ("added", "last"), ("ready", "")]
    assert told[-3:] == [("claimed", "last"), ("committed", "last"), ("done", "")]
    assert {event["worker"] for event in events} == {"", worker.id}
    assert re.fullmatch(r"one-time \(token [0-9a-f]{8}\)", events[0]["by"])
    pages: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:  # one by one, also within a transaction of several events
        page = service.ask("GET", f"{history}?limit=1{cursor and f'&cursor={cursor}'}").data
        pages += page["items"]
        cursor = page["next"]
    assert pages == events
    behind = service.ask("GET", f"{history}?cursor={whole.data['behind']}").data
    assert (behind["items"], behind["next"], behind["behind"]) == ([], None, whole.data["behind"])
    tag = {"If-None-Match": whole.headers["etag"]}
    assert service.ask("GET", f"{history}?limit=500", None, tag).status == 304
    task = next(event["task"] for event in events if event["name"] == "last")
    of_last = service.ask("GET", f"{history}?task={task}").data["items"]
    assert of_last == [event for event in events if event["task"] == task]
    drawn = service.ask("GET", f"/v1/plans/{number}/timeline").data
    assert [(row["name"], row["state"], row["critical"]) for row in drawn["rows"]] == [
        ("one", "committed", True),
        ("last", "committed", True),
    ]
    assert [row["name"] for row in drawn["path"]] == ["one", "last"]
    assert all(drawn["first"] <= row["started"] <= row["ended"] for row in drawn["rows"])
    silent = service.ask("POST", "/v1/plans", {"history": False}).data["number"]
    assert service.ask("GET", f"/v1/plans/{silent}/history").status == 409


def test_task_output_is_sent_as_events_and_kept_afterwards(
    here: tuple[str, str], service: Service, tmp_path: Path
) -> None:
    number = service.post("/plans", {"name": "loud", "attempts": 2})["number"]
    plan, file = f"/plans/{number}", tmp_path / "gate"
    wanted = {"function": f"{HERE}:speak", "args": [str(file)], "retry_delay": 0}
    (added,) = service.post(f"{plan}/tasks", {"tasks": [wanted]})["tasks"]
    logs = f"{plan}/tasks/{added['number']}/logs"
    first, second = (f"attempt {attempt} {HOSTILE}\n" for attempt in range(2))

    def texts(path: str) -> list[str]:
        return [each["text"] for each in service.get(path)["items"]]

    assert service.get(logs)["attempts"] == []
    assert texts(f"{logs}?attempt=last") == []
    keeping = {"allow": [f"{HERE}:*"], "task_output": 4096}
    with service.events(f"{plan}/events") as events:
        service.post(f"{plan}/ready")
        with working(*here, of_worker=keeping, serializer="json") as worker:
            # No task changes any more then: it is the print that is told.
            heard = next(each for each in events if second in texts(f"{logs}?attempt=last"))
            assert heard.data["tasks"] == []
            page = service.get(f"{logs}?attempt=last")
            file.touch()
            until(events, state="done")
    (rest,) = service.get(f"{logs}?cursor={page['behind']}")["items"]
    assert (rest["text"], rest["position"], rest["cut"]) == ("through\n", len(second) + 2, 0)
    whole = service.ask("GET", f"/v1{logs}")
    assert [each["text"] for each in whole.data["items"]] == [first, f"{second}through\n"]
    assert b"<script>" in whole.body
    assert whole.headers["content-type"] == "application/json"
    assert whole.data["missing"] == []
    told = [(each["attempt"], each["worker"]) for each in whole.data["attempts"]]
    assert told == [(0, worker.id), (1, worker.id)]
    assert all(each["claimed"] for each in whole.data["attempts"])
    assert texts(f"{logs}?attempt=0") == [first]
    assert texts(f"{logs}?tail=8") == ["through\n"]
    page = service.get(f"{logs}?limit=1")
    assert service.get(f"{logs}?cursor={page['next']}")["items"] == whole.data["items"][1:]
    tag = {"If-None-Match": whole.headers["etag"]}
    assert service.ask("GET", f"/v1{logs}", None, tag).status == 304
    assert service.ask("GET", f"/v1{plan}/tasks/999/logs").data["type"].endswith("task-not-found")
    assert service.ask("GET", f"/v1{logs}?attempt=first").status == 422
    silent = service.post("/plans", {"history": False})["number"]
    (added,) = service.post(f"/plans/{silent}/tasks", {"tasks": [wanted]})["tasks"]
    refused = service.ask("GET", f"/v1/plans/{silent}/tasks/{added['number']}/logs")
    assert (refused.status, refused.data["type"][-16:]) == (409, "history-not-kept")


def test_a_plan_is_created_fails_and_is_repaired_over_http(
    here: tuple[str, str], service: Service, tmp_path: Path
) -> None:
    key = {"Idempotency-Key": "nightly-7"}
    made = service.ask("POST", "/v1/plans", {"name": "night", "attempts": 1}, key)
    again = service.ask("POST", "/v1/plans", {"name": "night", "attempts": 1}, key)
    assert (made.status, again.status) == (201, 200)
    number = made.data["number"]
    assert again.data["number"] == number
    assert made.headers["location"] == f"/v1/plans/{number}"
    plan, file = f"/plans/{number}", tmp_path / "there"
    tasks = [
        {"id": "one", "function": f"{HERE}:add", "args": [1, 2]},
        {"id": "bad", "function": f"{HERE}:fail_without", "args": [str(file), {"$task": "one"}]},
        {"function": f"{HERE}:add", "args": [{"$task": "bad"}, 4], "name": "last", "key": "last"},
    ]
    added = service.post(f"{plan}/tasks", {"tasks": tasks}, **key)["tasks"]
    repeated = service.post(f"{plan}/tasks", {"tasks": tasks}, **key)["tasks"]
    assert [each["number"] for each in added] == [each["number"] for each in repeated]
    assert {each["existed"] for each in repeated} == {True}
    one, bad, last = (each["number"] for each in added)
    shown = service.get(f"{plan}/graph")
    assert {(each["source"], each["target"]) for each in shown["edges"]} == {
        (one, bad),
        (bad, last),
    }
    assert service.get(f"{plan}/graph?nodes=0")["grouped"]
    assert service.get(f"{plan}/tasks/{bad}/arguments")["args"] == [str(file), {"$result": 0}]
    with service.events(f"{plan}/events") as events:
        assert next(events).data["state"] == "defining"
        service.post(f"{plan}/ready")
        with worker_of(here):
            failed = until(events, state="failed")
            assert failed.data["counts"] == {"dead": 1, "waiting": 1}
            details = service.get(f"{plan}/tasks/{bad}")
            assert (details["state"], details["failures"][0]["kind"]) == ("dead", "ValueError")
            assert "fail_without" in details["failures"][0]["traceback"]
            assert details["why"]["causes"][0]["code"] == "dead"
            (letter,) = service.get("/dead-letters?error=Value*")["items"]
            assert (letter["plan"], letter["number"]) == (number, bad)
            file.touch()
            assert service.post(f"{plan}/tasks/{bad}/retry")["changed"]
            until(events, state="done", finished=3)
    assert service.get(f"{plan}/results/{last}") == 7
    assert service.ask("GET", f"/v1{plan}/results/{one}").status == 404
    assert [each["number"] for each in service.get(f"{plan}/results")["items"]] == [last]
    paths = [each["path"] for each in service.get(f"{plan}/znodes?task={last}")["items"]]
    assert paths == [f"{here[1]}/plan-{number:010d}/results/{last:010d}"]


def test_a_change_is_sent_within_a_second_at_the_same_cost_for_fifty_pages(
    here: tuple[str, str], service: Service
) -> None:
    plan = service.post("/plans", {"name": "watched"})["number"]
    path = f"/plans/{plan}"
    with ExitStack() as pages:
        streams = [pages.enter_context(service.events(f"{path}/events")) for _ in range(50)]
        assert all(next(events).data["whole"] for events in streams)
        requests, begin = counted_requests(service), time.monotonic()
        wait_until(lambda: time.monotonic() - begin > 3, "three seconds in which nothing changes")
        # Two looks a second, each of two requests: the claims, and the signs of the plan.
        assert len(requests) / (time.monotonic() - begin) < 6
        took = []
        for index in range(3):
            begin, task = time.monotonic(), {"function": f"{HERE}:add", "args": [index, 1]}
            (added,) = service.post(f"{path}/tasks", {"tasks": [task]})["tasks"]
            for events in streams:
                (changed,) = next(events).data["tasks"]
                assert changed == {"number": added["number"], "state": "runnable"}
            took.append(time.monotonic() - begin)
        assert min(took) < 1.0
        service.post(path, method="DELETE")
        assert [[each.name for each in events][-1] for events in streams] == ["gone"] * 50


def counted_requests(service: Service) -> list[Any]:
    """Grows with each request that the service sends to ZooKeeper."""
    transport, requests = service.link.client.transport, []
    submit = transport.submit

    def counting(request: Any, done: Any) -> Any:
        requests.append(request)
        return submit(request, done)

    transport.submit = counting  # type: ignore[method-assign]
    return requests


def test_pages_of_plans_and_tasks_contain_each_of_them_once(
    here: tuple[str, str], service: Service
) -> None:
    with zkplan.connect(*here) as author:
        for index in range(7):
            with author.create_plan(f"p{index % 3}") as plan:
                plan.add_tasks([zkplan.TaskSpec(add, [i, 1]) for i in range(index)])
        author.plan(plan.number).pause()
    for path, many in (
        ("/plans?limit=3", 7),
        ("/plans?limit=2&sort=name", 7),
        ("/plans?limit=2&name=p1", 2),
        ("/plans?limit=1&state=paused", 1),
        (f"/plans/{int(plan.number)}/tasks?limit=4", 6),
        (f"/plans/{int(plan.number)}/tasks?limit=4&state=runnable&queue=default", 6),
    ):
        seen: list[int] = []
        cursor: Any = ""
        while cursor is not None:
            page = service.get(f"{path}&cursor={cursor}" if cursor else path)
            seen += [each["number"] for each in page["items"]]
            cursor = page["next"]
        assert (len(seen), len(set(seen))) == (many, many), path


def test_unchanged_data_is_not_sent_again_and_a_stale_change_is_refused(service: Service) -> None:
    service.post("/limits/db", {"size": 3}, "PUT")
    first = service.ask("GET", "/v1/limits/db")
    tag = {"If-None-Match": first.headers["etag"]}
    assert service.ask("GET", "/v1/limits/db", headers={**tag}).status == 304
    seen = {"If-Match": first.headers["etag"]}
    assert service.ask("PUT", "/v1/limits/db", {"size": 4}, {**seen}).status == 200
    late = service.ask("PUT", "/v1/limits/db", {"size": 9}, {**seen})
    assert (late.status, service.get("/limits/db")["size"]) == (412, 4)
    assert service.ask("GET", "/v1/limits/db", headers={**tag}).status == 200


def test_a_long_result_is_streamed_and_two_services_show_the_same(
    here: tuple[str, str], tmp_path: Path
) -> None:
    store = f"file://{tmp_path}"
    with serving(*here, store=store) as one, serving(*here, store=store) as two:
        plan = one.post("/plans", {"name": "long"})["number"]
        task = {"function": f"{HERE}:long_text", "args": [3_000_000]}
        (added,) = two.post(f"/plans/{plan}/tasks", {"tasks": [task]})["tasks"]
        with two.events(f"/plans/{plan}/events") as events:
            one.post(f"/plans/{plan}/ready")
            with worker_of(here, store=store):
                until(events, state="done")
        answer = one.ask("GET", f"/v1/plans/{plan}/results/{added['number']}")
        assert json.loads(answer.body) == "x" * 3_000_000
        assert one.get(f"/plans/{plan}") == two.get(f"/plans/{plan}")
        with one.events("/events") as events:
            assert next(events).data["others"] == 1


def test_schedules_and_workers_are_listed_and_controlled(
    here: tuple[str, str], service: Service
) -> None:
    wanted = {"cron": "0 3 * * *", "builder": f"{HERE}:add", "args": [1, 2]}
    assert service.post("/schedules/night", wanted, "PUT")["builder"] == f"{HERE}.add"
    assert service.post("/schedules/night/pause")["next"] is None
    made = service.post("/schedules/night/trigger")
    with service.events(f"/plans/{made['number']}/events") as events, worker_of(here) as worker:
        until(events, state="done")
        (found,) = service.get("/workers")["items"]
        assert found["id"] == worker.id
        assert service.post(f"/workers/{worker.id[:-3]}/pause")["state"] == "paused"
        assert service.get(f"/workers/{worker.id}")["held"] == []
    assert service.post("/schedules/night", method="DELETE")["changed"]
    assert service.get("/schedules")["items"] == []
