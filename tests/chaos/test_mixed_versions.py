"""Workers and authors of an earlier commit share plans of one format with today's under faults,
and leave another format alone."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.tools.available import not_available
from tests.tools.support import TOP, key_file, plain_client, wait_until
from zkplan.testing.server_process import EmbeddedServerProcess
from zkplan.testing.stress_tasks import read_lines

from .cluster.cluster import Cluster, Process, Settings
from .faults.catalogue import CATALOGUE
from .run import Run
from .validate.validator import Validator

#: A commit of the format before.
BEFORE = "5d5187985ffbf2873369d81af272cdaf364d8dc8"
#: Changes after the last change of these files have left the stored bytes as they are.
FORMAT_FILES = ("zkplan/protocol/formats.py", "tests/unit/golden_files")
FAULTS = ("worker killed", "worker told to stop", "worker expired", "author killed")
ROUNDS = 24


def git(*words: str) -> bytes:
    ran = subprocess.run(["git", "-C", str(TOP), *words], capture_output=True)
    if ran.returncode != 0:
        not_available("this checkout has no history (a tarball, or a shallow clone)")
    return ran.stdout


def package_of(commit: str, folder: Path) -> Path:
    """A folder with the package of that commit alone; the tests are today's for everybody."""
    archive = git("archive", "--format=tar", commit, "zkplan")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first commit that writes exactly the bytes of today."""
    commit = git("log", "-1", "--format=%H", "--", *FORMAT_FILES).decode().strip()
    return package_of(commit, tmp_path_factory.mktemp("earlier"))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package_of(BEFORE, tmp_path_factory.mktemp("before"))


class MixedCluster(Cluster):
    """Each second worker, and each second author, is of the earlier commit; each life the other."""

    def __init__(self, settings: Settings, folder: Path, earlier: Path) -> None:
        super().__init__(settings, folder)
        self.earlier = earlier
        #: Process ids, by whether they are of the earlier commit.
        self.pids: dict[int, bool] = {}

    def start(self, process: Process, environment: object = None) -> None:
        fresh = process.running is None
        super().start(process, {"PYTHONPATH": str(TOP)})
        if fresh:
            self.pids[process.pid] = self._is_earlier(process)

    def _is_earlier(self, process: Process) -> bool:
        place = sum(map(ord, process.name))
        return process.role != "waiter" and (place + process.lives) % 2 == 0

    def _command(self, process: Process) -> list[str]:
        command = super()._command(process)
        if self._is_earlier(process):
            # The folder where a module is run from comes first on the path, before PYTHONPATH.
            command[command.index(str(TOP))] = str(self.earlier)
        return command


@pytest.mark.timeout(300)
def test_earlier_and_present_workers_share_plans(tmp_path: Path, earlier: Path) -> None:
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    settings = Settings("embedded", 37, workers=4, session_s=1.5, backlog=3)
    cluster = MixedCluster(settings, tmp_path, earlier)
    with cluster:
        cluster.wait_ready()
        with Validator(cluster) as validator:
            run = Run(cluster, validator)
            run.warm_up()
            for number in range(ROUNDS):
                run.at_once([CATALOGUE[FAULTS[number % len(FAULTS)]]])
            outcome = run.finish()
    assert outcome.violations == []
    assert validator.finished > 0
    begun = [line["pid"] for line in read_lines(tmp_path) if line["event"] == "begin"]
    ran = Counter(cluster.pids[pid] for pid in begun)
    assert ran[True] > 0
    assert ran[False] > 0
    done = f"{validator.finished} plans, {validator.tasks} tasks"
    sys.stdout.write(f"{done}; executions by earlier: {dict(ran)}\n")


def test_each_side_runs_the_code_of_its_own_commit(earlier: Path, before: Path) -> None:
    """Where both sides were today's, the other tests would show nothing."""
    shown = "import zkplan; print(zkplan.__file__)"
    for package in (earlier, before):
        ran = subprocess.run(
            [sys.executable, "-c", shown],
            cwd=package,
            env={**os.environ, "PYTHONPATH": str(TOP)},
            capture_output=True,
            text=True,
        )
        assert ran.stdout.startswith(str(package)), ran.stderr


# ---- another format

