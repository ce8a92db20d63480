"""A damaged, foreign or used data folder is refused with what to do, and left unchanged."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.tools import requests as ask
from tests.tools.rawsocket import Closed
from tests.tools.session import Client
from zkplan.embedded import EmbeddedServer, StorageDamaged, StorageError, StorageLocked, address_of

#: Files that each attempt rewrites: the holder of the folder, and SQLite's index of the log.
_SCRATCH = ("lock", "address", "zkplan.db-shm")
_PAGE_BYTES = 4096
FRAME_BYTES = 24 + _PAGE_BYTES
#: Clients of these tests do not log in.
opened = partial(EmbeddedServer, is_open=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of a server that was stopped after some writes."""
    data = tmp_path / "data"
    with opened(data) as server, Client(server.hosts) as client:
        for number in range(300):
            client.done(ask.create(f"/node-{number}", b"x" * 200))
    return data


def contents(folder: Path) -> dict[str, bytes]:
    """What is in the folder; an empty log is as good as none."""
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {name: data for name, data in found.items() if data and name not in _SCRATCH}


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


def lose_the_database(folder: Path) -> None:
    (folder / "zkplan.db").unlink()


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (change_a_byte, StorageDamaged, "Restore a copy"),
        (cut_off_half, StorageDamaged, "Restore a copy"),
        (put_a_text_there, StorageDamaged, "Restore a copy"),
        (empty_it, StorageDamaged, "Restore a copy"),
        (put_another_database_there, StorageError, "folder of its own"),
        (lose_the_database_but_not_its_log, StorageDamaged, "is missing but zkplan.db-wal exists"),
        (lose_the_database, StorageDamaged, "is missing but answered exists"),
    ],
)
def test_a_damaged_folder_is_refused_and_left_as_it_was(
    folder: Path, damage: Callable[[Path], None], error: type[StorageError], words: str
) -> None:
    damage(folder)
    before = contents(folder)
    for _ in range(2):
        with pytest.raises(error, match=words) as caught:
            opened(folder).start()
        assert str(folder) in str(caught.value)
        assert contents(folder) == before


def test_a_second_server_on_a_folder_is_refused_and_the_first_keeps_running(folder: Path) -> None:
    with opened(folder) as first:
        assert address_of(folder) == first.hosts
        with pytest.raises(StorageLocked, match="another server") as caught:
            opened(folder).start()
        assert caught.value.by_server
        for part in (str(folder), str(os.getpid()), first.hosts):
            assert part in str(caught.value)
        with Client(first.hosts) as client:
            client.done(ask.create("/still-here"))
    assert address_of(folder) is None


@pytest.fixture(params=["durable", "fast"])
def durability(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def killed(durability: str, tmp_path: Path) -> Path:
    """What `kill -9` leaves of a server that answered thirty creates since its last checkpoint."""
    data, copy = tmp_path / "data", tmp_path / "killed"
    with opened(data, durability=durability) as server, Client(server.hosts) as client:
        for number in range(30):
            client.done(ask.create(f"/{number}", b"x" * 3000))
        shutil.copytree(data, copy)
    return copy


def names_in(folder: Path) -> int:
    """How many of the thirty are there."""
    with opened(folder) as server, Client(server.hosts) as client:
        return sum(client.once(ask.exists(f"/{number}")).error == 0 for number in range(30))


def changed_at(place: int) -> Callable[[bytes], bytes]:
    return lambda log: log[:place] + bytes([log[place] ^ 1]) + log[place + 1 :]


#: Of each group of one create there are some frames; the last is part of the last group.
LOG_DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "taken away": lambda _: None,
    "emptied": lambda _: b"",
    "cut within its header": lambda log: log[:31],
    "cut behind its header": lambda log: log[:32],
    "cut in half": lambda log: log[: len(log) // 2],
    "without its last frame": lambda log: log[:-FRAME_BYTES],
    "without its last byte": lambda log: log[:-1],
    "with a zeroed end": lambda log: log[:-FRAME_BYTES] + bytes(FRAME_BYTES),
    "of other salts": changed_at(20),
    "changed in its middle": lambda log: changed_at(len(log) // 2)(log),
    "changed in its last frame": changed_at(-100),
}


@pytest.mark.parametrize("what", LOG_DAMAGE)
def test_a_log_that_lost_answered_writes_is_refused(killed: Path, what: str) -> None:
    log = killed / "zkplan.db-wal"
    damaged = LOG_DAMAGE[what](log.read_bytes())
    log.unlink()
    if damaged is not None:
        log.write_bytes(damaged)
    before = contents(killed)
    for _ in range(2):
        with pytest.raises(StorageDamaged, match="Restore a copy") as caught:
            opened(killed).start()
        assert str(killed) in str(caught.value)
        assert " log" in str(caught.value)
        assert contents(killed) == before


def test_a_torn_log_end_is_accepted_if_no_answered_write_is_lost(killed: Path) -> None:
    with (killed / "zkplan.db-wal").open("ab") as log:
        log.write(b"half a group" * 100)
    assert names_in(killed) == 30


def test_an_older_copy_of_the_database_alone_is_refused(folder: Path) -> None:
    older = (folder / "zkplan.db").read_bytes()
    with opened(folder) as server, Client(server.hosts) as client:
        client.done(ask.create("/newer"))
    (folder / "zkplan.db").write_bytes(older)
    with pytest.raises(StorageDamaged, match="is an older copy"):
        opened(folder).start()


def test_after_a_power_cut_only_a_durable_server_must_reach_its_answered_zxid(
    killed: Path, durability: str
) -> None:
    note = killed / "answered"
    zxid, _ = note.read_text().split()
    note.write_text(f"{zxid} the-boot-before\n")
    (killed / "zkplan.db-wal").unlink()
    if durability == "fast":
        assert names_in(killed) == 0
    else:
        with pytest.raises(StorageDamaged, match="cut or removed"):
            opened(killed).start()


@pytest.mark.parametrize("text", ["", "12 x\n", "no note"])
def test_an_answered_file_that_no_server_wrote_is_refused(folder: Path, text: str) -> None:
    (folder / "answered").write_text(text)
    with pytest.raises(StorageDamaged, match="its note answered was not written"):
        opened(folder).start()


def test_without_its_answered_file_a_folder_starts_but_ahead_clients_fail(killed: Path) -> None:
    (killed / "zkplan.db-wal").unlink()
    with pytest.raises(StorageDamaged, match=f"without the missing writes, delete {killed}"):
        opened(killed).start()
    (killed / "answered").unlink()
    assert names_in(killed) == 0
    with opened(killed) as older, pytest.raises(Closed):
        Client(older.hosts, zxid=31)


def test_an_unreadable_answered_file_is_reported_as_unreadable(folder: Path) -> None:
    (folder / "answered").unlink()
    (folder / "answered").mkdir()
    with pytest.raises(StorageError, match=r"reading .*zkplan.db failed: .*answered") as caught:
        opened(folder).start()
    assert type(caught.value) is StorageError
