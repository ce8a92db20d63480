"""Stored values: buffers beside the pickle, compression where it pays, and the cache."""

from __future__ import annotations

import os
import pickle
import secrets
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zkplan.values.blobs import COMPRESSED_MIN, SAMPLE_BYTES, Bytes, Cache, Part, encode
from zkplan.values.codec import load
from zkplan.values.plan_values import dumped, loaded
from zkplan.values.store import Store

numpy = pytest.importorskip("numpy", reason="pandas brings it: pip install zkplan[dask]")
SIZE = 8 * 1024 * 1024


def blob_of(value: Any) -> list[Bytes]:
    """The chunks that a store writes for a value."""
    body, buffers = dumped(value)
    views = [buffer.raw() for buffer in buffers]
    return encode([Part(body), *(Part(view, view.readonly) for view in views)])


def read(chunks: list[Bytes]) -> bytearray:
    """What a store gives for those chunks."""
    return bytearray(b"".join(chunks))


def noise() -> Any:
    """An array that cannot be compressed."""
    return numpy.frombuffer(bytearray(os.urandom(SIZE)), dtype=numpy.uint8)


def peak(call: Callable[[], Any]) -> tuple[Any, int]:
    """What the call gives, and how many bytes it needed at its peak, in sizes of the array."""
    tracemalloc.start()
    try:
        given = call()
        return given, round(tracemalloc.get_traced_memory()[1] / SIZE)
    finally:
        tracemalloc.stop()


# ---- buffers


@pytest.mark.parametrize("is_writable", [True, False])
def test_an_array_arrives_writable_or_not_as_it_left(is_writable: bool) -> None:
    array = noise()
    array.flags.writeable = is_writable
    arrived = loaded(load, read(blob_of({"array": array})), ())["array"]
    assert arrived.flags.writeable is is_writable
    assert (arrived == array).all()


def test_changing_a_received_array_does_not_change_the_blob() -> None:
    blob = read(blob_of(noise()))
    before = bytes(blob)
    loaded(load, blob, ())[:] = 0
    assert blob == before


@pytest.mark.parametrize(
    "array",
    [
        numpy.arange(12.0).reshape(3, 4)[:, ::2],
        numpy.arange(12).reshape(3, 4)[::-1],
        numpy.asfortranarray(numpy.arange(12).reshape(3, 4)),
        numpy.arange(0),
        numpy.array(["text", None, [1]], dtype=object),
    ],
    ids=["strided", "reversed", "by columns", "empty", "objects"],
)
def test_an_array_of_any_layout_arrives_with_the_same_values(array: Any) -> None:
    arrived = loaded(load, read(blob_of(array)), ())
    assert arrived.shape == array.shape
    assert arrived.dtype == array.dtype
    assert arrived.tolist() == array.tolist()


@pytest.mark.parametrize(
    "array",
    [
        numpy.broadcast_to(numpy.arange(500), (10_000, 500)),
        numpy.broadcast_to(numpy.arange(500)[:, None], (500, 10_000)),
        numpy.broadcast_to(numpy.arange(500)[::-1], (100, 100, 500)).T,
        numpy.broadcast_to(numpy.float64(1), (3000, 3000)),
    ],
    ids=["rows", "columns", "turned", "one number"],
)
def test_an_array_that_repeats_its_data_is_stored_without_the_repetition(array: Any) -> None:
    chunks = blob_of([array])
    (arrived,) = loaded(load, read(chunks), ())
    assert sum(map(len, chunks)) < 6000
    assert (arrived.dtype, arrived.shape) == (array.dtype, array.shape)
    assert (arrived == array).all()
    assert not arrived.flags.writeable


def test_writable_rows_that_share_memory_arrive_as_independent_rows() -> None:
    rows = numpy.lib.stride_tricks.as_strided(numpy.zeros(3), (2, 3), (0, 8))
    arrived = loaded(load, read(blob_of(rows)), ())
    arrived[0] = 1
    assert arrived.tolist() == [[1, 1, 1], [0, 0, 0]]


