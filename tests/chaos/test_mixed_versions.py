"""Workers and authors of an earlier commit beside today's, under faults."""

from __future__ import annotations

import ast
import io
import logging
import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.server import not_available
from tests.integ.support import TOP
from zkplan.stress.history import read_lines

from .cluster.cluster import Cluster, Process, Settings
from .faults.catalogue import CATALOGUE
from .run import Run
from .validate.validator import Validator

#: The first commit that writes histories and shows them whole. Those before tell nothing of what
#: they do, so the history of a plan that they share has holes, and nothing says so: S13 sees it.
EARLIER = "3f62561eb717fa83f3e8db79cb1a204bf7d896bf"
FAULTS = ("worker killed", "worker told to stop", "worker expired", "author killed")
ROUNDS = 24


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
    told = (
        f"{validator.finished} plans, {validator.tasks} tasks; executions by earlier: {dict(ran)}"
    )
    sys.stdout.write(f"{told}\n")


def code_of(package: Path) -> dict[str, str]:
    """The code of each module of that package, without comments and docstrings."""
    found = {}
    for path in package.rglob("*.py"):
        module = ast.parse(path.read_bytes())
        for each in ast.walk(module):
            match each:
                case ast.Expr(value=ast.Constant(value=str())):
                    each.value = ast.Constant("")
        found[str(path.relative_to(package))] = ast.dump(module)
    return found


def test_workers_of_the_earlier_commit_run_another_code(earlier: Path) -> None:
    """Where both were the same, the test above would show nothing."""
    then, now = code_of(earlier / "zkplan"), code_of(TOP / "zkplan")
    changed = {name for name, code in then.items() if now.get(name) != code}
    for module in ("runtime/loop.py", "runtime/claims.py", "protocol/telling.py"):
        assert module in changed & now.keys()
    command = ["-c", "import zkplan; print(zkplan.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    shown = subprocess.run(
        [sys.executable, *command], cwd=earlier, env=environment, capture_output=True, text=True
    )
    assert shown.stdout.startswith(str(earlier)), shown.stderr
