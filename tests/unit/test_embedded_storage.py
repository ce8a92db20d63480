"""The data folder of the embedded server: exactly the committed groups are loaded."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from zkplan.embedded import folding
from zkplan.embedded.database import (
    FORMAT,
    FolderLock,
    StorageDamaged,
    StorageError,
    StorageLocked,
    address_of,
)
from zkplan.embedded.operations import NO_DATA, OPEN_ACL, Acl
from zkplan.embedded.sessions import SavedSession
from zkplan.embedded.storage import Storage
from zkplan.embedded.znodes import Node

from .storage_story import EMPTY, Picture, fields, picture, save, story

DATABASE, LOG = "zkplan.db", "zkplan.db-wal"


def load(folder: Path) -> Picture:
    storage = Storage(folder)
    try:
        return picture(storage.load())
    finally:
        storage.close()


def opened(folder: Path, sync: bool = True) -> Storage:
    storage = Storage(folder, sync)
    storage.load()
    return storage


def written(folder: Path, groups: int, seed: int = 1) -> Picture:
    storage = opened(folder)
    for group in story(groups, seed):
        save(storage, group)
    storage.close()
    return group.after


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_a_fresh_folder_is_empty_and_stays_so(tmp_path: Path) -> None:
    assert load(tmp_path / "new" / "data") == EMPTY
    assert load(tmp_path / "new" / "data") == EMPTY


EXTREMES = [
    Node(b"", 0, 0, 0, 0),
    Node(b"", -(2**63), 2**63 - 1, -(2**63), 2**40, OPEN_ACL),
    Node(bytes(range(256)) * 4096, -1, 1, 2, 2**62, (Acl(0, "auth", ""),)),
    Node(b"\0" * 1024, 1, 1, 2, 7, ()),
    Node(b"\xff" * 1025, 1, 1, 2, 8, (Acl(31, "digest", "J\xfcrgen:\u96ea"),) * 500),
    Node(NO_DATA, 1, 1, 2, 9),
]


@pytest.mark.parametrize("node", EXTREMES, ids=range(len(EXTREMES)))
def test_every_stored_field_is_loaded_back(tmp_path: Path, node: Node) -> None:
    node.version, node.aversion, node.creates = -(2**31), 2**31 - 1, 2**31 - 1
    node.pzxid = node.czxid ^ 1
    path = "/\u00e4/" + "\U0001f600" * 3000
    sessions = [SavedSession(-(2**63), b"", 2**31), SavedSession(2**63 - 1, b"\0" * 16, 0)]
    storage = opened(tmp_path)
    storage.commit(
        zxid=2**63 - 1,
        last_session=-(2**63),
        nodes=[(node.number, path, node)],
        sessions=[(each.id, each) for each in sessions],
    )
    storage.close()
    zxid, last_session, nodes, loaded = load(tmp_path)
    if node.acl == OPEN_ACL:
        node.acl = None  # the two mean the same
    assert (zxid, last_session) == (2**63 - 1, -(2**63))
    assert nodes == {node.number: (path, fields(node))}
    assert loaded == {each.id: each for each in sessions}


@pytest.fixture(params=["rarely", "often"])
def folds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How often the tables follow the log; often, a fold takes some commits."""
    if request.param == "often":
        monkeypatch.setattr(folding, "FOLD_NODES", 60)
        monkeypatch.setattr(folding, "NODES_PER_COMMIT", 25)


@pytest.mark.usefixtures("folds")
@pytest.mark.parametrize("seed", range(8))
def test_groups_of_all_kinds_are_loaded_back_after_each_restart(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    storage = opened(tmp_path)
    for group in story(120, seed):
        save(storage, group)
        if chance.random() < 0.1:
            storage.close()
            storage = Storage(tmp_path, sync=chance.random() < 0.5)
            assert picture(storage.load()) == group.after
    storage.close()
    assert load(tmp_path) == group.after


def test_what_comes_and_goes_is_never_in_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "FOLD_NODES", 10)
    storage = opened(tmp_path)
    for number in range(1, 101):
        node = Node(b"", 0, number, 0, number)
        gone = [(number - 1, f"/{number - 1}", None)] if number > 1 else []
        changes = [*gone, (number, f"/{number}", node)]
        storage.commit(zxid=number, last_session=0, nodes=changes)
    storage.close()
    with sqlite3.connect(tmp_path / DATABASE) as reader:
        assert reader.execute("SELECT count(*) FROM nodes").fetchone() == (0,)
    reader.close()
    assert load(tmp_path)[2] == {100: ("/100", fields(node))}


