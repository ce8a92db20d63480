"""A server whose disk fails or is full says so, ends, and loses no acknowledged write."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.tools.available import require_strace
from tests.tools.disk import Disk

from .server import CrashServer, Fault
from .test_kills import loaded

WAL, DATABASE = "zkplan.db-wal", "zkplan.db"
FAULTS = {
    "the first write to the log fails": Fault("pwrite64", "error=EIO", "1", WAL),
    "the first flush of the log fails": Fault("fdatasync", "error=EIO", "1", WAL),
    "a flush of the log fails": Fault("fdatasync", "error=EIO", "20", WAL),
    "every flush of the log fails": Fault("fdatasync", "error=EIO", "20+", WAL),
    "a write to the log fails": Fault("pwrite64", "error=EIO", "60", WAL),
    "the disk is full": Fault("pwrite64", "error=ENOSPC", "60+", WAL),
    "the disk is full for a moment": Fault("pwrite64", "error=ENOSPC", "61", WAL),
    "a write to the log writes nothing": Fault("pwrite64", "retval=0", "62", WAL),
    "a write to the database fails": Fault("pwrite64", "error=EIO", "15", DATABASE),
    "a flush of the database fails": Fault("fdatasync", "error=EIO", "2", DATABASE),
    "a write of the note fails": Fault("pwrite64", "error=EIO", "30", "answered"),
    "the quota is used up": Fault("pwrite64,ftruncate", "error=EDQUOT", "70+"),
}


#: It takes a second or two, and longer where the disk is slow.
FAILS_S_MAX = 60.0


#: The faults that run with every change: of a write, of a flush, and of a disk that is full.
OFTEN = ("a flush of the log fails", "a write to the database fails", "the disk is full")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.slow) for name in FAULTS],
)
def test_a_failing_disk_ends_the_server_and_loses_nothing(tmp_path: Path, name: str) -> None:
    require_strace()
    with loaded(tmp_path, 5) as load:
        assert load.fail(FAILS_S_MAX, FAULTS[name]), "the server lives on"
        message = load.server.said.strip().splitlines()[-1]
        load.check_after_restart()
    assert load.faults == []
    assert "failed" in message
    assert str(load.server.data) in message
    assert "start" in message, "it does not say what to do"


@pytest.mark.slow
def test_a_write_cut_short_ends_the_server_and_loses_nothing(tmp_path: Path) -> None:
    """The limit on the size of a file lets the write that crosses it be made in part."""
    with loaded(tmp_path, 6) as load:
        assert load.fail(FAILS_S_MAX, before=("/bin/sh", "-c", 'ulimit -f 400; exec "$0" "$@"'))
        load.check_after_restart()
    assert load.faults == []


STARTS = {
    "full": Fault("pwrite64", "error=ENOSPC", "1+"),
    "no flush": Fault("fdatasync,fsync", "error=EIO", "1+"),
    "no lock": Fault("openat", "error=ENOSPC", "1+", "lock"),
    "no new database": Fault("pwrite64", "error=EIO", "2", "zkplan.db.new"),
    "no flush of the new database": Fault("fdatasync", "error=EIO", "1", "zkplan.db.new"),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_failing_disk_at_the_start_is_reported(tmp_path: Path, name: str) -> None:
    require_strace()
    server = CrashServer(tmp_path)
    assert not server.comes_up(STARTS[name])
    assert server.exit_code == 1
    assert "Traceback" not in server.said
    assert str(server.data) in server.said
    assert server.comes_up(), "what the failed start left behind"
    server.stop()
    assert server.exit_code == 0


def test_a_full_disk_loses_nothing_and_the_server_starts_again_with_room(tmp_path: Path) -> None:
    with ExitStack() as stack:
        disk = Disk.mounted(tmp_path, stack)
        if disk is None:
            pytest.skip("this process may not mount a file system of its own")
        load = stack.enter_context(loaded(tmp_path, 7))
        disk.fill(1_000_000)
        assert load.fail(FAILS_S_MAX), "the server lives on"
        assert "full" in load.server.said
        assert not load.server.comes_up(), "it serves on a full disk"
        assert load.server.exit_code == 1
        assert "Traceback" not in load.server.said
        disk.free()
        load.finish()
    assert load.faults == []
