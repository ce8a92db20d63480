"""Encode one stored value as a blob, name it by a reference, cache it, and read several ahead."""

from __future__ import annotations

import hashlib
import struct
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol import formats

DIGEST_BYTES = 16
#: Data are compressed if a sample of this size gets at least a tenth smaller.
SAMPLE_BYTES, PAYS = 64 * 1024, 0.9
#: Smaller parts are not compressed.
COMPRESSED_MIN = 1024
_COUNT = struct.Struct(">I")
#: Of each part: how it is stored, its stored length, its decoded length.
_PART = struct.Struct(">BQQ")
_PLAIN, _ZSTD, _READ_ONLY = 0, 1, 2

Bytes = bytes | bytearray | memoryview


class Part(NamedTuple):
    """The pickle (the first part) or one of its out-of-band buffers."""

    data: Bytes
    read_only: bool = True


def encode(parts: Sequence[Part]) -> list[Bytes]:
    """The chunks of the blob. Only compressed parts are copied."""
    heads, chunks = [], []
    for part in parts:
        stored = _compressed(part.data)
        kind = (_PLAIN if stored is part.data else _ZSTD) | (_READ_ONLY if part.read_only else 0)
        heads.append(_PART.pack(kind, len(stored), len(part.data)))
        chunks.append(stored)
    return [formats.BLOB + _COUNT.pack(len(parts)) + b"".join(heads), *chunks]


class Digest:
    """The digest in a reference, so that a damaged blob, or a wrong one, is never decoded.

    It is a truncated SHA-256, for which today's processors have instructions: all bytes of large
    values pass here, when they are written and when they are read.
    """

    def __init__(self) -> None:
        self._hashed = hashlib.sha256()

    def update(self, chunk: Bytes) -> None:
        self._hashed.update(chunk)

    def hex(self) -> str:
        return self._hashed.hexdigest()[: 2 * DIGEST_BYTES]


def digest(chunks: Sequence[Bytes]) -> bytes:
    """The digest of a whole blob.

    >>> digest([b"a", b"bc"]).hex()
    'ba7816bf8f01cfea414140de5dae2223'
    """
    found = Digest()
    for chunk in chunks:
        found.update(chunk)
    return bytes.fromhex(found.hex())


def decode(blob: Bytes) -> list[Bytes]:
    """The parts of a blob. Writable parts are copies, and writable again.

    Raises OtherFormat, and PayloadUndecodable for bytes that `encode` did not make.
    """
    import zstandard  # here: most processes have no store

    view = memoryview(blob)
    try:
        magic = bytes(view[: len(formats.BLOB)])
        if magic != formats.BLOB:
            formats.require_magic(magic, formats.BLOB)
            raise PayloadUndecodable("the stored value is damaged")
        at = len(magic)
        (count,) = _COUNT.unpack_from(view, at)
        at += _COUNT.size
        body = at + count * _PART.size
        parts: list[Bytes] = []
        for _ in range(count):
            kind, stored, length = _PART.unpack_from(view, at)
            at += _PART.size
            data: Bytes = view[body : body + stored]
            body += stored
            if len(data) != stored:
                raise PayloadUndecodable("the stored value is too short")
            if kind & _ZSTD:
                data = zstandard.ZstdDecompressor().decompress(data, max_output_size=length)
            if len(data) != length:
                raise PayloadUndecodable("a part of the stored value has the wrong length")
            read_only = kind & _READ_ONLY
            parts.append(memoryview(data).toreadonly() if read_only else bytearray(data))
        return parts
    except (struct.error, zstandard.ZstdError) as error:
        raise PayloadUndecodable(f"the stored value is damaged: {error}") from None


def _compressed(data: Bytes) -> Bytes:
    if len(data) < COMPRESSED_MIN:
        return data
    import zstandard

    compressor = zstandard.ZstdCompressor(level=1)
    sample = memoryview(data)[:SAMPLE_BYTES]
    if len(compressor.compress(sample)) > PAYS * len(sample):
        return data
    found = compressor.compress(data)
    return found if len(found) <= PAYS * len(data) else data


# ---- The reference to a stored value in the tree: its name in the plan's folder, its length and
# digest, and the store that has it.


