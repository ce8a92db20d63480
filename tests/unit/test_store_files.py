"""A store on a local folder and on another file system of fsspec: its contents and its errors."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from zkplan.basics.settings_fields import INLINE_LIMIT_MAX
from zkplan.errors import StoredValueLost, StoreUnavailable, ZkplanError
from zkplan.testing.server_process import free_port
from zkplan.values.store import Store


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    url = f"file://{tmp_path}/store" if request.param == "file" else "memory://store"
    return Store(f"{url}/{secrets.token_hex(4)}")


def test_written_blobs_are_read_and_listed(store: Store) -> None:
    store.write("plan-1", "a-00", [b"one", bytearray(b"two"), memoryview(b"three")])
    store.write("plan-1", "b-00", (part for part in (b"x", b"y")))
    assert bytes(store.read("plan-1", "a-00")) == b"onetwothree"
    assert bytes(store.read("plan-1", "b-00")) == b"xy"
    assert store.names("plan-1") == ["a-00", "b-00"]
    assert store.names("plan-2") == []


def test_deleting_blobs_and_folders_succeeds_even_if_they_are_gone(store: Store) -> None:
    for name in ("a-00", "b-00"):
        store.write("plan-1", name, [b"data"])
    store.write("plan-2", "a-00", [b"data"])
    store.delete("plan-1", ["a-00", "gone"])
    assert store.names("plan-1") == ["b-00"]
    for _ in range(2):
        store.delete_folder("plan-1")
        assert store.names("plan-1") == []
    assert store.names("plan-2") == ["a-00"]


def test_a_missing_blob_is_distinguished_from_a_wrong_store(store: Store) -> None:
    with pytest.raises(StoreUnavailable, match="another store"):
        store.read("plan-1", "a-00")
    store.write("plan-1", "b-00", [b"data"])
    with pytest.raises(StoredValueLost, match="plan-1/a-00"):
        store.read("plan-1", "a-00")


def test_a_store_has_one_id_that_stays_and_another_store_is_named(store: Store) -> None:
    assert store.ids() == []
    mine = store.identity()
    store.write("plan-1", "a-00", [b"data"])
    again = Store(store.url)
    assert [again.identity(), again.ids(), len(mine)] == [mine, [mine], 16]
    with pytest.raises(StoredValueLost, match="plan-1/b-00"):
        again.read("plan-1", "b-00", mine)
    with pytest.raises(StoreUnavailable) as other:
        again.read("plan-1", "b-00", "00ff" * 4)
    for said in (f"{store.url} (ID {mine}) is another store", "(ID 00ff00ff00ff00ff)", "--store"):
        assert said in str(other.value)


def test_two_clients_that_name_a_store_at_the_same_time_both_know_both_ids(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has seen none before the other one wrote."""
    stores = [store, Store(store.url)]
    for each in stores:
        with monkeypatch.context() as before:
            before.setattr(each, "ids", list)
            each.identity()
    found = [each.identity() for each in stores]
    assert found[0] != found[1]
    for reader in (*stores, Store(store.url)):
        assert reader.ids() == sorted(found)


def test_the_empty_folder_below_a_mount_point_is_not_taken_for_the_store(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}/store")
    store.identity()
    (tmp_path / "store").rename(tmp_path / "unmounted")
    (tmp_path / "store").mkdir()
    with pytest.raises(StoreUnavailable, match="unmounted perhaps"):
        store.write("plan-1", "a-00", [b"one"])
    assert list((tmp_path / "store").iterdir()) == []


def test_an_unreachable_store_is_named_with_what_was_to_be_done(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    store = Store(f"file://{tmp_path}/store")
    for attempt in (
        lambda: store.write("plan-1", "a-00", [b"data"]),
        lambda: store.read("plan-1", "a-00"),
        lambda: store.names("plan-1"),
        lambda: store.delete("plan-1", ["a-00"]),
    ):
        with pytest.raises(StoreUnavailable, match=f"{tmp_path}/store"):
            attempt()


def test_a_failed_write_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}/store")
    with pytest.raises(StoreUnavailable):
        store.write("plan-1", "a-00", [b"data", 7])  # type: ignore[list-item]
    assert list((tmp_path / "store" / "plan-1").iterdir()) == []


@pytest.mark.parametrize("limit", [-1, INLINE_LIMIT_MAX + 1, 1.5, True])
def test_a_limit_out_of_range_is_refused(limit: int, tmp_path: Path) -> None:
    with pytest.raises(ZkplanError, match="inline_limit"):
        Store(f"file://{tmp_path}", limit)


def test_an_unknown_kind_of_url_is_refused_with_what_to_do() -> None:
    with pytest.raises(ZkplanError, match="file:///FOLDER"):
        Store("nothing://of/that")


def test_an_unreachable_store_server_is_named_without_the_password() -> None:
    with pytest.raises(
        StoreUnavailable, match=r"ftp://\S+127\.0\.0\.1.* cannot be reached"
    ) as caught:
        Store(f"ftp://me:hidden@127.0.0.1:{free_port()}")
    assert "hidden" not in str(caught.value)


def test_a_store_folder_that_has_vanished_is_not_created_again(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}/store")
    store.write("plan-1", "a-00", [b"one"])
    (tmp_path / "store").rename(tmp_path / "unmounted")
    with pytest.raises(StoreUnavailable, match="is gone"):
        store.write("plan-1", "b-00", [b"two"])
    (tmp_path / "unmounted").rename(tmp_path / "store")
    store.write("plan-1", "b-00", [b"two"])
    assert store.names("plan-1") == ["a-00", "b-00"]


def test_a_write_reports_that_the_folder_of_its_plan_was_deleted_meanwhile(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}/store")
    store.write("plan-1", "a-00", [b"data"])

    def removed_meanwhile() -> Iterator[bytes]:
        yield b"one"
        store.delete_folder("plan-1")
        yield b"two"

    with pytest.raises(StoreUnavailable, match=r"b-00 is not written .* plan-1 was deleted"):
        store.write("plan-1", "b-00", removed_meanwhile())
    assert store.names("plan-1") == []
