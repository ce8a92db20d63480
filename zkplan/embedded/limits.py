"""What a server refuses before it is in danger, and the settings it starts with."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# The frame without its 4-byte length: jute.maxbuffer of a real server. Clients rely on the limit
# being the same everywhere, so it is not adjustable.
MAX_FRAME_BYTES = 0xFFFFF


class Limits(NamedTuple):
    """Limits of one server; growth beyond `znodes` or `tree_bytes` is refused, deletes never."""

    #: Open connections; one more is closed at once.
    connections: int = 1_000
    #: A znode costs about 0.6 KB of memory besides its data: 2 million are about 1.2 GB.
    znodes: int = 2_000_000
    #: Data, paths and access control lists together.
    tree_bytes: int = 1 << 30
    #: One answer to a read: a multiRead could ask for any multiple of the tree.
    answer_bytes: int = 128 << 20
    #: Answers of one connection not yet sent, above which its requests wait.
    unsent_bytes: int = 1 << 20
    #: Answers of all connections held for one commit, above which requests wait for the next.
    held_bytes: int = 64 << 20
    #: Watch events and answers that a client does not read, above which it is disconnected.
    unread_bytes: int = 256 << 20
    #: The same of all clients together, above which the one with most of it is disconnected.
    unread_total_bytes: int = 512 << 20
    #: Requests received in part or waiting, of all connections; above it the sender is cut off.
    received_bytes: int = 256 << 20
    #: One-shot and standing watches of one connection.
    watches: int = 1_000_000
    #: Paths of these watches, which exist nowhere else: each may be as long as a frame.
    watch_bytes: int = 64 << 20
    #: Memory that the watches of all connections take, about: 320 bytes for each, and its path.
    watch_total_bytes: int = 512 << 20
    #: What one connection may prove to be: each is compared with each entry of a list.
    identities: int = 64
    #: Requests of one connection handled in a row while others wait.
    turn_requests: int = 500
    #: The same in time: to count the descendants of a large tree takes long, and its answer is
    #: short, so that nothing else would stop a client that asks for it 500 times.
    turn_s: float = 0.05
    #: Containers and nodes with a time to live deleted in a row while others wait.
    sweep_nodes: int = 1_000
    #: For a client to finish the handshake, and at the end to read what is left for it.
    handshake_s: float = 30.0


class Settings(NamedTuple):
    """Settings of one server; with `sync` a commit waits for the disk."""

    data: Path | None
    sync: bool
    tick_time_ms: int
    min_session_timeout_ms: int
    max_session_timeout_ms: int
    #: How often containers and nodes with a time to live are looked at.
    sweep_s: float
    limits: Limits
    #: `user:password` of those who may ask anything; empty: everybody who can reach the server.
    logins: frozenset[str] = frozenset()
    #: TLS of the server's end; None: none.
    tls: ssl.SSLContext | None = None
    #: The time that znodes show, in seconds since 1970.
    clock: Callable[[], float] = time.time