class Strided:
    """Gives a buffer that is not contiguous, which numpy never does."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return bytes, (pickle.PickleBuffer(memoryview(self.data)[::2]),)


def test_a_non_contiguous_buffer_is_refused_and_not_truncated() -> None:
    with pytest.raises(Exception, match="contiguous"):
        blob_of(Strided(b"0123456789"))


def test_a_large_array_is_not_copied_on_its_way_to_the_store() -> None:
    array = noise()
    chunks, needed = peak(lambda: blob_of([array]))
    assert needed == 0
    assert any(numpy.shares_memory(numpy.frombuffer(chunk, numpy.uint8), array) for chunk in chunks)


@pytest.mark.parametrize(("is_writable", "copies"), [(True, 1), (False, 0)])
def test_a_received_array_is_copied_once_if_it_is_writable(is_writable: bool, copies: int) -> None:
    array = noise()
    array.flags.writeable = is_writable
    blob = read(blob_of(array))
    arrived, needed = peak(lambda: loaded(load, blob, ()))
    assert needed == copies
    assert numpy.shares_memory(arrived, numpy.frombuffer(blob, numpy.uint8)) is not is_writable


# ---- compression


def file_size(folder: Path, value: Any) -> int:
    Store(f"file://{folder}/store").write("plan-1", "a-00", blob_of(value))
    return (folder / "store" / "plan-1" / "a-00").stat().st_size


def test_compressible_data_are_smaller_in_the_file_and_arrive_whole(tmp_path: Path) -> None:
    for value in (b"text " * 100_000, numpy.arange(100_000)):
        size = len(value) * getattr(value, "itemsize", 1)
        assert file_size(tmp_path, value) < size / 3
        found = Store(f"file://{tmp_path}/store").read("plan-1", "a-00")
        assert numpy.array_equal(loaded(load, found, ()), value)


def test_incompressible_data_are_stored_uncompressed(tmp_path: Path) -> None:
    data = secrets.token_bytes(500_000)
    assert len(data) <= file_size(tmp_path, data) < len(data) + 200
    assert encode([Part(data)])[1] is data


@pytest.mark.parametrize(
    "data",
    [b"x" * (COMPRESSED_MIN - 1), b"x" * SAMPLE_BYTES + secrets.token_bytes(30 * SAMPLE_BYTES)],
    ids=["short", "only its beginning can be compressed"],
)
def test_data_that_would_not_shrink_much_are_stored_uncompressed(data: bytes) -> None:
    assert encode([Part(data)])[1] is data


# ---- the cache


def test_the_cache_never_holds_more_than_its_bound() -> None:
    cache, sizes = Cache(1000), [400, 300, 500, 100, 499, 1, 250]
    held: list[int] = []
    for at in range(len(sizes)):
        cache.put(str(at), bytes(sizes[at]))
        held.append(sum(len(cache.get(str(each)) or b"") for each in range(at + 1)))
    assert held == [400, 700, 800, 900, 599, 600, 850]


def test_the_least_recently_used_blob_is_evicted_first() -> None:
    cache = Cache(100)
    for name in "abc":
        cache.put(name, bytes(30))
    assert cache.get("a") == bytes(30)
    cache.put("d", bytes(30))
    assert [name for name in "abcd" if cache.get(name) is not None] == ["a", "c", "d"]


def test_a_blob_that_would_evict_many_others_is_not_cached() -> None:
    cache = Cache(100)
    cache.put("a", bytes(50))
    cache.put("large", bytes(51))
    assert cache.entry_bytes_max == 50
    assert (cache.get("a"), cache.get("large")) == (bytes(50), None)


def test_a_blob_put_into_the_cache_twice_counts_once() -> None:
    cache = Cache(100)
    for _ in range(3):
        cache.put("a", bytes(40))
    cache.put("b", bytes(40))
    assert cache.get("a") is not None
    assert cache.get("b") is not None
