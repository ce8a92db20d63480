"""Answers as bytes: what a server sends, each framed with its 4-byte length.

Pure. The bytes are those of a real server (3.8), also where its protocol is odd: the answer of a
refused multi says in its header that all is well, and carries an error for each operation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from zkplan.embedded import requests as ask
from zkplan.embedded.jute import INT, pack_acl, pack_buffer, pack_stat, pack_text, pack_texts
from zkplan.embedded.records import (
    Create,
    Created,
    Delete,
    Identity,
    NoNodeError,
    SetAcl,
    SetData,
    Stat,
    TreeError,
)
from zkplan.embedded.watches import CHANGED, CHILD, CREATED, DELETED

EVENT_XID: Final = -1
_CONNECTED: Final = 3
#: The operations after the culprit of a multi (RuntimeInconsistency).
_NOT_TRIED: Final = -2
_EVENT_TYPES: Final = {CREATED: 1, DELETED: 2, CHANGED: 3, CHILD: 4}

_FRAME: Final = struct.Struct("!iiqi")
_FRAME_BYTES: Final = _FRAME.size - INT.size
_CONNECT: Final = struct.Struct("!iiq")
_MULTI_HEADER: Final = struct.Struct("!i?i")
_MULTI_END: Final = _MULTI_HEADER.pack(-1, True, -1)
_CREATE_HEADER: Final = _MULTI_HEADER.pack(1, False, 0)
_CREATE2_HEADER: Final = _MULTI_HEADER.pack(15, False, 0)
_DELETE_HEADER: Final = _MULTI_HEADER.pack(2, False, 0)
_SET_DATA_HEADER: Final = _MULTI_HEADER.pack(5, False, 0)
_CHECK_HEADER: Final = _MULTI_HEADER.pack(13, False, 0)
_GET_DATA_HEADER: Final = _MULTI_HEADER.pack(4, False, 0)
_GET_CHILDREN_HEADER: Final = _MULTI_HEADER.pack(8, False, 0)


def connect_answer(
    timeout_ms: int, session: int, password: bytes, *, with_last_byte: bool
) -> bytes:
    """The answer to the first frame; where the session is gone it and its time-out are 0.

    The last byte says that this server is not read-only. A client of before version 3.4 sends no
    such byte, and expects none.
    """
    body = _CONNECT.pack(0, timeout_ms, session) + pack_buffer(password)
    if with_last_byte:
        body += b"\x00"
    return INT.pack(len(body)) + body


def reply(xid: int, zxid: int, request: ask.Request, answer: Any = None) -> bytes:
    """The answer to a request that was done. `answer` depends on the kind of request:

    Create: str or Created; SetData, SetAcl: Stat; Exists: Stat, or None for no such node;
    GetData: (data, Stat); GetChildren: (names, Stat), also where no Stat is sent;
    GetAcl: (list, Stat); Multi: the answer of each operation; MultiRead: the answer of each read,
    or its TreeError; GetEphemerals: paths; CountDescendants: a number; WhoAmI: identities.
    All others have none: what is passed is ignored.
    """
    if answer is None and type(request) is ask.Exists:
        return error_reply(xid, zxid, NoNodeError.code)
    writer = _WRITERS.get(type(request))
    body = b"" if writer is None else writer(request, answer)
    return _FRAME.pack(_FRAME_BYTES + len(body), xid, zxid, 0) + body


def error_reply(xid: int, zxid: int, code: int) -> bytes:
    """The answer to a request that was refused."""
    return _FRAME.pack(_FRAME_BYTES, xid, zxid, code)


def multi_error(xid: int, zxid: int, codes: Sequence[int]) -> bytes:
    """The answer to a multi that was refused, with a code for each operation: see refusal_codes."""
    body = b"".join(map(_error_entry, codes)) + _MULTI_END
    return _FRAME.pack(_FRAME_BYTES + len(body), xid, zxid, 0) + body


def refusal_codes(count: int, index: int, code: int) -> list[int]:
    """The codes of a multi of `count` operations where number `index` was refused with `code`."""
    return [0] * index + [code] + [_NOT_TRIED] * (count - index - 1)


def event(kind: str, path: str) -> bytes:
    """The news of a watch; `kind` is that of watches.Event."""
    body = struct.pack("!ii", _EVENT_TYPES[kind], _CONNECTED) + pack_text(path)
    return _FRAME.pack(_FRAME_BYTES + len(body), EVENT_XID, -1, 0) + body


# What follows the header, for each kind of request.


def _created(_request: Create, answer: str | Created) -> bytes:
    if isinstance(answer, Created):
        return pack_text(answer.path) + pack_stat(answer.stat)
    return pack_text(answer)


def _stat(_request: SetData | SetAcl | ask.Exists, answer: Stat) -> bytes:
    return pack_stat(answer)


def _data(_request: ask.GetData, answer: tuple[bytes, Stat]) -> bytes:
    data, stat = answer
    return pack_buffer(data) + pack_stat(stat)


def _children(request: ask.GetChildren, answer: tuple[Sequence[str], Stat]) -> bytes:
    names, stat = answer
    return pack_texts(names) + pack_stat(stat) if request.with_stat else pack_texts(names)


def _multi(request: ask.Multi, answers: Sequence[Any]) -> bytes:
    parts: list[bytes] = []
    add = parts.append
    for op, answer in zip(request.ops, answers, strict=True):
        kind = type(op)
        if kind is Create:
            add(_CREATE2_HEADER if isinstance(answer, Created) else _CREATE_HEADER)
            add(_created(op, answer))  # type: ignore[arg-type]
        elif kind is SetData:
            add(_SET_DATA_HEADER)
            add(pack_stat(answer))
        else:
            add(_DELETE_HEADER if kind is Delete else _CHECK_HEADER)
    add(_MULTI_END)
    return b"".join(parts)


def _multi_read(request: ask.MultiRead, answers: Sequence[Any]) -> bytes:
    parts: list[bytes] = []
    for read, answer in zip(request.reads, answers, strict=True):
        if isinstance(answer, TreeError):
            parts.append(_error_entry(answer.code))
        elif isinstance(read, ask.GetData):
            parts += (_GET_DATA_HEADER, _data(read, answer))
        else:
            parts += (_GET_CHILDREN_HEADER, pack_texts(answer[0]))
    return b"".join(parts) + _MULTI_END


def _error_entry(code: int) -> bytes:
    return _MULTI_HEADER.pack(-1, False, code) + INT.pack(code)


def _who_am_i(_request: ask.WhoAmI, identities: Sequence[Identity]) -> bytes:
    # Of a digest only the user is told: the rest is the hash of the password.
    users = [
        pack_text(scheme) + pack_text(name.split(":")[0] if scheme == "digest" else name)
        for scheme, name in identities
    ]
    return INT.pack(len(users)) + b"".join(users)


_WRITERS: Final[dict[type, Callable[[Any, Any], bytes]]] = {
    Create: _created,
    SetData: _stat,
    SetAcl: _stat,
    ask.Exists: _stat,
    ask.GetData: _data,
    ask.GetChildren: _children,
    ask.GetAcl: lambda _request, answer: pack_acl(answer[0]) + pack_stat(answer[1]),
    ask.Sync: lambda request, _answer: (
        pack_buffer(None) if request.path is None else pack_text(request.path)
    ),
    ask.Multi: _multi,
    ask.MultiRead: _multi_read,
    ask.AddWatch: lambda _request, _answer: INT.pack(0),
    ask.GetEphemerals: lambda _request, paths: pack_texts(paths),
    ask.CountDescendants: lambda _request, number: INT.pack(number),
    ask.WhoAmI: _who_am_i,
}
