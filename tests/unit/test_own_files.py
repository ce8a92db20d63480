"""In shared folders no other user can make zkplan wait, or read or write a file of theirs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from zkplan.basics.private import ProcessFolder
from zkplan.embedded import EmbeddedServer, address_of, announced, folder_access
from zkplan.embedded.database import FILES
from zkplan.embedded.login import Access, Announcement
from zkplan.testing import server_process as loopback

STRANGER = 54321
AT = ("127.0.0.1", 21)


def fifo(place: Path) -> None:
    os.mkfifo(place)


def link(place: Path) -> None:
    target = place.with_name(f"target of {place.name}")
    target.write_text("keep me\n")
    place.symlink_to(target)


def link_to_folder(place: Path) -> None:
    target = place.with_name(f"target of {place.name}")
    target.mkdir(0o700)
    place.symlink_to(target)


def folder_of_all(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)
    os.mkfifo(place / "claimed")
    os.mkfifo(place / f"{os.uname().nodename} 127.0.0.1 21")


def file_of_another(place: Path) -> None:
    place.write_text("127.0.0.1:1\n1\n")
    os.chown(place, STRANGER, STRANGER)


def folder_of_another(place: Path) -> None:
    folder_of_all(place)
    os.chown(place, STRANGER, STRANGER)


TRAPS = [fifo, link, link_to_folder, folder_of_all]
if os.geteuid() == 0:  # nobody else can give files away
    TRAPS += [folder_of_another, file_of_another]
Trap = Callable[[Path], None]
pytestmark = [
    pytest.mark.timeout(20),  # what waits at a FIFO waits for good
]


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files; nothing of ours is found anywhere else."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def no_home(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")


@pytest.mark.parametrize("trap", TRAPS)
def test_a_login_is_neither_read_nor_written_where_another_user_set_a_trap(
    shared: Path, tmp_path: Path, trap: Trap
) -> None:
    no_home(tmp_path)
    trap(shared / f"zkplan-servers-{os.geteuid()}")
    assert announced(*AT) is None
    with pytest.raises(OSError, match=r"zkplan-servers|other users can reach"):
        Announcement(*AT, Access("of:me"))


@pytest.mark.parametrize("trap", TRAPS)
def test_an_entry_that_is_not_our_own_regular_file_is_ignored(
    shared: Path, tmp_path: Path, trap: Trap
) -> None:
    no_home(tmp_path)
    entry = Announcement(*AT, Access("of:me"))
    (found,) = (shared / f"zkplan-servers-{os.geteuid()}").iterdir()
    found.unlink()
    trap(found)
    assert announced(*AT) is None
    entry.close()


@pytest.mark.parametrize("trap", TRAPS)
def test_ports_are_claimed_in_a_place_that_no_other_user_can_block(
    shared: Path, tmp_path: Path, trap: Trap
) -> None:
    place = shared / f"zkplan-ports-{os.geteuid()}"
    trap(place)
    loopback._claims.cache_clear()
    try:
        assert loopback.free_port()
        claims = loopback._claims()
        assert claims is not None
        (file,) = (tmp_path / "state").rglob("claimed")
        assert os.fstat(claims).st_ino == file.stat().st_ino
    finally:
        loopback._claims.cache_clear()


@pytest.mark.parametrize("trap", TRAPS)
def test_a_folder_of_another_user_is_not_swept(shared: Path, trap: Trap) -> None:
    place = shared / "zkplan-memory-0"
    trap(place)
    before = sorted(shared.iterdir())
    made = ProcessFolder()
    assert made.path.stat().st_mode & 0o777 == 0o700
    made.remove()
    assert trap is folder_of_all or sorted(shared.iterdir()) == before
    assert all(
        target.read_text() == "keep me\n" for target in shared.glob("target*") if target.is_file()
    )


@pytest.mark.parametrize("name", ["lock", "address", "login", "secret", "answered", *FILES])
@pytest.mark.parametrize("trap", TRAPS)
def test_a_foreign_file_in_a_data_folder_is_never_used(
    tmp_path: Path, trap: Trap, name: str
) -> None:
    data = tmp_path / "data"
    server = EmbeddedServer(data)
    server.start()
    server.stop()
    (data / name).unlink(missing_ok=True)
    trap(data / name)
    assert address_of(data) is None
    if name in ("login", "secret"):
        with pytest.raises(OSError, match="look at it, and remove it"):
            folder_access(data)
    if name != "address":  # what lies there a server removes
        with pytest.raises(OSError, match=rf"{name} .*look at it, and remove it"):
            EmbeddedServer(data).start()
    target = data / f"target of {name}"
    assert not target.is_file() or target.read_text() == "keep me\n"


def test_a_data_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        data = tmp_path / "data"
        data.mkdir()
        os.chown(data, STRANGER, STRANGER)
        with pytest.raises(OSError, match="belongs to another user, who could change everything"):
            EmbeddedServer(data).start()
        assert list(data.iterdir()) == []