def test_the_number_of_a_deleted_node_may_be_used_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "FOLD_NODES", 3)
    storage = opened(tmp_path)
    made = [(number, f"/{number}", Node(b"", 0, 1, 0, number)) for number in range(1, 4)]
    storage.commit(zxid=1, last_session=0, nodes=made)  # all are in the tables
    storage.commit(zxid=2, last_session=0, nodes=[(3, "/3", None), (2, "/2", None)])
    storage.close()
    storage = opened(tmp_path)
    again = [(number, f"/b{number}", Node(b"", 0, 3, 0, number)) for number in range(2, 6)]
    storage.commit(zxid=3, last_session=0, nodes=again)
    storage.close()
    storage = Storage(tmp_path)
    assert [number for number, *_ in storage.load().nodes] == [1, 2, 3, 4, 5]
    storage.close()


@pytest.mark.usefixtures("folds")
def test_large_data_is_not_rewritten_for_a_new_child(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    parent = Node(b"x" * 1_000_000, 0, 1, 1, 1)
    storage.commit(zxid=1, last_session=0, nodes=[(1, "/p", parent)])
    before = bytes_in(tmp_path)
    for zxid in range(2, 12):
        parent.pzxid = zxid
        storage.commit(zxid=zxid, last_session=0, nodes=[(1, "/p", parent)])
    assert bytes_in(tmp_path) - before < 1_000_000
    parent.data, parent.mzxid = b"small", 12
    storage.commit(zxid=12, last_session=0, nodes=[(1, "/p", parent)])
    storage.close()
    assert load(tmp_path)[2] == {1: ("/p", fields(parent))}


@pytest.mark.parametrize("sync", [True, False], ids=["flushed", "fast"])
def test_a_log_cut_anywhere_loads_the_groups_before_the_cut(tmp_path: Path, sync: bool) -> None:
    storage = opened(tmp_path / "data", sync)
    pictures = [EMPTY]
    for group in story(12, sizes=(1, 2, 8)):
        save(storage, group)
        pictures.append(group.after)
    database = (tmp_path / "data" / DATABASE).read_bytes()
    log = (tmp_path / "data" / LOG).read_bytes()
    storage.close()
    frame = 24 + 4096
    chance = random.Random(5)
    cuts = [*range(32, len(log), frame), len(log), 0, 1, 31]
    cuts += [chance.randrange(len(log)) for _ in range(40)]
    found = []
    for cut in sorted(cuts):
        copy = tmp_path / f"cut-{cut}"
        copy.mkdir(exist_ok=True)
        (copy / DATABASE).write_bytes(database)
        (copy / LOG).write_bytes(log[:cut])
        found.append(pictures.index(load(copy)))
        shutil.rmtree(copy)
    assert found == sorted(found)
    assert set(found) == set(range(13))


def test_a_forked_child_neither_keeps_the_lock_nor_uses_the_folder(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    (heard, tell), (wait, end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            storage.commit(zxid=9, last_session=9, nodes=[])
        except StorageError:
            storage.close()
            os.write(tell, b"refused")
            os.read(wait, 1)  # alive while the parent closes and opens
        finally:
            os._exit(0)
    group = next(story(1))
    try:
        assert os.read(heard, 7) == b"refused"
        save(storage, group)
        storage.close()
        assert load(tmp_path) == group.after
    finally:
        os.write(end, b".")
        os.waitpid(child, 0)
        for each in (heard, tell, wait, end):
            os.close(each)


@pytest.mark.slow
def test_damage_to_the_files_of_a_killed_server_is_always_noticed(tmp_path: Path) -> None:
    storage = opened(tmp_path / "data")
    for group in story(15):
        save(storage, group)
    killed = tmp_path / "killed"
    shutil.copytree(tmp_path / "data", killed)
    storage.close()
    chance = random.Random(8)
    noticed = 0
    for number in range(120):
        copy = tmp_path / "copy"
        shutil.copytree(killed, copy)
        file = copy / chance.choice((DATABASE, LOG, LOG))
        damaged = bytearray(file.read_bytes())
        at = chance.randrange(len(damaged))
        if number % 3 == 0:
            del damaged[at:]
        elif number % 3 == 1:
            damaged[at] ^= 1 << chance.randrange(8)
        else:
            damaged[at : at + 5000] = bytes(len(damaged[at : at + 5000]))
        file.write_bytes(damaged)
        try:
            # Compared before: pytest would show for many seconds how two large pictures differ.
            whole = load(copy) == group.after
            assert whole, (number, at)
        except StorageDamaged:
            noticed += 1
        shutil.rmtree(copy)
    assert noticed > 60


def test_another_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    written(tmp_path, 1)
    with sqlite3.connect(tmp_path / DATABASE) as newer:
        newer.execute(f"PRAGMA user_version={FORMAT + 1}")
    newer.close()
    with pytest.raises(StorageError, match=rf"format {FORMAT + 1}, .* reads format {FORMAT}"):
        Storage(tmp_path)


@pytest.mark.parametrize(
    "doing",
    [
        ["PRAGMA locking_mode=EXCLUSIVE", "BEGIN IMMEDIATE"],
        ["PRAGMA locking_mode=EXCLUSIVE", "SELECT * FROM state"],
        ["BEGIN", "SELECT * FROM state"],
    ],
    ids=["written", "kept open", "read"],
)
def test_a_database_open_in_another_program_is_reported_as_open(
    tmp_path: Path, doing: list[str]
) -> None:
    written(tmp_path, 1)
    other = sqlite3.connect(tmp_path / DATABASE, isolation_level=None)
    for statement in doing:
        other.execute(statement).fetchall()
    with pytest.raises(StorageLocked, match=r"another program has .*zkplan.db open") as caught:
        load(tmp_path)
    assert not caught.value.by_server
    assert "disk" not in str(caught.value)
    assert (tmp_path / LOG).exists(), "that of the other program"
    other.close()
    assert load(tmp_path) != EMPTY


def test_a_folder_without_write_permission_is_refused() -> None:
    folder = Path(tempfile.mkdtemp())
    user = os.geteuid()
    folder.chmod(0o555)
    try:
        if user == 0:
            os.seteuid(65534)  # permissions do not bind the superuser
        with pytest.raises(StorageError, match=r"cannot use the data folder .*Permission denied"):
            Storage(folder)
    finally:
        os.seteuid(user)
        folder.rmdir()


def test_the_files_are_private(tmp_path: Path) -> None:
    storage = opened(tmp_path / "data")
    storage.publish_address("[::1]:1")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data").iterdir()}
    storage.close()
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_an_inconsistent_commit_ends_the_use_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "FOLD_NODES", 1)  # the tables follow with each commit
    storage = opened(tmp_path)
    first, second = story(2)
    save(storage, first)
    with pytest.raises(StorageError, match="of 1 nodes to change, the file has 0"):
        storage.commit(zxid=999, last_session=0, nodes=[(0, "/stranger", Node())])
    with pytest.raises(StorageError, match="accepts no more changes"):
        save(storage, second)
    storage.close()
    assert load(tmp_path) == first.after


def test_the_log_stays_small(tmp_path: Path) -> None:
    storage = opened(tmp_path, sync=False)
    for group in story(400):
        save(storage, group)
    assert (tmp_path / LOG).stat().st_size < 3 * 4096 * 1000
    storage.close()
    assert not (tmp_path / LOG).exists()


def test_two_servers_can_create_the_same_folder_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "data"
    exists = Path.exists

    def made_by_another(path: Path) -> bool:
        was_there = exists(path)
        if path == folder and not was_there:
            folder.mkdir(parents=True, exist_ok=True)
        return was_there

    monkeypatch.setattr(Path, "exists", made_by_another)
    assert load(folder) == EMPTY


ENDS_AFTER_A_FORK = """
import os, sys
from pathlib import Path
from zkplan.embedded.storage import Storage
storage = Storage(Path(sys.argv[1]))
last = storage.load().last_session
storage.commit(zxid=100, last_session=last, nodes=[])
if os.fork() == 0:
    sys.exit(0)  # the whole end of an interpreter, which closes what nobody refers to
os.wait()
storage.commit(zxid=101, last_session=last, nodes=[])
os.kill(os.getpid(), 9)
"""


def test_a_forked_child_that_ends_leaves_the_log_of_its_parent(tmp_path: Path) -> None:
    program = [sys.executable, "-c", ENDS_AFTER_A_FORK, str(tmp_path)]
    subprocess.run(program, cwd=Path(__file__).parents[2], timeout=30, check=False)
    storage = Storage(tmp_path)
    assert storage.load().zxid == 101
    storage.close()


def test_an_address_of_an_earlier_lock_holder_is_not_returned(tmp_path: Path) -> None:
    before = FolderLock(tmp_path)
    before.publish_address("127.0.0.1:1")
    assert address_of(tmp_path) == "127.0.0.1:1"
    # As a reader sees it while the next one has the lock and has not listened yet.
    (tmp_path / "lock").write_text("1\n")
    assert address_of(tmp_path) is None
    before.release()


def test_an_ipv6_address_is_written_in_brackets(tmp_path: Path) -> None:
    held = FolderLock(tmp_path)
    for told in ("::1:2181", "[::1]:2181"):
        held.publish_address(told)
        assert address_of(tmp_path) == "[::1]:2181"
    held.release()


def test_a_lock_is_released_even_if_its_address_cannot_be_removed(tmp_path: Path) -> None:
    held = FolderLock(tmp_path)
    (tmp_path / "address").mkdir()
    held.release()
    (tmp_path / "address").rmdir()
    FolderLock(tmp_path).release()
