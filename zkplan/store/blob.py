"""The bytes of one stored value: a pickle and its buffers, compressed where that pays."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol import formats

DIGEST_BYTES = 16
#: A sample of this size says whether compression pays: it must save a tenth.
SAMPLE_BYTES, PAYS = 64 * 1024, 0.9
#: Smaller parts are not compressed.
COMPRESSED_MIN = 1024
_COUNT = struct.Struct(">I")
#: Of each part: how it is stored, its length as stored, its length when it is decoded.
_PART = struct.Struct(">BQQ")
_PLAIN, _ZSTD, _READ_ONLY = 0, 1, 2

Bytes = bytes | bytearray | memoryview


class Part(NamedTuple):
    """The pickle (the first part) or one of its out-of-band buffers."""

    data: Bytes
    read_only: bool = True


def encode(parts: Sequence[Part]) -> list[Bytes]:
    """The chunks of the blob, in order. Parts that are not compressed are not copied."""
    heads, chunks = [], []
    for part in parts:
        stored = _compressed(part.data)
        kind = (_PLAIN if stored is part.data else _ZSTD) | (_READ_ONLY if part.read_only else 0)
        heads.append(_PART.pack(kind, len(stored), len(part.data)))
        chunks.append(stored)
    return [formats.BLOB + _COUNT.pack(len(parts)) + b"".join(heads), *chunks]


class Digest:
    """What a reference says of the blob, so that a damaged or another one is never decoded.

    SHA-256, cut: processors of today have instructions for it, and all bytes of large values pass
    here, when they are written and when they are read.
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
    """The parts. Those that were writable are writable here, as copies of their own.

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
                raise PayloadUndecodable("the stored value has a part of another length")
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
