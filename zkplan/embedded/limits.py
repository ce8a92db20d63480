"""The limits of a server, which keep it out of danger, and its settings."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# The frame without its 4-byte length: jute.maxbuffer of a real server. Clients rely on this limit,
# so it is not adjustable.
MAX_FRAME_BYTES = 0xFFFFF


class Limits(NamedTuple):
    """Limits of one server. Beyond `znodes` or `tree_bytes` it refuses growth, but no deletes."""

    #: Open connections. Further ones are closed at once.
    connections: int = 1_000
    #: A znode costs about 0.6 KB of memory besides its data: 2 million are about 1.2 GB.
    znodes: int = 2_000_000
    #: Data, paths and access control lists together.
    tree_bytes: int = 1 << 30
    #: One answer to a read, because a multiRead could ask for any multiple of the tree.
    answer_bytes: int = 128 << 20
    #: Unsent answers of one connection. Beyond, its requests wait.
    unsent_bytes: int = 1 << 20
    #: Answers of all connections held for one commit. Beyond, requests wait for the next commit.
    held_bytes: int = 64 << 20
    #: Events and answers that a client does not read. Beyond, it is disconnected.
    unread_bytes: int = 256 << 20
    #: The same of all clients together. Beyond, the client with most of it is disconnected.
    unread_total_bytes: int = 512 << 20
    #: Requests of all connections that are incomplete or wait. Beyond, the sender is cut off.
    received_bytes: int = 256 << 20
    #: One-time and persistent watches of one connection.
    watches: int = 1_000_000
    #: Paths of these watches: each may be as long as a frame.
    watch_bytes: int = 64 << 20
    #: Memory of the watches of all connections, roughly: 320 bytes for each, and its path.
    watch_total_bytes: int = 512 << 20
    #: Identities of one connection: each is compared with each entry of an access list.
    identities: int = 64
    #: Requests of one connection handled in a row while others wait.
    turn_requests: int = 500
    #: The same in seconds: counting the descendants of a large tree takes long, and its answer is
    #: short, so no other limit stops a client that asks 500 times.
    turn_s: float = 0.05
    #: Containers and nodes with a time to live deleted in a row while others wait.
    sweep_nodes: int = 1_000
    #: Time for a client to finish the handshake, and at the end to read what is left.
    handshake_s: float = 30.0


class Settings(NamedTuple):
    """Settings of one server; with `sync` a commit waits for the disk."""

    data: Path | None
    sync: bool
    tick_time_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    #: How often containers and nodes with a time to live are checked.
    sweep_s: float
    limits: Limits
    #: The logins (`user:password`) that are admitted. If empty, every client is.
    logins: frozenset[str] = frozenset()
    tls: ssl.SSLContext | None = None
    #: The time that znodes show, in seconds since 1970.
    clock: Callable[[], float] = time.time
