"""A process killed at any write of its storage loses no group and leaves none half written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.available import require_strace
from zkplan.embedded.storage import Storage

from .storage_story import EMPTY, picture, story

GROUPS = 40
#: Writes of a new folder, of the log, and of the database when the log is carried over.
WRITES = [1, 2, 7, 12, 23, 30, 36, 45, 60, 90, 120, 201, 302, 503, 804, 1100]
COMMITS = """
import sys
from pathlib import Path
from tests.unit.storage_story import save, story
from zkplan.embedded import folding
from zkplan.embedded.storage import Storage
folding.FOLD_NODES, folding.NODES_PER_COMMIT = 100, 40
folder, mode, groups = sys.argv[1:]
storage = Storage(Path(folder), sync=mode == "flushed")
storage.load()
for number, group in enumerate(story(int(groups)), 1):
    save(storage, group)
    print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["flushed", "fast"])
def test_a_kill_at_any_write_loses_no_group_and_halves_none(tmp_path: Path, mode: str) -> None:
    require_strace()
    pictures = [EMPTY, *(group.after for group in story(GROUPS))]
    ended = set()
    for write in WRITES:
        folder = tmp_path / str(write)
        strace = ["strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=pwrite64"]
        strace += ["-e", f"inject=pwrite64:signal=KILL:when={write}"]
        ran = subprocess.run(
            [*strace, sys.executable, "-c", COMMITS, str(folder), mode, str(GROUPS)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode in (-9, 137), ran.stderr
        last = int((ran.stdout.split() or ["0"])[-1])
        storage = Storage(folder)
        # The write that killed may have been the last one of its group, which then is whole.
        assert picture(storage.load()) in pictures[last : last + 2], (write, last)
        storage.close()
        ended.add(last)
    assert len(ended) > 6
