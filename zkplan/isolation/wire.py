"""Packets between a worker and the process of a task: a line of JSON, and bytes that follow it.

The worker decodes nothing of a packet but the JSON. A socket keeps packets apart, so that a process
that dies leaves no half of one. Large parts go through an anonymous file whose descriptor is sent.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..store.blob import Bytes

#: A packet with more bytes of parts than this sends them in a file.
INLINE_BYTES = 32 * 1024
_PACKET_BYTES_MAX = 160 * 1024
_WRITE_BYTES = 16 * 1024 * 1024


class Garbled(Exception):
    """The other end sent what is no packet."""


class Packet(NamedTuple):
    """`head` is plain JSON; `parts` are bytes that only the task's process decodes."""

    kind: str
    head: dict[str, Any]
    parts: list[Bytes]


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that keep packets apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(
    to: socket.socket,
    kind: str,
    head: dict[str, Any] | None = None,
    parts: Sequence[Bytes] = (),
    flags: int = 0,
) -> None:
    """Raises OSError if the other end is gone."""
    sizes = [len(part) for part in parts]
    told: dict[str, Any] = {"kind": kind, "sizes": sizes, "head": head or {}}
    if sum(sizes) <= INLINE_BYTES:
        to.sendmsg([json.dumps(told).encode() + b"\n", *parts], [], flags)
        return
    file = os.memfd_create("zkplan-packet")
    try:
        for part in parts:
            view = memoryview(part).cast("B")
            while view:
                view = view[os.write(file, view[:_WRITE_BYTES]) :]
        told["in_file"] = True
        socket.send_fds(to, [json.dumps(told).encode() + b"\n"], [file])
    finally:
        os.close(file)


def receive(source: socket.socket, bytes_max: int = 0) -> Packet:
    """Raises EOFError at the end, OSError, and Garbled: also for parts of more than `bytes_max`
    bytes (0: no limit)."""
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, files, _, _ = socket.recv_fds(source, _PACKET_BYTES_MAX, 1, flags)
    try:
        if not data:
            raise EOFError
        line, _, rest = data.partition(b"\n")
        try:
            told = json.loads(line)
            kind, head = str(told["kind"]), told["head"]
            sizes = [int(size) for size in told["sizes"]]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise Garbled(f"it is no packet: {error}") from None
        if not isinstance(head, dict) or min(sizes, default=0) < 0:
            raise Garbled("it is no packet")
        if bytes_max and sum(sizes) > bytes_max:
            raise Garbled(f"it has {sum(sizes)} bytes, more than {bytes_max}")
        body: Bytes = rest
        if told.get("in_file"):
            if not files:
                raise Garbled("its file is missing")
            body = _read(files[0], sum(sizes))
        if len(body) != sum(sizes):
            raise Garbled("it is too short")
    finally:
        for file in files:
            os.close(file)
    view, parts = memoryview(body), []
    for size in sizes:
        parts.append(view[:size])
        view = view[size:]
    return Packet(kind, head, [*parts])


def _read(file: int, size: int) -> bytearray:
    # Read, not mapped: the other end may cut the file, and that would end this process by SIGBUS.
    try:
        if os.fstat(file).st_size < size:
            raise Garbled("its file is too short")
        body, at = bytearray(size), 0
        view = memoryview(body)
        while at < size:
            count = os.preadv(file, [view[at : at + _WRITE_BYTES]], at)
            if not count:
                raise Garbled("its file is too short")
            at += count
        return body
    except OSError as error:
        raise Garbled(f"its file cannot be read: {error}") from None
