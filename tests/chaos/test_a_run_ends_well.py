"""A run ends in order: by a signal, and where two faults are in each other's way."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integ.support import IN_CHECKOUT, wait_until
from zkplan.testing.server_process import ServerDidNotStart

from .faults.fault import Entry, Fault
from .quiet import Quiet
from .run import Run
from .validate.validator import Validator
from .world.arena import Arena


def _lines(folder: Path) -> list[str]:
    return (folder / "arena.jsonl").read_text().splitlines()


class InTheWay(Fault):
    """No server starts before all faults are healed for the first time."""

    lasts = (0.0, 0.0)

    def __init__(self, name: str, step: str) -> None:
        super().__init__(name)
        self.step, self.healings = step, 0

    def inject(self, arena: Arena, chance: random.Random) -> None:
        if self.step == "inject":
            raise ServerDidNotStart("the disk is full")

    def felt(self, arena: Arena) -> bool:
        return True  # what is broken is not what these tests are about

    def heal(self, arena: Arena) -> None:
        self.healings += 1
        if self.step == "heal" and self.healings == 1:
            raise ServerDidNotStart("the disk is full")


@pytest.mark.parametrize(("step", "healings"), [("inject", 1), ("heal", 2)])
def test_a_fault_that_another_one_cuts_short_ends_no_run(
    tmp_path: Path, step: str, healings: int
) -> None:
    arena = Quiet(tmp_path)
    fault = InTheWay("one", step)
    run = Run(arena, Validator(arena))
    run.at_once([Entry("one", "", "", lambda name: fault)])
    assert fault.healings == healings
    assert run.outcome.broke_off == {f"one ({step})": 1}
    assert not run.broken()
    events = [json.loads(line)["event"] for line in _lines(tmp_path)]
    assert "fault broke off" in events
    assert events[-1] == "healed"


def test_a_server_that_does_not_start_when_all_is_healed_is_found(tmp_path: Path) -> None:
    class Broken(Quiet):
        def heal(self) -> None:
            raise ServerDidNotStart("its log is damaged")

    arena = Broken(tmp_path)
    run = Run(arena, Validator(arena))
    run.at_once([Entry("one", "", "", lambda name: InTheWay(name, "heal"))])
    assert any("does not start again" in found for found in run.broken())


@pytest.mark.chaos
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_leaves_nothing_and_says_where_its_histories_are(
    tmp_path: Path, number: signal.Signals
) -> None:
    kept, report = tmp_path / "kept", tmp_path / "report.md"
    command = [*IN_CHECKOUT, sys.executable, "-m", "tests.chaos", "--kind", "embedded"]
    command += ["--minutes", "5", "--workers", "1", "--faults", ""]
    command += ["--keep", str(kept), "--report", str(report)]
    # The data of the server go there too, so a file system of theirs is one of this test.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe) as process:
        try:
            wait_until(lambda: list(kept.glob("worker-*.jsonl")), "a task has run", 60)
            process.send_signal(number)
            said, complained = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 128 + number
    assert b"violations" not in said
    assert f"ended by {number.name}; histories and logs: {kept}" in said.decode()
    assert b"Traceback" not in complained
    assert not report.exists()
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    lines = [json.loads(line) for line in _lines(kept)]
    pids = [line["pid"] for line in lines if line["event"] == "started"]
    assert pids
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
