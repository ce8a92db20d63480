"""An update of several tasks is applied whole or not at all, and a refusal gives every reason."""

from __future__ import annotations

import http.client
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import IN_CHECKOUT, Here, wait_until
from zkplan import Client
from zkplan.processes import WatchedProcess
from zkplan.protocol.requests import ReadChildren

from .serving import Answer, Service, serving

JSON = {"kind": "step"}


@pytest.fixture
def service(here: Here) -> Iterator[Service]:
    with serving(*here) as running:
        yield running


@pytest.fixture
def author(here: Here) -> Iterator[Client]:
    with zkplan.connect(*here, serializer="json") as client:
        yield client


class Planned:
    """A plan of kind tasks, through the service."""

    def __init__(self, service: Service, *tasks: dict[str, Any], **options: Any) -> None:
        self.service = service
        self.number = service.post("/plans", options)["number"]
        self.path = f"/plans/{self.number}"
        added = service.post(f"{self.path}/tasks", {"tasks": [{**JSON, **each} for each in tasks]})
        self.tasks = [each["number"] for each in added["tasks"]]
        service.post(f"{self.path}/ready")

    def claim(self, count: int = 1, **wanted: Any) -> list[dict[str, Any]]:
        asked = {"kinds": ["step"], "count": count, "wait": 10, **wanted}
        return self.service.post("/leases/claim", asked)["tasks"]  # type: ignore[no-any-return]

    def update(self, *operations: dict[str, Any], key: str | None = None) -> Answer:
        headers = {"Idempotency-Key": key} if key else {}
        body = {"operations": operations}
        return self.service.ask("POST", f"/v1{self.path}/update", body, headers)

    def refusals(self, *operations: dict[str, Any]) -> list[tuple[int, int | None, str, str]]:
        """What is against it, which must leave every task as it is."""
        before = self.states()
        answer = self.update(*operations)
        assert answer.status == 409, answer
        assert answer.headers["content-type"] == "application/problem+json"
        assert all(each["why"] and each["todo"] for each in answer.data["refusals"])
        assert self.states() == before
        named = ("index", "task", "expected", "found")
        return [tuple(each[name] for name in named) for each in answer.data["refusals"]]

    def task(self, number: int) -> dict[str, Any]:
        return self.service.get(f"{self.path}/tasks/{number}?why=false")  # type: ignore[no-any-return]

    def states(self) -> dict[int, str]:
        listed = self.service.get(f"{self.path}/tasks?limit=500")["items"]
        return {each["number"]: self.task(each["number"])["version"] for each in listed}

    def result(self, number: int) -> Any:
        return self.service.get(f"{self.path}/results/{number}")

    def events(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.service.get(f"{self.path}/history?limit=500")["items"]
        return items


def done(what: str, **of: Any) -> dict[str, Any]:
    return {"do": what, **of}


def test_operations_of_all_kinds_are_applied_together(service: Service) -> None:
    after = {"args": [{"$task": "a"}, {"$task": "b"}], "id": "j"}
    tasks: list[dict[str, Any]] = [{"id": name} for name in "abcde"]
    tasks[3]["attempts"] = 1
    plan = Planned(service, *tasks, after, {"args": [{"$task": "c"}]})
    a, _, c, d, e, join, on_c = plan.tasks
    first, second, third, fourth = plan.claim(4)
    service.post("/leases/fail", {"failures": [{"id": fourth["id"], "message": "broken"}]})
    assert plan.task(d)["version"].startswith("dead.")
    answer = plan.update(
        done("complete", id=first["id"], value=1),
        done("complete", id=second["id"], value=2),
        done("move", task=join, priority=7, expect="waiting.0.2"),
        done("skip", task=c, value=30, expect="running.0"),
        done("cancel", task=on_c),
        done("retry", task=d, expect="dead"),
        done("check", task=e, expect="runnable.0"),
        done("add", new={**JSON, "id": "new", "args": [{"$task": a}], "keep": True}),
        done("add", new={**JSON, "args": [{"$task": "new"}, {"$task": join}], "queue": "late"}),
    )
    assert answer.status == 200, answer
    new, last = (each["number"] for each in answer.data["tasks"])
    assert plan.task(join)["version"] == "runnable.0.0.4993", "both arrived, with the new rank"
    assert plan.task(c)["version"] == "decided"
    assert plan.task(last)["queue"] == "late"
    late = service.ask("POST", "/v1/leases/complete", {"results": [{"id": third["id"]}]})
    assert late.status == 409, "c was skipped while it ran"
    claimed: dict[int, Any] = {}
    while not {join, new, d} <= claimed.keys():
        found = plan.claim(10)
        assert found, f"claimed so far: {sorted(claimed)}"
        claimed |= {each["task"]: each["args"] for each in found}
    assert claimed[join] == [1, 2]
    assert claimed[new] == [1], "it got the result of a task that ended with its add"


def test_the_history_records_each_operation_in_its_own_transaction(
    service: Service,
) -> None:
    waits = {"args": [{"$task": "a"}, {"$task": "b"}]}
    free: list[dict[str, Any]] = [{}, {}, {}]
    plan = Planned(service, {"id": "a"}, {"id": "b"}, {"attempts": 1}, *free, waits)
    a, b, dead, cancelled, moved, checked, join = plan.tasks
    claims = {each["task"]: each["id"] for each in plan.claim(3)}
    service.post("/leases/fail", {"failures": [{"id": claims[dead], "message": "broken"}]})
    answer = plan.update(
        done("complete", id=claims[a], value=1),
        done("skip", task=b, value=2),
        done("cancel", task=cancelled),
        done("retry", task=dead),
        done("move", task=moved, priority=3),
        done("move", task=join, priority=7),
        done("check", task=checked, expect="runnable"),
        done("add", new={**JSON, "name": "new", "args": [{"$task": join}]}),
    )
    assert answer.status == 200, answer
    # The service delivers the skipped outcome in a transaction of its own.
    assert plan.task(join)["version"] in ("waiting.1.2.4993", "runnable.0.0.4993")
    wait_until(lambda: plan.task(join)["version"] == "runnable.0.0.4993", "it is delivered")
    (of_update,) = {each["position"] for each in plan.events() if each["kind"] == "committed"}
    events = [each for each in plan.events() if each["position"] == of_update]
    assert sorted((each["kind"], each["task"], each["detail"]) for each in events) == [
        ("added", answer.data["tasks"][0]["number"], "waits for 1"),
        ("committed", a, ""),
        ("decided", b, "skipped"),
        ("decided", cancelled, "cancelled"),
        ("moved", moved, ""),
        ("moved", join, "waits for 2, priority 7"),
        ("retried", dead, ""),
    ]
    (committed,) = (each for each in events if each["kind"] == "committed")
    assert (committed["worker"], committed["attempt"]) == (claims[a].partition("/")[0], 0)
    assert committed["seconds"] is not None
    assert {each["name"] for each in events if each["kind"] == "added"} == {"new"}
    assert all(re.fullmatch(r"one-time \(token [0-9a-f]{8}\)", each["by"]) for each in events)
    before = plan.events()
    assert plan.update(done("check", task=checked, expect="runnable")).status == 200
    assert plan.events() == before, "a check alone is no event"


def test_every_refusal_is_reported_and_nothing_is_written(service: Service) -> None:
    plan = Planned(service, {"id": "a"}, {"args": [{"$task": "a"}]}, {}, {}, {})
    _, waits, free, gone, other = plan.tasks
    (mine, *_) = plan.claim(1)
    holder = mine["id"].partition("/")[0][-16:]
    lapsed = f"lease-30000.{'7' * 16}{holder}/0000000004-0000000007.0.0"
    assert plan.update(done("cancel", task=gone)).status == 200
    found = plan.refusals(
        done("complete", id=mine["id"], value=1),
        done("retry", task=free),
        done("move", task=waits, priority=1, expect="runnable"),
        done("skip", task=gone),
        done("check", task=other, expect="runnable.1"),
        done("cancel", task=9_999),
        done("complete", id=lapsed),
        done("add", new={**JSON, "args": [{"$task": 9_998}]}),
        done("add", new=JSON),
    )
    assert found == [
        (1, free, "a dead or delayed task", "runnable.0.0.5000"),
        (2, waits, "runnable", "waiting.0.1.5000"),
        (3, gone, "a task that has not ended", "decided"),
        (4, other, "runnable.1", "runnable.0.0.5000"),
        (5, 9_999, "a task that has not ended, and is not dead", "unknown"),
        (6, 7, "a claim that stands", "lapsed"),
        (7, None, "tasks whose results are available", "unknown"),
    ]
    again = service.ask(
        "POST", "/v1/leases/complete", {"results": [{"id": mine["id"], "value": 1}]}
    )
    assert again.status == 200, "its claim still stands"


def test_an_update_of_a_number_that_was_never_a_task_is_refused(service: Service) -> None:
    plan = Planned(service, {"queue": "late"}, {})
    never = plan.tasks[0] - 1  # a child of the plan has it: `queues`, or one that was made first
    (claim,) = plan.claim(1)
    service.post("/leases/complete", {"results": [{"id": claim["id"], "value": 1}]})
    assert plan.update(done("check", task=plan.tasks[1], expect="finished")).status == 200
    found = plan.refusals(done("check", task=never, expect="finished"), done("retry", task=9_999))
    assert found == [
        (0, never, "finished", "unknown"),
        (1, 9_999, "a dead or delayed task", "unknown"),
    ]


def test_one_lapsed_lease_refuses_the_whole_update(service: Service) -> None:
    plan = Planned(service, {}, {}, {})
    (late,), (good,) = plan.claim(1, lease=1.0), plan.claim(1)
    wait_until(lambda: plan.task(late["task"])["state"] == "runnable", "the lease lapses")
    operations = [
        done("complete", id=good["id"], value=1),
        done("complete", id=late["id"], value=2),
        done("add", new=JSON),
    ]
    assert [each[:1] + each[3:] for each in plan.refusals(*operations)] == [(1, "lapsed")]
    assert plan.update(operations[0], operations[2]).status == 200
    assert plan.result(good["task"]) == 1


@pytest.mark.parametrize("round_", range(3))
def test_exactly_one_of_two_conflicting_updates_wins(service: Service, round_: int) -> None:
    plan = Planned(service, *({} for _ in range(6)))
    shared, *others = plan.tasks
    version = plan.task(shared)["version"]
    meet, answers = threading.Barrier(4), list[Answer]()

    def update(mine: int) -> None:
        meet.wait()
        answers.append(
            plan.update(
                done("skip", task=shared, value=mine, expect=version),
                done("cancel", task=mine),
                done("add", new={**JSON, "name": f"by {mine}"}),
            )
        )

    threads = [threading.Thread(target=update, args=(each,)) for each in others[:4]]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(each.status for each in answers) == [200, 409, 409, 409]
    assert list(plan.states().values()).count("decided") == 2
    assert len(plan.states()) == 7, "one of them has added a task"


def test_a_repeated_update_with_its_key_gets_the_first_answer(service: Service) -> None:
    plan = Planned(service, {}, {})
    (mine,) = plan.claim()
    operations = [done("complete", id=mine["id"], value=5), done("add", new=JSON)]
    first = plan.update(*operations, key="once")
    second = plan.update(*operations, key="once")
    assert (first.status, second.status) == (200, 200)
    assert (first.data["repeated"], second.data["repeated"]) == (False, True)
    assert first.data["tasks"][0]["number"] == second.data["tasks"][0]["number"]
    assert len(plan.states()) == 2
    other = plan.update(operations[1], key="once")
    assert (other.status, other.data["type"]) == (422, "urn:zkplan:problem:invalid-task")


def test_an_update_too_large_for_one_transaction_is_refused_before_a_write(
    service: Service, author: Client
) -> None:
    plan = Planned(service, *({} for _ in range(3)))
    path = author.plan(plan.number).path
    before = author.transport.ask(ReadChildren(path))
    for operations in (
        [done("add", new={**JSON, "args": ["x" * 9_000], "queue": "new"})] * 100,
        [done("add", new={**JSON, "after": plan.tasks})] * 499
        + [done("cancel", task=plan.tasks[0])],
    ):
        answer = plan.update(*operations)
        assert answer.status == 413, answer
        assert "one transaction of ZooKeeper, which carries" in answer.data["detail"]
        assert author.transport.ask(ReadChildren(path)) == before
    hostile: list[tuple[list[Any], int]] = [
        ([], 422),
        ([done("add", new=JSON)] * 501, 422),
        ([done("fly", task=1)], 422),
        ([done("check", task=plan.tasks[0])], 422),
        ([done("cancel", task=plan.tasks[0], expect="../../x")], 422),
        ([done("cancel", task=plan.tasks[0]), done("retry", task=plan.tasks[0])], 422),
        ([done("add", new={**JSON, "key": "k"}), done("add", new={**JSON, "key": "k"})], 422),
        ([done("complete", id="x" * 200)], 409),
        ([done("complete", id="nonsense"), done("complete", id="nonsense")], 422),
        ([done("skip", task=plan.tasks[0], value="x" * 1_100_000)], 413),
    ]
    for operations, status in hostile:
        assert plan.update(*operations).status == status, operations[:1]
    assert plan.service.ask("POST", "/v1/plans/9999/update", {"operations": []}).status == 404


def test_each_operation_needs_its_role(service: Service) -> None:
    plan = Planned(service, {}, {})
    (mine,) = plan.claim()
    operations = {
        "author": done("add", new=JSON),
        "work": done("complete", id=mine["id"]),
        "read": done("check", task=plan.tasks[1], expect="runnable"),
        "operate": done("cancel", task=plan.tasks[1]),
    }
    assert service.tokens is not None
    (known,) = service.tokens._known.values()
    everything = known.caller
    for role, own in operations.items():
        service.tokens._known[everything.id] = known._replace(
            caller=everything._replace(roles=frozenset([role]))  # type: ignore[list-item]
        )
        refused = plan.update(*operations.values())
        assert (refused.status, refused.data["type"][-12:]) == (403, "role-missing")
        assert f"({own['do']})" not in refused.data["detail"]
        for other in operations.keys() - {role, "read"}:
            assert f"({operations[other]['do']})" in refused.data["detail"]
        assert plan.update(own).status == 200
    service.tokens._known[everything.id] = known
    assert plan.task(plan.tasks[1])["version"] == "decided"


@contextmanager
def doomed(here: Here, folder: Path, point: str) -> Iterator[int]:
    """A service in a process of its own that is killed at that point; gives its port."""
    log = folder / "doomed.log"
    command = [sys.executable, "-m", "zkplan", "serve", "--hosts", here[0], "--root", here[1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZKPLAN_FAILPOINTS", f"{point}=kill")
        process = WatchedProcess([*IN_CHECKOUT, *command, "--listen", "127.0.0.1:0", "--open"], log)
    try:
        told = wait_until(
            lambda: re.search(r"serving at http://127\.0\.0\.1:(\d+)", log.read_text()),
            "the service that is to die serves",
        )
        yield int(told[1])
        wait_until(lambda: not process.is_running(), "the service dies")
    finally:
        process.end(0)


@pytest.mark.parametrize("point", ["update.before", "update.made"])
def test_a_service_killed_during_an_update_leaves_all_of_it_or_nothing(
    here: Here, service: Service, tmp_path: Path, point: str
) -> None:
    """The repeat by another service is told what was done; what is owed, a clearing does."""
    join = {"args": [{"$task": "a"}, {"$task": "b"}]}
    plan = Planned(service, {"id": "a"}, {"id": "b"}, join)
    claims = plan.claim(2, lease=60.0)
    operations = [done("complete", id=each["id"], value=n) for n, each in enumerate(claims)]
    operations.append(done("add", new=JSON))
    with (
        doomed(here, tmp_path, point) as port,
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as link,
    ):
        headers = {"Content-Type": "application/json", "Idempotency-Key": "once"}
        body = json.dumps({"operations": operations})
        link.request("POST", f"/v1{plan.path}/update", body, headers)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            link.getresponse()
    was_made = point == "update.made"
    assert len(plan.states()) == (2 if was_made else 3)
    answer = plan.update(*operations, key="once")
    assert (answer.status, answer.data["repeated"]) == (200, was_made)
    wait_until(
        lambda: plan.task(plan.tasks[2])["version"].startswith("runnable"),
        "what the dead service owed is published",
    )
    assert len(plan.states()) == 2
    assert [0, 1] in [sorted(each["args"]) for each in plan.claim(2)]
