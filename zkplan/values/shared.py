"""References to what several tasks of a plan share: large functions by value, and constants."""

from __future__ import annotations

import secrets
import struct
import threading
from collections import OrderedDict
from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol.task_options import TaskOptions
from .blobs import DIGEST_BYTES, digest

#: The encoding of a reference. `values.codec` lists the others.
_SHARED = b"U"
_NAME_BYTES = 16
_LENGTH = struct.Struct(">Q")
_DIGEST_AT = 1 + _NAME_BYTES
_LENGTH_AT = _DIGEST_AT + DIGEST_BYTES


class SharedReference(NamedTuple):
    """`name` is that of the znodes, and `digest` that of the shared bytes, both hexadecimal."""

    name: str
    digest: str
    length: int

    def to_bytes(self) -> bytes:
        found = bytes.fromhex(self.name) + bytes.fromhex(self.digest)
        return _SHARED + found + _LENGTH.pack(self.length)

    @classmethod
    def new(cls, body: bytes) -> SharedReference:
        """One that nobody has used before."""
        return cls(secrets.token_hex(_NAME_BYTES), digest([body]).hex(), len(body))

    @classmethod
    def from_bytes(cls, body: bytes) -> SharedReference:
        """Raises PayloadUndecodable."""
        if len(body) != _LENGTH_AT + _LENGTH.size:
            raise PayloadUndecodable("the reference to what tasks share is damaged")
        name, digested = body[1:_DIGEST_AT].hex(), body[_DIGEST_AT:_LENGTH_AT].hex()
        return cls(name, digested, _LENGTH.unpack_from(body, _LENGTH_AT)[0])


def is_shared(body: bytes) -> bool:
    """Whether a value or a function (without its name) is a reference to what tasks share."""
    return body[:1] == _SHARED


def constants_of(options: TaskOptions) -> list[bytes]:
    """The references to the constants of a task, in the order of its values: after the edges'."""
    try:
        return [bytes.fromhex(each) for each in reversed(options.constants)]
    except ValueError:
        raise PayloadUndecodable("the constants of a task are damaged") from None


class KnownShared:
    """What a client knows to lie in plans that take tasks, so that it is not written twice.
    Thread-safe."""

    def __init__(self, most: int = 10_000) -> None:
        self._most, self._lock = most, threading.Lock()
        #: By the path of the plan, the digest and the length.
        self._known: OrderedDict[tuple[str, str, int], SharedReference] = OrderedDict()

    def get(self, plan_path: str, digest: str, length: int) -> SharedReference | None:
        with self._lock:
            return self._known.get((plan_path, digest, length))

    def add(self, plan_path: str, reference: SharedReference) -> None:
        with self._lock:
            self._known[plan_path, reference.digest, reference.length] = reference
            while len(self._known) > self._most:
                self._known.popitem(last=False)
