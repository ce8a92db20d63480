"""A task in its own process finds no key there, wherever it looks.

Its worker, whose process it may read too, has the key: docs/operate/security.md says so.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import WAIT_S, Here, key_file, secret_of, wait_until, working
from zkplan.values.keyring import derived, parse_keys

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes of tasks need Linux")
#: Bytes of memory that are searched at most, and at a time.
SEARCHED_MAX, CHUNK = 2 * 1024**3, 4 * 1024**2


def memory_of(pid: int) -> Iterator[bytes]:
    """All memory of a process that can be read, in pieces that overlap."""
    left = SEARCHED_MAX
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            first, last = (int(end, 16) for end in span.split("-"))
            if rights[0] != "r" or line.endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                continue
            for at in range(first, last, CHUNK):
                with contextlib.suppress(OSError, OverflowError):  # a device, or beyond a file
                    memory.seek(at)
                    found = memory.read(min(CHUNK + 64, last - at))
                    left -= len(found)
                    yield found
                assert left > 0, "the process has more memory than this test searches"


def found_in(pid: int, needles: Iterable[bytes]) -> set[bytes]:
    """Which of these a process has in its environment, its command line, or its memory."""
    given = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline")]
    either = re.compile(b"|".join(map(re.escape, needles)))
    return {one[0] for place in (*given, *memory_of(pid)) for one in either.finditer(place)}


def test_the_process_of_a_task_has_no_key_in_memory_environment_or_files(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, gate = tmp_path / "began", tmp_path / "gate"
    keys = key_file(tmp_path, "ours")
    monkeypatch.setenv("ZKPLAN_SECRET_FILES", str(keys))
    options: dict[str, Any] = {"secret_files": [str(keys)]}
    with (
        zkplan.connect(*here, **options) as client,
        working(*here, 1, of_worker={"isolation": "process"}, **options) as worker,
    ):
        with client.create_plan(attempts=1) as plan:
            canary = f"argument-{os.urandom(16).hex()}"
            task = plan.add_task(be_near_with, [str(file), str(gate), canary])
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"), "it runs")
        child, guard = map(int, file.read_text().split())
        (key,) = parse_keys(secret_of("ours"), "")
        ring: Any = worker.client.guard._ring  # type: ignore[union-attr]
        needles = [key.material, key.material.hex().encode(), derived(key, ring.uid)]
        assert found_in(child, [*needles, canary.encode()]) == {canary.encode()}
        assert found_in(guard, needles) == set()
        for pid in (child, guard):
            opened = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            assert str(keys) not in opened
        gate.touch()
        assert task.result(WAIT_S) == 1


def be_near_with(file: str, gate: str, given: str) -> int:
    """As a task: tell its process and the guard of that, and wait, with an argument in memory."""
    Path(file).write_text(f"{os.getpid()} {os.getppid()}\n")
    wait_until(lambda: Path(gate).exists(), "the gate opens", 60)
    return len(given.split("\n"))
