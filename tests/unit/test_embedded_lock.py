"""The lock of a data folder, and the address that its holder tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkplan.embedded.lock import FolderLock, address_of
from zkplan.embedded.storage_errors import StorageLocked


def test_an_address_of_another_holder_is_given_to_nobody(tmp_path: Path) -> None:
    before = FolderLock(tmp_path)
    before.publish_address("127.0.0.1:1")
    assert address_of(tmp_path) == "127.0.0.1:1"
    # As a reader sees it while the next one has the lock and has not listened yet.
    (tmp_path / "lock").write_text("1\n")
    assert address_of(tmp_path) is None
    before.release()


def test_an_address_of_ipv6_gets_brackets(tmp_path: Path) -> None:
    held = FolderLock(tmp_path)
    for told in ("::1:2181", "[::1]:2181"):
        held.publish_address(told)
        assert address_of(tmp_path) == "[::1]:2181"
    held.release()


def test_a_lock_is_released_although_its_address_stays(tmp_path: Path) -> None:
    held = FolderLock(tmp_path)
    (tmp_path / "address").mkdir()
    held.release()
    (tmp_path / "address").rmdir()
    FolderLock(tmp_path).release()


def test_a_lock_that_is_held_says_that_a_server_holds_it(tmp_path: Path) -> None:
    held = FolderLock(tmp_path)
    with pytest.raises(StorageLocked) as caught:
        FolderLock(tmp_path)
    assert caught.value.by_server
    held.release()
