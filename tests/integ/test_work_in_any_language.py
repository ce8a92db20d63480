"""Programs in Python, JavaScript and shell run the tasks of one plan together through a service."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import zkplan
from tests.tools.support import IN_CHECKOUT, TOP, Here, wait_until, zkplan_command
from zkplan import Client
from zkplan.processes import WatchedProcess
from zkplan.protocol.requests import ReadChildren

WORKERS = {
    "python": (sys.executable, str(TOP / "examples/any_language/worker.py")),
    "node": ("node", str(TOP / "examples/any_language/worker.mjs")),
    "shell": ("sh", str(TOP / "examples/any_language/worker.sh")),
}
TASKS, SECONDS = 200, 0.5
_CLAIMED = re.compile(r"^(claimed|committed|refused) (\S+)", re.MULTILINE)


class Answer(NamedTuple):
    status: int
    data: Any


class ServiceProcess:
    """A `zkplan serve` process for programs that do work. It can be killed and started again."""

    def __init__(self, here: Here, folder: Path) -> None:
        self._here, self._folder = here, folder
        file = folder / "tokens"
        made = zkplan_command("serve", "new-token", "--tokens", str(file), "--role", "work")
        assert made.returncode == 0, made.stderr
        self.token = made.stdout.strip()
        self._file, self._starts, self.port = file, 0, 0
        self.start()

    def start(self) -> None:
        hosts, root = self._here
        self._starts += 1
        log = self._folder / f"service-{self._starts}.log"
        command = [sys.executable, "-m", "zkplan", "serve", "--hosts", hosts, "--root", root]
        options = ["--listen", f"127.0.0.1:{self.port}", "--tokens", str(self._file)]
        self.process = WatchedProcess([*IN_CHECKOUT, *command, *options], log)

        def told() -> re.Match[str] | None:
            assert self.process.is_running(), log.read_text()
            return re.search(r"serving at http://127\.0\.0\.1:(\d+)", log.read_text())

        self.port = int(wait_until(told, "the service serves")[1])

    def kill(self) -> None:
        self.process.end(0)

    def ask(self, verb: str, body: Any) -> Answer:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as link:
            link.request("POST", f"/v1/leases/{verb}", json.dumps(body), headers)
            answer = link.getresponse()
            return Answer(answer.status, json.loads(answer.read()))

    def claim(self, **wanted: Any) -> list[dict[str, Any]]:
        answer = self.ask("claim", {"wait": 10, **wanted})
        assert answer.status == 200, answer.data
        tasks: list[dict[str, Any]] = answer.data["tasks"]
        return tasks


@pytest.fixture
def service(here: Here, tmp_path: Path) -> Iterator[ServiceProcess]:
    made = ServiceProcess(here, tmp_path)
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def author(here: Here) -> Iterator[Client]:
    with zkplan.connect(*here, serializer="json") as client:
        yield client


class Planned(NamedTuple):
    """A plan for the programs, and its tasks."""

    plan: zkplan.Plan
    tasks: list[zkplan.Task]


def planned(author: Client, count: int, seconds: float = SECONDS, **options: Any) -> Planned:
    """A plan of `count` tasks, each of which takes so long."""
    plan = author.create_plan(keep=True, retry_delay=0.0, **options)
    double = zkplan.kind("double")
    tasks = plan.add_tasks([zkplan.TaskSpec(double, [n, seconds]) for n in range(count)])
    plan.mark_ready()
    return Planned(plan, tasks)


class Program:
    """One of the workers, started again when it is killed. Its logs say what it did."""

    def __init__(self, name: str, service: ServiceProcess, folder: Path) -> None:
        self.name, self.logs = name, list[Path]()
        self._folder = folder
        self._env = {
            "ZKPLAN_URL": f"http://127.0.0.1:{service.port}",
            "ZKPLAN_TOKEN": service.token,
            "PATH": os.environ["PATH"],
        }

    def start(self) -> None:
        log = self._folder / f"{self.name}-{len(self.logs)}.log"
        self.logs.append(log)
        env = [f"{name}={value}" for name, value in self._env.items()]
        self.process = WatchedProcess(["/usr/bin/env", "-i", *env, *WORKERS[self.name]], log)

    def kill(self) -> None:
        self.process.end(0)

    def told(self, what: str) -> list[str]:
        texts = [log.read_text(errors="replace") for log in self.logs]
        return [id_ for text in texts for verb, id_ in _CLAIMED.findall(text) if verb == what]


def wait_for(program: Program, committed: Callable[[], int], least: int) -> None:
    """Wait until it works, and all of them have committed so many tasks."""
    wait_until(lambda: program.told("claimed"), f"{program.name} claims")
    wait_until(lambda: committed() >= least, f"{least} tasks are committed")


def number_of_claim(text: str) -> tuple[int, int]:
    """(task, N) of the ID of a claim."""
    name = text.partition("/")[2]
    task, n, _ = name.partition("-")[2].split(".", 2)
    return int(task), int(n)


@pytest.mark.timeout(180)
@pytest.mark.skipif(not all(map(shutil.which, ("node", "curl"))), reason="needs node and curl")
def test_programs_in_three_languages_commit_each_task_once_under_kills(
    service: ServiceProcess, author: Client, tmp_path: Path
) -> None:
    plan, tasks = planned(author, TASKS, attempts=20)
    lost = service.claim(kinds=["double"], count=3, lease=1)
    programs = [Program(name, service, tmp_path) for name in WORKERS]
    with ExitStack() as stack:
        for program in programs:
            program.start()
            stack.callback(program.kill)

        def committed() -> int:
            return sum(len(program.told("committed")) for program in programs)

        for number, program in enumerate(programs):
            wait_for(program, committed, 5 * (number + 1))
            program.kill()
            program.start()
        service.kill()
        before = committed()
        service.start()
        wait_until(lambda: committed() > before + 3, "work goes on after a restart", 60)
        plan.wait(timeout=90)
    # Its lease has lapsed, and others have done the tasks: it is told so, and changes nothing.
    late = service.ask("complete", {"results": [{"id": t["id"], "value": "late"} for t in lost]})
    assert late.status == 409
    assert "has ended" in late.data["detail"]
    last: dict[int, int] = defaultdict(lambda: -1)
    for program in programs:
        assert program.told("committed"), f"{program.name} has done nothing"
        for task, n in map(number_of_claim, program.told("claimed")):
            last[task] = max(last[task], n)
    values = [task.result() for task in tasks]
    assert sorted(value["twice"] for value in values) == [2 * n for n in range(TASKS)]
    assert {number_of_claim(value["by"]) for value in values} == set(last.items())
    told = plan.history()
    lapsed = {int(event.task) for event in told if event.kind == "lapsed"}
    assert {number_of_claim(task["id"])[0] for task in lost} <= lapsed
    ended = [(int(event.task), event.attempt) for event in told if event.kind == "committed"]
    assert sorted(ended) == sorted(last.items())


@pytest.mark.slow
def test_a_worker_releases_a_lapsed_lease_of_a_dead_service(
    service: ServiceProcess, author: Client, here: Here
) -> None:
    plan, _ = planned(author, 2)
    first = service.claim(kinds=["double"], count=2, lease=2)
    assert [task["attempt"] for task in first] == [0, 0]
    service.kill()
    zkplan.kind("double")(lambda number, seconds: {"twice": 2 * number})
    with zkplan.connect(*here, serializer="json") as client, zkplan.Worker(client, threads=1):
        plan.wait(timeout=30)
    service.start()
    late = service.ask("complete", {"results": [{"id": first[0]["id"], "value": 1}]})
    assert late.status == 409
    assert late.data["type"] == "urn:zkplan:problem:ended"


@pytest.mark.slow
def test_a_renewed_lease_outlives_a_restart_and_another_service_takes_the_result(
    service: ServiceProcess, author: Client
) -> None:
    plan, _ = planned(author, 2)
    claimed = service.claim(kinds=["double"], count=2, lease=3)
    ids = [task["id"] for task in claimed]
    assert service.ask("log", {"id": ids[0], "number": 1, "value": "half"}).status == 200
    service.kill()
    service.start()
    for _ in range(3):
        renewed = service.ask("renew", {"ids": ids})
        assert [each["ok"] for each in renewed.data["claims"]] == [True, True]
        assert service.claim(kinds=["double"], wait=1.5) == []
    skipped = service.ask("log", {"id": ids[0], "number": 3, "value": "all"})
    assert (skipped.status, "the next one is 2" in skipped.data["detail"]) == (422, True)
    failed = service.ask("fail", {"failures": [{"id": ids[0], "message": "no", "kind": "Oops"}]})
    assert failed.status == 200, failed.data
    done = service.ask("complete", {"results": [{"id": ids[1], "value": {"twice": 2}}]})
    assert done.status == 200, done.data
    (again,) = service.claim(kinds=["double"], count=5)
    assert (again["logs"], again["attempt"]) == (["half"], 1)
    assert service.ask("release", {"ids": [again["id"]]}).status == 200
    (last,) = service.claim(kinds=["double"], count=5)
    assert last["attempt"] == 2
    value = {"results": [{"id": last["id"], "value": {"twice": 0}}]}
    assert service.ask("complete", value).status == 200
    assert service.ask("complete", value).status == 409, "it is told that it had been completed"
    plan.wait(timeout=10)
    assert not author.transport.ask(ReadChildren(author.paths.claims_of(last["id"].split("/")[0])))
