"""The examples of README and guide: each runs beside a worker and prints what the page says."""

from __future__ import annotations

import csv
import re
import runpy
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.tools.support import TOP, WorkerProcess, run_python

GUIDE = (TOP / "docs" / "start" / "guide.md").read_text(encoding="utf-8")
OF_GUIDE = re.findall(r"```python\n(.*?)```\n\nIt prints:\n\n```text\n(.*?)```", GUIDE, re.DOTALL)
README = (TOP / "README.md").read_text(encoding="utf-8")
(OF_README,) = re.findall(r"```python\n(.*?)```\n\nIt prints `(.+?)`\.", README, re.DOTALL)
SHOWN = [*OF_GUIDE, (OF_README[0], f"{OF_README[1]}\n")]
FILES = {path.read_text(encoding="utf-8"): path for path in sorted(TOP.glob("examples/*.py"))}


@pytest.fixture
def chroot(zookeeper_hosts: str, zkplan_root: str, znodes: KazooClient) -> str:
    """A connection string under which /zkplan, the examples' root, is of this test alone."""
    znodes.create(zkplan_root)
    return zookeeper_hosts + zkplan_root


@pytest.mark.parametrize(
    ("code", "output"), SHOWN, ids=[FILES[code].stem if code in FILES else "?" for code, _ in SHOWN]
)
def test_an_example_prints_what_its_page_says(
    code: str, output: str, chroot: str, tmp_path: Path
) -> None:
    with WorkerProcess(chroot, "/zkplan", tmp_path) as worker:
        worker.wait_ready()
        example = run_python(str(FILES[code]), env={"ZKPLAN_HOSTS": chroot})
    assert example.returncode == 0, example.stderr
    assert example.stdout == output


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_team_shares_one_server_while_workers_are_killed() -> None:
    """It checks itself what its tasks have noted; this wants all of it to be told, and kills."""
    example = run_python("examples/team.py", timeout=380)
    assert example.returncode == 0, example.stderr
    told = [line.partition(":")[0] for line in example.stdout.splitlines()]
    bad, shown = ["hang", "leak", "hopeless"], ["nights", "attempts", "queues", "limit"]
    assert told == [*bad, *shown, "weights 3", "workers"]
    (kills,) = re.findall(r"workers: (\d+) were killed", example.stdout)
    assert int(kills) >= 5


def test_csv_files_become_frames_and_the_frames_become_one_table(tmp_path: Path) -> None:
    """Of twelve small files, so that two groups of frames are merged."""
    pytest.importorskip("pandas", reason="pandas is not installed: pip install zkplan[dask]")
    code = runpy.run_path(str(TOP / "examples" / "frames.py"))
    total, kinds = 0.0, set()
    for number in range(12):
        file = tmp_path / f"{number}.csv"
        code["write_file"](file, 0.05, number)
        with file.open(newline="") as rows:
            for row in csv.DictReader(rows):
                total += float(row["amount"])
                kinds.add((row["shop"], row["day"]))
    example = run_python("examples/frames.py", "12", "0.05")
    assert example.returncode == 0, example.stderr
    assert example.stdout == f"12 files, {len(kinds)} rows, {total:.2f} in all\n"


def test_the_guide_has_an_example_in_each_chapter() -> None:
    assert len(OF_GUIDE) == GUIDE.count("\n## ")