ROOT = "/mixed"
AUTHOR = """
import operator, sys, zkplan
with zkplan.connect() as client:
    with client.create_plan(sys.argv[1]) as plan:
        first = plan.add_task(operator.mul, [b"x", 70_000], keep=True)
        second = plan.add_task(operator.getitem, [first, slice(0, 3)])
        plan.add_task(operator.add, [second, b"y"], key="end", keep=True)
    print(int(plan.number))
"""
RESULT = """
import sys, zkplan
with zkplan.connect() as client:
    print(client.plan(sys.argv[1]).task("end").result(60))
"""
ADD = "import sys, zkplan; zkplan.connect().plan(sys.argv[1]).add_task(len, [[]])"


class Side:
    """The programs of one version. What connects them is in their environment."""

    def __init__(self, package: Path, hosts: str, folder: Path, setting: str) -> None:
        self.folder, self.package = folder, package
        self.environment = {"ZKPLAN_HOSTS": hosts, "ZKPLAN_ROOT": ROOT, "PYTHONPATH": str(package)}
        if setting == "sealed":
            self.environment["ZKPLAN_SECRET_FILES"] = str(key_file(folder, "k"))
        if setting == "store":
            self.environment["ZKPLAN_STORE"] = str(folder / "store")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What Python said with these words. The folder where it starts comes first on the path."""
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.package,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=100,
        )

    def said(self, *words: str) -> str:
        ran = self.run(*words)
        assert ran.returncode == 0, ran.stderr
        return str(ran.stdout).strip()

    @contextmanager
    def worker(self) -> Iterator[Callable[[str], bool]]:
        """A worker; gives whether it has said a text."""
        log = self.folder / f"worker-{time.monotonic_ns()}.log"
        words = [sys.executable, "-m", "zkplan", "worker"]
        environment = {**os.environ, **self.environment}
        with log.open("w") as out:
            process = subprocess.Popen(
                words, cwd=self.package, env=environment, stdout=out, stderr=out
            )
            try:
                yield lambda text: text in log.read_text()
            finally:
                process.kill()
                process.wait()


def plan_in(raw: KazooClient, path: str) -> dict[str, bytes]:
    found = {path: raw.get(path)[0]}
    for name in raw.get_children(path):
        found |= plan_in(raw, f"{path}/{name}")
    return found


@pytest.mark.parametrize("setting", ["plain", "sealed", "store"])
@pytest.mark.parametrize("writer", ["before", "present"])
def test_a_worker_leaves_a_plan_of_another_format_alone(
    tmp_path: Path, before: Path, writer: str, setting: str
) -> None:
    present_says, before_says = "(format 1; this one reads 3)", "format 3, this zkplan reads 1"
    if setting == "sealed":  # what is sealed says its own format first
        present_says, before_says = "(format 2; this one reads 3)", "is not sealed with any key"
    with EmbeddedServerProcess() as server, plain_client(server.hosts) as raw:
        make = partial(Side, hosts=server.hosts, folder=tmp_path, setting=setting)
        mine, other, words = make(TOP), make(before), before_says
        if writer == "before":
            mine, other, words = other, mine, present_says
        number = mine.said("-c", AUTHOR, "plan")
        path = f"{ROOT}/plan-{int(number):010d}"
        written = plan_in(raw, path)
        with other.worker() as has_said:
            wait_until(lambda: has_said(words), "the other worker reports the plan")
            refused = other.run("-c", ADD, number)
            assert words in refused.stderr
            own = other.said("-c", AUTHOR, "own")
            assert other.said("-c", RESULT, own) == "b'xxxy'"
            assert plan_in(raw, path) == written
            with mine.worker():
                assert mine.said("-c", RESULT, number) == "b'xxxy'"
        file, never = str(tmp_path / "exported"), tmp_path / "never-written"
        refused = other.run("-m", "zkplan", "plan", "export", number, "--out", str(never))
        assert words in refused.stderr
        assert not never.exists()
        mine.said("-m", "zkplan", "plan", "export", number, "--out", file)
        plans = raw.get_children(ROOT)
        refused = other.run("-m", "zkplan", "plan", "import", file)
        assert refused.returncode != 0
        assert "it has format 3" in refused.stderr or "an older zkplan" in refused.stderr
        assert raw.get_children(ROOT) == plans
