"""References to what several tasks of a plan share: large functions by value, and constants."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol.task_options import TaskOptions
from .blobs import DIGEST_BYTES, digest

#: The encoding of a reference. `values.codec` lists the others.
_SHARED = b"U"
_LENGTH = struct.Struct(">Q")


class SharedReference(NamedTuple):
    """`digest` is that of the shared bytes, in hexadecimal."""

    digest: str
    length: int

    def to_bytes(self) -> bytes:
        return _SHARED + bytes.fromhex(self.digest) + _LENGTH.pack(self.length)

    @classmethod
    def of(cls, body: bytes) -> SharedReference:
        return cls(digest([body]).hex(), len(body))

    @classmethod
    def from_bytes(cls, body: bytes) -> SharedReference:
        """Raises PayloadUndecodable."""
        if len(body) != 1 + DIGEST_BYTES + _LENGTH.size:
            raise PayloadUndecodable("the reference to what tasks share is damaged")
        (length,) = _LENGTH.unpack_from(body, 1 + DIGEST_BYTES)
        return cls(body[1 : 1 + DIGEST_BYTES].hex(), length)


def is_shared(body: bytes) -> bool:
    """Whether a value or a function (without its name) is a reference to what tasks share."""
    return body[:1] == _SHARED


def constants_of(options: TaskOptions) -> list[bytes]:
    """The references to the constants of a task, in the order of its values: after the edges'."""
    try:
        return [bytes.fromhex(each) for each in reversed(options.constants)]
    except ValueError:
        raise PayloadUndecodable("the constants of a task are damaged") from None
