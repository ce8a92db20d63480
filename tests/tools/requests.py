"""Requests, one function for each kind, with nothing of the server's own code."""

from __future__ import annotations

from collections.abc import Callable

from .packing import Ask

EPHEMERAL, SEQUENCE, CONTAINER, TTL = 1, 2, 4, 5

Acl = tuple[tuple[int, str, str], ...]
OPEN: Acl = ((31, "world", "anyone"),)
PING, CLOSE_SESSION, WHO_AM_I = Ask("ping"), Ask("close"), Ask("who_am_i")


def create(path: str, data: bytes = b"", flags: int = 0, entries: Acl = OPEN) -> Ask:
    return Ask("create", (path, data, entries, flags))


def create_ttl(path: str, ttl_ms: int) -> Ask:
    return Ask("ttl", (path, b"", OPEN, TTL, ttl_ms))


def set_data(path: str, data: bytes = b"", version: int = -1) -> Ask:
    return Ask("set", (path, data, version))


def set_acl(path: str, entries: Acl, version: int = -1) -> Ask:
    return Ask("set_acl", (path, entries, version))


def multi(*writes: Ask) -> Ask:
    return Ask("multi", (writes,))


def multi_read(*reads: Ask) -> Ask:
    return Ask("multi_read", (reads,))


def set_watches(
    zxid: int, data: tuple[str, ...] = (), exist: tuple[str, ...] = (), child: tuple[str, ...] = ()
) -> Ask:
    return Ask("set_watches", (zxid, data, exist, child))


def _about(op: str, last: int | None = None) -> Callable[..., Ask]:
    """About a path, and with a number: a version, whether to watch, or a kind of watches."""

    def make(path: str, number: int | None = last, watch: bool = False) -> Ask:
        return Ask(op, (path,) if number is None else (path, number or watch))

    return make


delete, check = _about("delete", -1), _about("check", -1)
exists, get_data = _about("exists", 0), _about("get", 0)
children, children2 = _about("children", 0), _about("children2", 0)
add_watch, remove_watches = _about("add_watch"), _about("remove_watches")
get_acl, sync = _about("get_acl"), _about("sync")
get_ephemerals, count_descendants = _about("ephemerals"), _about("count")
