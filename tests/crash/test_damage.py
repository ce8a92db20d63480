"""A damaged, foreign or used data folder is refused with what to do, and left as it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from zkplan.embedded import (
    EmbeddedServer,
    StorageDamaged,
    StorageError,
    StorageLocked,
)

#: Who holds the folder is written anew by each attempt.
_OF_THE_HOLDER = ("lock", "address")
_PAGE_BYTES = 4096


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of a server that was stopped after some writes."""
    data = tmp_path / "data"
    with EmbeddedServer(data) as server:
        client = KazooClient(server.hosts)
        client.start()
        for number in range(300):
            client.create(f"/node-{number}", b"x" * 200)
        client.stop()
        client.close()
    return data


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if path.name not in _OF_THE_HOLDER
    }


def change_a_byte(folder: Path) -> None:
    file = folder / "zkplan.db"
    # Pages that were split keep parts of rows that are elsewhere now, so not only the first one.
    file.write_bytes(file.read_bytes().replace(b"/node-150", b"/node-170"))


def cut_off_half(folder: Path) -> None:
    file = folder / "zkplan.db"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2 // _PAGE_BYTES * _PAGE_BYTES])


def put_a_text_there(folder: Path) -> None:
    (folder / "zkplan.db").write_text("Dear diary, today I was taken for a database.\n" * 20)


def empty_it(folder: Path) -> None:
    (folder / "zkplan.db").write_bytes(b"")


def put_another_database_there(folder: Path) -> None:
    (folder / "zkplan.db").unlink()
    with sqlite3.connect(folder / "zkplan.db") as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()


def lose_the_database_but_not_its_log(folder: Path) -> None:
    (folder / "zkplan.db").rename(folder / "zkplan.db-wal")


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (change_a_byte, StorageDamaged, "Restore a copy"),
        (cut_off_half, StorageDamaged, "Restore a copy"),
        (put_a_text_there, StorageDamaged, "Restore a copy"),
        (empty_it, StorageDamaged, "Restore a copy"),
        (put_another_database_there, StorageError, "folder of its own"),
        (lose_the_database_but_not_its_log, StorageDamaged, "is missing"),
    ],
)
def test_a_damaged_folder_is_refused_and_left_as_it_was(
    folder: Path, damage: Callable[[Path], None], error: type[StorageError], words: str
) -> None:
    damage(folder)
    before = contents(folder)
    for _ in range(2):
        with pytest.raises(error, match=words) as caught:
            EmbeddedServer(folder).start()
        assert str(folder) in str(caught.value)
        assert contents(folder) == before


def test_a_second_server_on_a_folder_is_refused_and_the_first_goes_on(folder: Path) -> None:
    with EmbeddedServer(folder) as first:
        with pytest.raises(StorageLocked, match="another server") as caught:
            EmbeddedServer(folder).start()
        assert first.hosts in str(caught.value), "it does not say where the first listens"
        client = KazooClient(first.hosts)
        client.start()
        client.create("/still-here")
        client.stop()
        client.close()


def test_the_log_of_a_killed_server_cannot_be_taken_away_unnoticed(folder: Path) -> None:
    """A deleted log is a valid older state: clients that saw a later one are turned away."""
    with EmbeddedServer(folder) as server:
        client = KazooClient(server.hosts)
        client.start()
        client.create("/only-in-the-log")
        killed = folder.with_name("killed")
        killed.mkdir()
        # What a power cut would leave, but for the log.
        (killed / "zkplan.db").write_bytes((folder / "zkplan.db").read_bytes())
        seen = client.last_zxid
        client.stop()
        client.close()
    with EmbeddedServer(killed) as older:
        late = KazooClient(older.hosts)
        late.last_zxid = seen
        with pytest.raises(late.handler.timeout_exception):
            late.start(timeout=2)
        late.stop()
        late.close()
