"""The lock of a data folder, the address that its holder tells, and words from odd places."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from zkplan.embedded.lock import FolderLock, address_of
from zkplan.embedded.storage_errors import StorageLocked
from zkplan.embedded.words import answer_word


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


NOBODY = cast("Any", None)


def test_envi_is_answered_from_a_deleted_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(FileNotFoundError):
        os.getcwd()
    answer = answer_word(b"envi", NOBODY)
    assert answer is not None
    assert b"user.dir=?\n" in answer
