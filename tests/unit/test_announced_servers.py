"""A running server of this user is found by its address; entries of other users are ignored."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zkplan.embedded.login import Access, Announcement, announced

ACCESS = Access("zkplan:login", "secret", "file:///store")
AT = ("127.0.0.1", 21)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return tmp_path / "state" / "zkplan" / "servers"


def test_an_announcement_is_private_and_ends_with_its_server(folder: Path) -> None:
    entry = Announcement(*AT, ACCESS)
    assert announced(*AT) == ACCESS
    assert announced("127.0.0.1", 22) is None
    (file,) = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert "login" not in repr(ACCESS)
    entry.withdraw()
    assert announced(*AT) is None
    assert list(folder.iterdir()) == []


def test_an_announcement_of_a_killed_server_is_ignored(folder: Path) -> None:
    program = (
        "import os; from zkplan.embedded.login import Announcement as A; "
        "from zkplan.embedded.login import Access; "
        "kept = A('127.0.0.1', 21, Access('of', 'the', 'dead')); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program], check=False, timeout=30)
    assert len(list(folder.iterdir())) == 1
    assert announced(*AT) is None
    other = Announcement("127.0.0.1", 22, ACCESS)
    assert len(list(folder.iterdir())) == 1, "the next server removes it"
    other.withdraw()


def test_the_latest_server_announced_at_an_address_counts() -> None:
    first, second = Announcement(*AT, Access("first")), Announcement(*AT, Access("second"))
    first.withdraw()
    assert announced(*AT) == Access("second")
    second.withdraw()


def test_a_folder_that_other_users_can_reach_gets_no_login(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    entry = Announcement(*AT, ACCESS)
    assert list(folder.iterdir()) == []
    assert announced(*AT) == ACCESS, "it is among the temporary files"
    entry.withdraw()
    (tmp_path / f"zkplan-servers-{os.geteuid()}").chmod(0o777)
    with pytest.raises(OSError, match="other users can reach"):
        Announcement(*AT, ACCESS)
