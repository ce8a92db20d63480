"""The limits that protect a server from its clients, and the settings of a server."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# The maximum of a frame, without its 4-byte length: jute.maxbuffer of a real server. Not
# adjustable, because clients rely on this limit.
MAX_FRAME_BYTES = 0xFFFFF


class Limits(NamedTuple):
    """Limits of one server. At `znodes` or `tree_bytes` it refuses growth, but never deletes."""

    #: Open connections. The server closes any further connection at once.
    connections: int = 1_000
    #: Znodes. Each costs about 0.6 KB of memory besides its data: 2 million are about 1.2 GB.
    znodes: int = 2_000_000
    #: Bytes of data, paths and access control lists together.
    tree_bytes: int = 1 << 30
    #: Bytes of one answer to a read: a multiRead could ask for any multiple of the tree.
    answer_bytes: int = 128 << 20
    #: Unsent answers of one connection. Beyond this, its requests wait.
    unsent_bytes: int = 1 << 20
    #: Answers of all connections held for one commit. Beyond this, requests wait for the next one.
    held_bytes: int = 64 << 20
    #: Events and answers that a client does not read. Beyond this, the client is disconnected.
    unread_bytes: int = 256 << 20
    #: Unread bytes of all clients together. Beyond this, those with the most are disconnected.
    unread_total_bytes: int = 512 << 20
    #: Incomplete and waiting requests of all connections. Beyond this, the sender is disconnected.
    received_bytes: int = 256 << 20
    #: One-time and persistent watches of one connection.
    watches: int = 1_000_000
    #: Paths of the watches of one connection: each may be as long as a frame.
    watch_bytes: int = 64 << 20
    #: Memory of the watches of all connections, roughly: for each 320 bytes and its path.
    watch_total_bytes: int = 512 << 20
    #: Identities of one connection: a check compares each with each entry of an access list.
    identities: int = 64
    #: Requests of one connection handled in a row while others wait.
    turn_requests: int = 500
    #: The longest time for one connection in a row. Counting the descendants of a large tree takes
    #: long and has a short answer, so no other limit stops a client that asks for it 500 times.
    turn_s: float = 0.05
    #: Containers and nodes with a time to live deleted in a row while requests wait.
    sweep_nodes: int = 1_000
    #: Time for a client to finish the handshake, then to log in, and at the end to read the rest.
    handshake_s: float = 30.0


class Settings(NamedTuple):
    """Settings of one server. With `sync` a commit waits for the disk."""

    data: Path | None
    sync: bool
    tick_time_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    #: How often to look for empty containers, and for nodes whose time to live is over.
    sweep_s: float
    limits: Limits
    #: The logins (`user:password`) to admit. If empty, the server admits every client.
    logins: frozenset[str] = frozenset()
    tls: ssl.SSLContext | None = None
    #: The time that znodes show, in seconds since 1970.
    clock: Callable[[], float] = time.time