#: The encoding of a value that is a reference. `values.codec` lists the others.
STORED = b"S"
#: The key of an author's blobs, and the ending of the name of a blob that is being written.
ADDED, PART = "add", ".part"
#: The key of the parts of a plan's history: see `store_maintenance`.
HISTORY = "history"
_LENGTH = struct.Struct(">Q")
#: The length of a store's ID, which people see in hexadecimal.
ID_BYTES = 8
_HEAD = 1 + 16 + _LENGTH.size + ID_BYTES


class Reference(NamedTuple):
    """`key` says who wrote the blob: `TASK.N` an attempt, `add` an author. `store` is the ID of the
    store that has it; unknown for parts of a history."""

    key: str
    digest: bytes
    length: int
    store: str = ""

    @property
    def name(self) -> str:
        """The name of the blob."""
        return f"{self.key}-{self.digest.hex()}"

    def to_bytes(self) -> bytes:
        store = bytes.fromhex(self.store)
        return STORED + self.digest + _LENGTH.pack(self.length) + store + self.key.encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> Reference:
        """Raises PayloadUndecodable. A key that could lead out of the plan's folder is refused."""
        key = body[_HEAD:].decode(errors="replace")
        if len(body) <= _HEAD or not all(part.isalnum() for part in key.split(".")):
            raise PayloadUndecodable("the reference to a stored value is damaged")
        store = body[_HEAD - ID_BYTES : _HEAD].hex()
        return cls(key, body[1:17], _LENGTH.unpack_from(body, 17)[0], store)


def key_of(name: str) -> str:
    """The key in the name of a blob.

    >>> key_of("0000000012.1-00ff")
    '0000000012.1'
    """
    return name.partition("-")[0]


def digest_of(name: str) -> str:
    """The digest in the name of a blob.

    >>> digest_of("0000000012.1-00ff")
    '00ff'
    """
    return name.rpartition("-")[2]


def value_size(body: bytes) -> int:
    """The size of a value in bytes; if it is in the store, its stored size."""
    try:
        return Reference.from_bytes(body).length if is_stored(body) else len(body)
    except PayloadUndecodable:
        return len(body)


def is_stored(body: bytes) -> bool:
    """Whether a value (without its name) is a reference."""
    return body[:1] == STORED


# ---- A cache of the blobs that were last read or written here.


CACHE_BYTES_MAX = 128 * 1024 * 1024


class Cache:
    """Blobs by name. Thread-safe. Do not change what it returns."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        #: Larger blobs are not kept: they would displace too many others.
        self.entry_bytes_max = bytes_max // 2
        self._lock = threading.Lock()
        self._blobs: OrderedDict[str, Bytes] = OrderedDict()
        self._bytes = 0

    def get(self, name: str) -> Bytes | None:
        with self._lock:
            found = self._blobs.get(name)
            if found is not None:
                self._blobs.move_to_end(name)
            return found

    def put(self, name: str, blob: Bytes) -> None:
        """Keep a blob, unless it is larger than `entry_bytes_max`."""
        if len(blob) > self.entry_bytes_max:
            return
        with self._lock:
            if name in self._blobs:
                return
            self._blobs[name] = blob
            self._bytes += len(blob)
            while self._bytes > self._bytes_max:
                _, oldest = self._blobs.popitem(last=False)
                self._bytes -= len(oldest)


# ---- Read several blobs ahead of their turn, at the same time.


#: Returns the bytes of one blob. Raises as `Values.blob`.
Read = Callable[[], Bytes]
#: The maximum of blobs read at once, or held before their turn.
READERS = 8
#: The maximum of values that wait for their turn because one before them is still being read.
WAITING_MAX = 256


def side_by_side(
    reads: Iterable[Read | None], is_wanted: Callable[[], bool] = lambda: True
) -> Iterator[Read | None]:
    """Yield the reads in order, after starting some on threads before their turn.

    Each yielded call returns what was read, or raises; None stays None. Each step of the iteration
    starts the next read. Nothing is read ahead while `is_wanted()` is False.
    """
    waiting, held = deque[Read | None](), 0
    pool: ThreadPoolExecutor | None = None
    try:
        for read in reads:
            if read is None or not is_wanted():
                waiting.append(read)
            else:
                pool = pool or ThreadPoolExecutor(READERS, "zkplan-store")
                waiting.append(pool.submit(read).result)
            held += read is not None
            while waiting and (
                waiting[0] is None
                or held >= READERS
                or len(waiting) >= WAITING_MAX
                or not is_wanted()
            ):
                first = waiting.popleft()
                held -= first is not None
                yield first
        yield from waiting
    finally:
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
