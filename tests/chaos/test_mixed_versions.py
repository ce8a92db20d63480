"""Workers and authors of an earlier commit beside today's; records of a format to come."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import zkplan
from tests.crash.server import not_available
from tests.integ.support import TOP, WorkerProcess, plain_client, wait_until
from zkplan.protocol.layout import parse_entry
from zkplan.testing.embedded_process import EmbeddedServerProcess

from .faults.catalogue import CATALOGUE
from .run import Run
from .validate.validator import Validator
from .world.arena import Actor, Arena, Settings

#: The last commit before the embedded server and the named points; its records have this format.
EARLIER = "360928aeb7847e6efbff2758cbb61771fbdef084"
FAULTS = ("worker killed", "worker told to stop", "worker expired", "author killed")
ROUNDS = 24
#: Workers of that commit keep what goes only to tasks that its own function adds (docs/adr/0015),
#: and in the dead letter of a task whose workers were lost they count one attempt too many.
EARLIER_RULES = re.compile(
    r"^S4 .* \(adding\): the result of \S+ is kept, though it has dep"
    r"|^S8 .* died (after 4 attempts used up|with 4 attempts used up of 3, its last was None)"
)
ROOT = "/versions"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of that commit alone; the tests are today's for everybody."""
    archive = subprocess.run(
        ["git", "-C", str(TOP), "archive", "--format=tar", EARLIER, "zkplan"], capture_output=True
    )
    if archive.returncode != 0:
        not_available(f"this checkout has no commit {EARLIER[:7]} (a tarball, or a shallow clone)")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


class MixedArena(Arena):
    """Each second worker, and each second author, is of the earlier commit; each life the other."""

    def __init__(self, settings: Settings, folder: Path, earlier: Path) -> None:
        super().__init__(settings, folder)
        self.earlier = earlier
        #: Process ids, by whether they are of the earlier commit.
        self.pids: dict[int, bool] = {}

    def start(self, actor: Actor, environment: object = None) -> None:
        fresh = actor.process is None
        super().start(actor, {"PYTHONPATH": str(TOP)})
        if fresh:
            self.pids[actor.pid] = self._is_earlier(actor)

    def _is_earlier(self, actor: Actor) -> bool:
        place = sum(map(ord, actor.name))
        return actor.role != "waiter" and (place + actor.lives) % 2 == 0

    def _command(self, actor: Actor) -> list[str]:
        command = super()._command(actor)
        if self._is_earlier(actor):
            # The folder where a module is run from comes first on the path, before PYTHONPATH.
            command[command.index(str(TOP))] = str(self.earlier)
        return command


@pytest.mark.timeout(300)
def test_earlier_and_present_workers_share_plans(tmp_path: Path, earlier: Path) -> None:
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    settings = Settings("embedded", 37, workers=4, session_s=1.5, backlog=3)
    arena = MixedArena(settings, tmp_path, earlier)
    with arena:
        arena.wait_ready()
        with Validator(arena) as validator:
            run = Run(arena, validator)
            run.warm_up()
            for number in range(ROUNDS):
                run.at_once([CATALOGUE[FAULTS[number % len(FAULTS)]]])
            outcome = run.finish()
    assert [text for text in outcome.violations if not EARLIER_RULES.search(text)] == []
    assert outcome.plans > 0
    ran: Counter[bool] = Counter()
    for line in (line for path in tmp_path.glob("worker-*.jsonl") for line in _begun(path)):
        ran[arena.pids[line]] += 1
    assert ran[True] > 0
    assert ran[False] > 0
    told = f"{outcome.plans} plans, {outcome.tasks} tasks; executions by earlier: {dict(ran)}"
    sys.stdout.write(f"{told}\n")


def _begun(path: Path) -> Iterator[int]:
    """The process id once for each execution of the file: a file is of one process."""
    pid = int(path.stem.rpartition("-")[2])
    yield from (pid for line in path.read_text().splitlines() if '"event": "begin"' in line)


def test_an_earlier_commit_is_another_code(earlier: Path) -> None:
    """Where both were the same, the test above would show nothing."""
    command = ["-c", "import zkplan; print(zkplan.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    shown = subprocess.run(
        [sys.executable, *command], cwd=earlier, env=environment, capture_output=True, text=True
    )
    assert shown.stdout.startswith(str(earlier)), shown.stderr
    assert not (earlier / "zkplan" / "protocol/failpoints.py").exists()


# ---- records of a format to come


def plan_of_tomorrow(client: zkplan.Client, envelope: bool) -> tuple[str, list[str]]:
    """A ready plan whose record, or whose tasks' envelopes, are of a later format."""
    plan = client.create_plan("tomorrow")
    tasks = plan.add_tasks([zkplan.TaskSpec(len, [[1, 2]]) for _ in range(3)])
    transport = client.transport.client
    if envelope:
        for task in tasks:
            data, _ = transport.get(task.path)
            transport.set(task.path, b"z2" + data[2:])
    else:
        data, _ = transport.get(plan.path)
        transport.set(plan.path, data.replace(b'"format":1', b'"format":2'))
    plan.mark_ready()
    return plan.path, [task.number for task in tasks]


@pytest.mark.parametrize("what", ["record", "envelope"])
def test_what_is_of_a_later_format_is_left_alone_and_told(tmp_path: Path, what: str) -> None:
    with (
        EmbeddedServerProcess() as server,
        zkplan.connect(server.hosts, ROOT) as client,
        plain_client(server.hosts) as raw,
        WorkerProcess(server.hosts, ROOT, tmp_path, "--session-timeout", "2") as worker,
    ):
        client.prepare()
        path, tasks = plan_of_tomorrow(client, what == "envelope")
        said = "upgrade it" if what == "record" else "newer format"
        wait_until(lambda: worker.said(said), f"the worker tells of {what}")
        with client.create_plan("today") as plan:
            today = plan.add_task(len, [[1, 2, 3]])
        assert today.result(timeout=30) == 3
        for number in tasks:
            children = raw.get_children(f"{path}/task-{number}")
            assert not [name for name in children if name.startswith("started-")]
        # No attempt was used up: a worker of that format can still run all of them.
        entries = [parse_entry(name) for name in raw.get_children(f"{path}/runnable")]
        assert all(entry is not None and entry.a == 0 for entry in entries)
        if what == "record":
            assert [(entry.task, entry.n) for entry in entries if entry] == [
                (number, 0) for number in tasks
            ]
        assert worker.process.is_running()
        assert not raw.get_children(f"{path}/dead")
