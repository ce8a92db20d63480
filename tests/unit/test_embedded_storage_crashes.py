"""Storage of a process that dies, or whose disk fails, at any of its writes."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zkplan.embedded.storage import Storage

from . import storage_story
from .storage_story import EMPTY, Picture, picture, story

TOP = Path(__file__).parents[2]
GROUPS = 40

# Where CI runs, a machine without strace is a mistake in its set-up and fails.
needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None and not os.environ.get("CI"),
    reason="strace is not installed: it makes single system calls fail or kill",
)


def run_story(
    folder: Path,
    mode: str,
    inject: str | None = None,
    victim: Path | None = None,
    file_bytes_max: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Commit the story in a process of its own, under a fault, of the file `victim` alone."""
    command = [sys.executable, storage_story.__file__, str(folder), mode, str(GROUPS)]
    if inject is not None:
        calls = inject.partition(":")[0]
        tracing = ["-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={inject}"]
        if victim is not None:
            tracing += ["-P", str(victim)]
        command = ["strace", *tracing, *command]

    def limit() -> None:
        if file_bytes_max is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))

    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(TOP)},
        preexec_fn=limit,
    )


@pytest.fixture(scope="module")
def pictures() -> list[Picture]:
    """What a folder holds after each group of the story."""
    return [EMPTY, *(group.after for group in story(GROUPS))]


def loaded(folder: Path) -> Picture:
    storage = Storage.open(folder)
    try:
        return picture(storage.load())
    finally:
        storage.close()


def committed(ran: subprocess.CompletedProcess[str]) -> int:
    """The number of the last group whose commit returned; -1: the folder was not even open."""
    lines = ran.stdout.split()
    return -1 if not lines else 0 if lines[-1] == "open" else int(lines[-1])


WRITES = [1, 2, 7, 12, 23, 30, 36, 45, 60, 90, 120, 201, 302, 503, 804, 1100]


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["flushed", "fast"])
def test_a_process_killed_at_any_write_loses_no_group_and_halves_none(
    tmp_path: Path, mode: str, pictures: list[Picture]
) -> None:
    kept = set()
    for write in WRITES:
        folder = tmp_path / str(write)
        ran = run_story(folder, mode, f"pwrite64:signal=KILL:when={write}")
        assert ran.returncode in (-9, 137), ran.stderr
        last = committed(ran)
        # The write that killed may have been the last one of its group, which then is whole.
        assert loaded(folder) in pictures[max(last, 0) : last + 2], (write, last)
        kept.add(last)
    assert len(kept) > 6


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("name", ["zkplan.db", "zkplan.db-wal", "zkplan.db.new"])
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_a_disk_that_fails_ends_the_commits_and_loses_none_before(
    tmp_path: Path, name: str, call: str, pictures: list[Picture]
) -> None:
    for when in (1, 2) if name != "zkplan.db-wal" else (1, 2, 3, 4, 9, 20):
        folder = tmp_path / str(when)
        ran = run_story(folder, "flushed", f"{call}:error=EIO:when={when}", folder / name)
        last = committed(ran)
        assert ran.returncode == 3, (when, last, ran.stderr)
        assert ran.stderr.startswith(("StorageError: ", "writing"))
        assert str(folder) in ran.stderr
        assert loaded(folder) in pictures[max(last, 0) : last + 2], (when, last, ran.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("kib", [8, 40, 100, 300, 900, 2000])
def test_a_full_disk_ends_the_commits_and_loses_none_before(
    tmp_path: Path, kib: int, pictures: list[Picture]
) -> None:
    ran = run_story(tmp_path, "flushed", file_bytes_max=kib * 1024)
    assert ran.returncode == 3, ran.stderr
    assert "KiB are free" in ran.stderr
    assert str(tmp_path) in ran.stderr
    last = committed(ran)
    assert last < GROUPS
    assert loaded(tmp_path) in pictures[max(last, 0) : last + 2]
