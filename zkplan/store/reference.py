"""What stands in the tree for a stored value: its name in the plan's folder, its length and digest,
and the store that it was written to.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..errors import PayloadUndecodable

#: The encoding of a value that is a reference. `serialization.codec` lists the others.
STORED = b"S"
#: The key of the blobs of an author, and how the name of a blob ends that is being written.
ADDED, PART = "add", ".part"
#: The key of the parts of a plan's history: see `parts`.
HISTORY = "history"
_LENGTH = struct.Struct(">Q")
#: The ID of a store has so many bytes, and stands in hexadecimal where people read it.
ID_BYTES = 8
_HEAD = 1 + 16 + _LENGTH.size + ID_BYTES


class Reference(NamedTuple):
    """`key` says who wrote the blob: `TASK.N` an attempt, `add` an author. `store` is the ID of the
    store that it was written to; the name of a part of a history does not say it."""

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
    """The size of a value in bytes, also if it lies in the store (as it is stored there)."""
    try:
        return Reference.from_bytes(body).length if is_stored(body) else len(body)
    except PayloadUndecodable:
        return len(body)


def is_stored(body: bytes) -> bool:
    """Whether a value (without its name) is a reference."""
    return body[:1] == STORED
