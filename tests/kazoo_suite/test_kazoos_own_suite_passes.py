"""The test suite of kazoo passes on the embedded server, except for the list in skips.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from .skips import SKIPPED, may_be_skipped

pytestmark = pytest.mark.slow

_CHECKOUT = Path(__file__).parents[2]
_SUITE = Path(find_spec("kazoo.tests").submodule_search_locations[0])  # type: ignore
#: Parts that take about as long and run side by side, each on a server of its own: most of the time
#: the suite sleeps. The rest of its files is a part too.
_PARTS = (("test_partitioner.py", "test_cache.py"), ("test_watchers.py", "test_lock.py"))
_SUMMARY = re.compile(r"\d+ (passed|failed).* in [\d.]+s")
TIMEOUT_S = 600
#: Of kazoo 2.11 with gevent and eventlet installed 476; without them 306 less two left out.
PASSED_MIN = 290


class Part(NamedTuple):
    """A run of some of the suite's files."""

    process: subprocess.Popen[str]
    report: Path


def run(files: list[Path], folder: Path, stack: ExitStack) -> Part:
    folder.mkdir()
    report = folder / "report.json"
    command = [sys.executable, "-m", "pytest", "-c", "tests/kazoo_suite/kazoo.ini", "-q"]
    process = subprocess.Popen(
        [*command, "-p", "tests.kazoo_suite.plugin", *map(str, files)],
        cwd=_CHECKOUT,
        env={**os.environ, "ZKPLAN_KAZOO_REPORT": str(report), "PYTEST_ADDOPTS": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return Part(process, report)


@pytest.mark.timeout(TIMEOUT_S)
def test_kazoos_own_suite_passes_on_the_embedded_server(tmp_path: Path) -> None:
    parts = [[_SUITE / name for name in names] for names in _PARTS]
    placed = [path for part in parts for path in part]
    parts.append([path for path in sorted(_SUITE.glob("test_*.py")) if path not in placed])
    with ExitStack() as stack:
        runs = [run(part, tmp_path / str(number), stack) for number, part in enumerate(parts)]
        said = [part.process.communicate()[0] for part in runs]
    outcomes: dict[str, list[str]] = {}
    for part in runs:
        # One that hung was ended before it could report: what it said names the test.
        if part.report.exists():
            outcomes.update(json.loads(part.report.read_text()))
    skipped = {name for name, outcome in outcomes.items() if outcome[0] == "skipped"}
    passed = [name for name, outcome in outcomes.items() if outcome[0] == "passed"]
    summaries = [line for text in said for line in text.splitlines() if _SUMMARY.match(line)]
    total = f"kazoo's own suite: {len(passed)} passed, {len(skipped)} skipped"
    sys.stdout.write("\n".join([*summaries, total, ""]))
    failed = [text for part, text in zip(runs, said, strict=True) if part.process.returncode]
    assert not failed, "\n".join(failed)[-20_000:]
    assert sorted(set(SKIPPED) - skipped) == []
    assert [name for name in sorted(skipped) if not may_be_skipped(name)] == []
    assert len(passed) >= PASSED_MIN
