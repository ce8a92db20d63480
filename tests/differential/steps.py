"""The steps of a program: what one client does, with nothing in it that differs between servers.

Paths begin with `~`, the root node of the program. Zxids count from the program's beginning.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.tools.packing import Ask

MOST_BYTES_OF_A_FRAME = 1_048_575


class Burst(NamedTuple):
    """Send requests in one go; one request is the common case."""

    client: int
    asks: tuple[Ask, ...]


class Drop(NamedTuple):
    """Hang up; the session stays, and the client's next step attaches to it again."""

    client: int


class Attach(NamedTuple):
    """Connect to the client's session again while its old connection is still open.

    With a wrong password the old connection is given up before. `password` is right, wrong, short
    or empty; `zxid` is the newest one the client claims to have seen; with `read_only_byte` it
    would be content with a read-only server, without it is a client of before 3.4.
    """

    client: int
    password: str = "right"
    timeout_ms: int = 30_000
    zxid: int = 0
    read_only_byte: bool = True


class Stranger(NamedTuple):
    """Connect with a session that never was."""

    client: int
    session: int


class Expire(NamedTuple):
    """Attach with the shortest time-out and hang up; `observer` waits for an ephemeral to go."""

    client: int
    observer: int


class Big(NamedTuple):
    """Set data so that the frame has the greatest size allowed and `excess` bytes more."""

    client: int
    path: str | bytes | None
    excess: int


class Bytes(NamedTuple):
    """Send bytes that are no frame of a client."""

    client: int
    data: bytes


Step = Burst | Drop | Attach | Stranger | Expire | Big | Bytes
