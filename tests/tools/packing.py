"""ZooKeeper's records as bytes and back, written for these tests alone.

Nothing of zkplan is used: a mistake in the server's own packing cannot hide in the same mistake
here.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

EVENT_XID, PING_XID, AUTH_XID, SET_WATCHES_XID = -1, -2, -4, -8

#: For each request: opcode, the fields it sends, the fields of its answer.
REQUESTS: dict[str, tuple[int, str, str]] = {
    "create": (1, "path data acls int", "path"),
    "delete": (2, "path int", ""),
    "exists": (3, "path bool", "stat"),
    "get": (4, "path bool", "data stat"),
    "set": (5, "path data int", "stat"),
    "get_acl": (6, "path", "acls stat"),
    "set_acl": (7, "path acls int", "stat"),
    "children": (8, "path bool", "names"),
    "sync": (9, "path", "path"),
    "ping": (11, "", ""),
    "children2": (12, "path bool", "names stat"),
    "check": (13, "path int", ""),
    "multi": (14, "asks", "results"),
    "create2": (15, "path data acls int", "path stat"),
    "check_watches": (17, "path int", ""),
    "remove_watches": (18, "path int", ""),
    "container": (19, "path data acls int", "path stat"),
    "ttl": (21, "path data acls int long", "path stat"),
    "multi_read": (22, "asks", "results"),
    "auth": (100, "int path data", ""),
    "set_watches": (101, "zxid paths paths paths", ""),
    "ephemerals": (103, "path", "names"),
    "count": (104, "path", "int"),
    "set_watches2": (105, "zxid paths paths paths paths paths", ""),
    "add_watch": (106, "path int", "int"),
    "who_am_i": (107, "", "identities"),
    "close": (-11, "", ""),
}
#: The fields of each result of a multi, by its opcode.
RESULTS = {1: "path", 15: "path stat", 2: "", 5: "stat", 13: "", 4: "data stat", 8: "names"}
_ERROR_RESULT = -1
_FIXED_XIDS = {"auth": AUTH_XID, "set_watches": SET_WATCHES_XID, "set_watches2": SET_WATCHES_XID}
_STAT = struct.Struct(">qqqqiiiqiiq")


class Ask(NamedTuple):
    """One request; `op` is a name of REQUESTS, or 'opcode' with a number as its only value.

    A path is text, or bytes that are no text, or None; `cut` bytes are missing at its end.
    """

    op: str
    values: tuple[Any, ...] = ()
    cut: int = 0

    @property
    def path(self) -> Any:
        """What it is about, where its first value says so."""
        return self.values[0]


class Stat(NamedTuple):
    """What a server says of a node; the names are ZooKeeper's."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class Broken(ValueError):
    """The bytes are no such record."""


def hello(
    *,
    session: int = 0,
    password: bytes = bytes(16),
    timeout_ms: int = 10_000,
    zxid: int = 0,
    tail: bytes = b"\0",
) -> bytes:
    """The body of the first frame; `tail` is the read-only byte, or nothing."""
    head = struct.pack(">iqiqi", 0, zxid, timeout_ms, session, len(password))
    return head + password + tail


def xid_of(ask: Ask, xid: int) -> int:
    """The xid under which it is sent: that of its place, or the one fixed for its kind."""
    return _FIXED_XIDS.get(ask.op, xid)


def request(ask: Ask, xid: int) -> bytes:
    """The body of its frame."""
    if ask.op == "opcode":
        return struct.pack(">ii", xid, ask.values[0])
    code, fields, _ = REQUESTS[ask.op]
    body = struct.pack(">ii", xid_of(ask, xid), code) + _packed(fields, ask.values)
    return body[: len(body) - ask.cut] if ask.cut else body


def _packed(fields: str, values: tuple[Any, ...]) -> bytes:
    kinds = fields.split()
    assert len(kinds) == len(values), (fields, values)
    return b"".join(_field(kind, value) for kind, value in zip(kinds, values, strict=True))


def _field(kind: str, value: Any) -> bytes:
    match kind:
        case "int":
            return struct.pack(">i", value)
        case "long" | "zxid":
            return struct.pack(">q", value)
        case "bool":
            return b"\x01" if value else b"\x00"
        case "path" | "data":
            return _text(value)
        case "paths":
            return struct.pack(">i", len(value)) + b"".join(map(_text, value))
        case "acls":
            if value is None:
                return struct.pack(">i", -1)
            entries = (struct.pack(">i", p) + _text(s) + _text(i) for p, s, i in value)
            return struct.pack(">i", len(value)) + b"".join(entries)
        case _:
            return b"".join(map(_part, value)) + struct.pack(">i?i", -1, True, -1)


def _part(ask: Ask) -> bytes:
    code, fields, _ = REQUESTS[ask.op]
    return struct.pack(">i?i", code, False, -1) + _packed(fields, ask.values)


def _text(value: str | bytes | None) -> bytes:
    if value is None:
        return struct.pack(">i", -1)
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return struct.pack(">i", len(data)) + data


class Reader:
    """Reads one frame from its beginning to its end."""

    def __init__(self, body: bytes) -> None:
        self.body, self.at = body, 0

    def take(self, form: str) -> tuple[Any, ...]:
        try:
            values = struct.unpack_from(form, self.body, self.at)
        except struct.error as error:
            raise Broken(f"{form} at {self.at} of {self.body!r}") from error
        self.at += struct.calcsize(form)
        return values

    def data(self) -> bytes | None:
        length = int(self.take(">i")[0])
        if length < 0:
            return None
        if self.at + length > len(self.body):
            raise Broken(f"{length} bytes at {self.at} of {self.body!r}")
        self.at += length
        return self.body[self.at - length : self.at]

    def text(self) -> str | None:
        data = self.data()
        return None if data is None else data.decode("utf-8", "backslashreplace")

    def many(self, kind: str) -> list[Any] | None:
        length = int(self.take(">i")[0])
        return None if length < 0 else [self.field(kind) for _ in range(length)]

    def field(self, kind: str) -> Any:
        match kind:
            case "int":
                return self.take(">i")[0]
            case "path":
                return self.text()
            case "data":
                return self.data()
            case "stat":
                return Stat(*self.take(_STAT.format))
            case "acl":
                return (self.take(">i")[0], self.text(), self.text())
            case "identity":
                return (self.text(), self.text())
            case "names" | "acls" | "identities":
                return self.many({"names": "path", "acls": "acl", "identities": "identity"}[kind])
            case _:
                return self.results()

    def results(self) -> list[Any]:
        found: list[Any] = []
        while True:
            code, done, error = self.take(">i?i")
            if done:
                return [*found, ("end", code, error)]
            if code == _ERROR_RESULT:
                found.append(("error", error, self.field("int")))
            elif code in RESULTS:
                values = [self.field(kind) for kind in RESULTS[code].split()]
                found.append((code, error, *values))
            else:
                raise Broken(f"a result of kind {code}")

    def rest(self) -> bytes:
        """What is left: nothing, in a frame that is as it should be."""
        return self.body[self.at :]


def answer(ask: Ask, reader: Reader, error: int) -> dict[str, Any]:
    """The named fields after the header of an answer to `ask`."""
    if error or ask.op == "opcode":
        return {}
    return {kind: reader.field(kind) for kind in REQUESTS[ask.op][2].split()}
