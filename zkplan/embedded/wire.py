"""Read requests from bytes, and write answers and events as bytes.

Pure. The parsers accept and refuse the same bytes as a real server (3.8), and raise only WireError.
A create that no server accepts (an unknown flag, a time to live out of range) becomes IMPOSSIBLE:
the tree then refuses it at its place in a multi, while an error here would refuse the whole multi.
The parsers ignore bytes after the request, as a real server does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from . import operations as ask
from .jute import (
    INT,
    WireError,
    pack_acl,
    pack_buffer,
    pack_stat,
    pack_text,
    pack_texts,
    read_acl,
    read_bool,
    read_buffer,
    read_int,
    read_long,
    read_path,
    read_paths,
    read_text,
)
from .operations import (
    Acl,
    Check,
    Create,
    Created,
    Delete,
    Identity,
    NoNodeError,
    Op,
    SetAcl,
    SetData,
    Stat,
    TreeError,
)
from .watches import CHANGED, CHILD, CREATED, DELETED
from .znodes import TTL_MS_MAX

#: The xid of a ping and of its answer.
PING_XID = -2

#: A create that every tree refuses with BadArguments, because '' is not a path.
IMPOSSIBLE: Final = Create("")

_HEADER: Final = struct.Struct("!ii")
_MULTI_HEADER: Final = struct.Struct("!i?i")
_CONNECT: Final = struct.Struct("!iqiq")

_CREATE, _DELETE, _EXISTS, _GET_DATA, _SET_DATA, _GET_ACL, _SET_ACL = range(1, 8)
_GET_CHILDREN, _SYNC, _PING, _GET_CHILDREN2, _CHECK, _MULTI, _CREATE2 = 8, 9, 11, 12, 13, 14, 15
_CHECK_WATCHES, _REMOVE_WATCHES, _CREATE_CONTAINER, _CREATE_TTL, _MULTI_READ = 17, 18, 19, 21, 22
_CLOSE_SESSION, _AUTH, _SET_WATCHES, _GET_EPHEMERALS, _COUNT_DESCENDANTS = -11, 100, 101, 103, 104
_SET_WATCHES2, _ADD_WATCH, _WHO_AM_I = 105, 106, 107
_CREATES = frozenset((_CREATE, _CREATE2, _CREATE_CONTAINER, _CREATE_TTL))
_WRITES = _CREATES | {_DELETE, _SET_DATA, _SET_ACL, _MULTI}

#: (ephemeral, sequence) by the flags of a create.
_CONTAINER_FLAG: Final = 4
_MODES: Final = {
    0: (False, False),
    1: (True, False),
    2: (False, True),
    3: (True, True),
    _CONTAINER_FLAG: (False, False),
}
#: Whether a create with a time to live is sequential, by its flags.
_TTL_MODES: Final = {5: False, 6: True}


def parse_connect(body: bytes) -> ask.ConnectRequest:
    """Parse the first frame of a connection. After a WireError the server closes the connection."""
    try:
        _, zxid, timeout_ms, session = _CONNECT.unpack_from(body)
        password, at = read_buffer(body, _CONNECT.size)
    except (WireError, struct.error) as error:
        raise WireError(f"not a request to connect: {error}") from error
    read_only = body[at] != 0 if at < len(body) else None
    return ask.ConnectRequest(zxid, timeout_ms, session, password, read_only)


def parse(body: bytes) -> tuple[int, ask.Request]:
    """Return the xid and the request of a frame. Raises WireError."""
    try:
        xid, opcode = _HEADER.unpack_from(body)
    except struct.error:
        raise WireError(f"{len(body)} bytes are too few for a request") from None
    reader = _READERS.get(opcode)
    if reader is None:
        return xid, ask.Unsupported(opcode)
    try:
        return xid, reader(body, _HEADER.size)
    except (WireError, struct.error) as error:
        raise WireError(
            f"request {xid} of kind {opcode} is malformed: {error}",
            # To a malformed login a real server gives no answer, but closes the connection.
            xid=None if opcode == _AUTH else xid,
            takes_zxid=opcode in _WRITES,
        ) from error


# Writes.

_CreateFields = tuple[str | None, bytes, tuple[Acl, ...], int, int]


def _read_create(body: bytes, at: int) -> _CreateFields:
    path, at = read_text(body, at)
    data, at = read_buffer(body, at)
    acl, at = read_acl(body, at)
    flags, at = read_int(body, at)
    return path, data, acl, flags, at


def _plain(
    path: str | None,
    data: bytes,
    acl: tuple[Acl, ...],
    flags: int,
    with_stat: bool,
    container: bool = False,
) -> Create:
    mode = _MODES.get(flags)
    if mode is None:
        return IMPOSSIBLE
    # The container flag alone does nothing: only createContainer makes containers.
    ephemeral = mode[0] and not container
    return Create(_not_null(path), data, ephemeral, mode[1], acl, container, 0, with_stat)


def _create_ttl(body: bytes, at: int) -> Create:
    path, data, acl, flags, at = _read_create(body, at)
    ttl_ms, _ = read_long(body, at)
    return _ttl(path, data, acl, flags, ttl_ms)


def _ttl(path: str | None, data: bytes, acl: tuple[Acl, ...], flags: int, ttl_ms: int) -> Create:
    if flags not in _TTL_MODES or not 0 < ttl_ms <= TTL_MS_MAX:
        return IMPOSSIBLE
    return Create(_not_null(path), data, False, _TTL_MODES[flags], acl, False, ttl_ms, True)


def _not_null(path: str | None) -> str:
    if path is None:
        raise WireError("the path is null")
    return path


def _delete(body: bytes, at: int) -> Delete:
    path, at = read_path(body, at)
    return Delete(path, read_int(body, at)[0])


def _set_data(body: bytes, at: int) -> SetData:
    path, at = read_text(body, at)
    data, at = read_buffer(body, at)
    # The tree refuses a null path as it refuses ''.
    return SetData(path or "", data, read_int(body, at)[0])


def _set_acl(body: bytes, at: int) -> SetAcl:
    path, at = read_text(body, at)
    acl, at = read_acl(body, at)
    return SetAcl(path or "", acl, read_int(body, at)[0])


# Several operations or reads in one request.


def _multi(body: bytes, at: int) -> ask.Multi:
    ops: list[Op] = []
    add = ops.append
    kind, done, _ = _MULTI_HEADER.unpack_from(body, at)
    while not done:
        op, at = _multi_op(body, at + _MULTI_HEADER.size, kind)
        add(op)
        kind, done, _ = _MULTI_HEADER.unpack_from(body, at)
    return ask.Multi(tuple(ops))


def _multi_op(body: bytes, at: int, kind: int) -> tuple[Op, int]:
    path, at = read_path(body, at)
    if kind == _DELETE:
        return Delete(path, INT.unpack_from(body, at)[0]), at + 4
    if kind == _CHECK:
        return Check(path, INT.unpack_from(body, at)[0]), at + 4
    if kind != _SET_DATA and kind not in _CREATES:
        raise WireError(f"an operation of kind {kind} in a multi")
    data, at = read_buffer(body, at)
    if kind == _SET_DATA:
        return SetData(path, data, INT.unpack_from(body, at)[0]), at + 4
    acl, at = read_acl(body, at)
    flags, at = INT.unpack_from(body, at)[0], at + 4
    if kind == _CREATE_TTL:
        ttl_ms, at = read_long(body, at)
        return _create_by_flags(path, data, acl, flags, ttl_ms), at
    if 0 <= flags < _CONTAINER_FLAG:  # nearly all
        return Create(path, data, flags & 1 == 1, flags & 2 == 2, acl), at
    return _create_by_flags(path, data, acl, flags, None), at


def _create_by_flags(
    path: str, data: bytes, acl: tuple[Acl, ...], flags: int, ttl_ms: int | None
) -> Create:
    # Inside a multi a real server looks only at the flags, not at the kind of create.
    if flags in _TTL_MODES:
        if ttl_ms is None:
            raise WireError("a create with a time to live, but without the time")
        return _ttl(path, data, acl, flags, ttl_ms)
    container = flags == _CONTAINER_FLAG
    return _plain(path, data, acl, flags, container, container)


def _multi_read(body: bytes, at: int) -> ask.MultiRead:
    reads: list[ask.GetData | ask.GetChildren] = []
    kind, done, _ = _MULTI_HEADER.unpack_from(body, at)
    while not done:
        if kind not in (_GET_DATA, _GET_CHILDREN):
            raise WireError(f"a read of kind {kind} among several")
        path, at = read_path(body, at + _MULTI_HEADER.size)
        _, at = read_bool(body, at)  # a real server arms no watch here, even on request
        reads.append(ask.GetData(path) if kind == _GET_DATA else ask.GetChildren(path))
        kind, done, _ = _MULTI_HEADER.unpack_from(body, at)
    return ask.MultiRead(tuple(reads))


# Reads.


def _watchable(make: Callable[[str, bool], ask.Request]) -> Callable[[bytes, int], ask.Request]:
    def read(body: bytes, at: int) -> ask.Request:
        path, at = read_path(body, at)
        return make(path, read_bool(body, at)[0])

    return read


# Watches and identity.


def _set_watches(body: bytes, at: int, *, count: int) -> ask.SetWatches:
    zxid, at = read_long(body, at)
    lists = []
    for _ in range(count):
        paths, at = read_paths(body, at)
        lists.append(paths)
    return ask.SetWatches(zxid, *lists)


def _add_watch(body: bytes, at: int) -> ask.AddWatch:
    path, at = read_path(body, at)
    mode, _ = read_int(body, at)
    if mode not in (0, 1):
        raise WireError(f"a watch of mode {mode}")
    return ask.AddWatch(path, mode == 1)


def _watches_of_kind(body: bytes, at: int, *, only_check: bool) -> ask.RemoveWatches:
    path, at = read_path(body, at)
    kind, _ = read_int(body, at)
    if kind not in (1, 2, 3):
        raise WireError(f"watches of kind {kind}")
    return ask.RemoveWatches(path, kind, only_check)


def _add_auth(body: bytes, at: int) -> ask.AddAuth:
    _, at = read_int(body, at)
    scheme, at = read_text(body, at)
    return ask.AddAuth(scheme or "", read_buffer(body, at)[0])


_READERS: Final[dict[int, Callable[[bytes, int], ask.Request]]] = {
    _CREATE: lambda body, at: _plain(*_read_create(body, at)[:4], False),
    _DELETE: _delete,
    _EXISTS: _watchable(ask.Exists),
    _GET_DATA: _watchable(ask.GetData),
    _SET_DATA: _set_data,
    _GET_ACL: lambda body, at: ask.GetAcl(read_path(body, at)[0]),
    _SET_ACL: _set_acl,
    _GET_CHILDREN: _watchable(ask.GetChildren),
    _SYNC: lambda body, at: ask.Sync(read_text(body, at)[0]),
    _PING: lambda _body, _at: ask.Ping(),
    _GET_CHILDREN2: _watchable(lambda path, watch: ask.GetChildren(path, watch, True)),
    _MULTI: _multi,
    _CREATE2: lambda body, at: _plain(*_read_create(body, at)[:4], True),
    _CHECK_WATCHES: lambda body, at: _watches_of_kind(body, at, only_check=True),
    _REMOVE_WATCHES: lambda body, at: _watches_of_kind(body, at, only_check=False),
    _CREATE_CONTAINER: lambda body, at: _plain(*_read_create(body, at)[:4], True, True),
    _CREATE_TTL: _create_ttl,
    _MULTI_READ: _multi_read,
    _CLOSE_SESSION: lambda _body, _at: ask.CloseSession(),
    _AUTH: _add_auth,
    _SET_WATCHES: lambda body, at: _set_watches(body, at, count=3),
    _GET_EPHEMERALS: lambda body, at: ask.GetEphemerals(read_text(body, at)[0] or ""),
    _COUNT_DESCENDANTS: lambda body, at: ask.CountDescendants(read_path(body, at)[0]),
    _SET_WATCHES2: lambda body, at: _set_watches(body, at, count=5),
    _ADD_WATCH: _add_watch,
    _WHO_AM_I: lambda _body, _at: ask.WhoAmI(),
}


# ---- Answers as bytes, each framed with its 4-byte length.
#
# The bytes are those of a real server (3.8), even where its protocol is odd: the answer to a
# refused multi has a header that reports success, and a body with an error for each operation.


EVENT_XID: Final = -1
_CONNECTED: Final = 3
#: The error of the operations after the refused one in a multi (RuntimeInconsistency).
_NOT_TRIED: Final = -2
_EVENT_TYPES: Final = {CREATED: 1, DELETED: 2, CHANGED: 3, CHILD: 4}

_FRAME: Final = struct.Struct("!iiqi")
_FRAME_BYTES: Final = _FRAME.size - INT.size
_CONNECT_ANSWER: Final = struct.Struct("!iiq")
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
    """The answer to the first frame. If the session has expired, pass id and time-out 0.

    The last byte tells that this server is not read-only. Clients before version 3.4 send no such
    byte, and expect none.
    """
    body = _CONNECT_ANSWER.pack(0, timeout_ms, session) + pack_buffer(password)
    if with_last_byte:
        body += b"\x00"
    return INT.pack(len(body)) + body


def reply(xid: int, zxid: int, request: ask.Request, answer: Any = None) -> bytes:
    """The answer to a request that was executed. `answer` depends on the kind of request:

    Create: str or Created; SetData, SetAcl: Stat; Exists: Stat, or None if there is no node;
    GetData: (data, Stat); GetChildren: (names, Stat), even if no Stat is sent;
    GetAcl: (list, Stat); Multi: the answer to each operation; MultiRead: the answer to each read,
    or its TreeError; GetEphemerals: paths; CountDescendants: a number; WhoAmI: identities.
    For other requests `answer` is ignored.
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
    """The answer to a refused multi, with a code for each operation: see refusal_codes."""
    body = b"".join(map(_error_entry, codes)) + _MULTI_END
    return _FRAME.pack(_FRAME_BYTES + len(body), xid, zxid, 0) + body


def refusal_codes(count: int, index: int, code: int) -> list[int]:
    """The codes of a multi of `count` operations, of which `index` was refused with `code`."""
    return [0] * index + [code] + [_NOT_TRIED] * (count - index - 1)


def event(kind: str, path: str) -> bytes:
    """The event of a watch, with the `kind` of a watches.Event."""
    body = struct.pack("!ii", _EVENT_TYPES[kind], _CONNECTED) + pack_text(path)
    return _FRAME.pack(_FRAME_BYTES + len(body), EVENT_XID, -1, 0) + body


# The bytes after the header, for each kind of request.


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


def _multi_answer(request: ask.Multi, answers: Sequence[Any]) -> bytes:
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


def _multi_read_answer(request: ask.MultiRead, answers: Sequence[Any]) -> bytes:
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
    # Of a digest, show only the user: the rest is the hash of the password.
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
    ask.Multi: _multi_answer,
    ask.MultiRead: _multi_read_answer,
    ask.AddWatch: lambda _request, _answer: INT.pack(0),
    ask.GetEphemerals: lambda _request, paths: pack_texts(paths),
    ask.CountDescendants: lambda _request, number: INT.pack(number),
    ask.WhoAmI: _who_am_i,
}
