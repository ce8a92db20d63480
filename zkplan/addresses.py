"""Addresses that start a server: `embedded:` and `embedded:FOLDER` become the host:port to use.

Within one process the same address means the same server. `embedded:` lives in memory until the
process ends: were it stopped with its first client, the plans would go with that. `embedded:FOLDER`
is stopped when the last one that leased it lets go. A folder that another process serves leads to
that process.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from .errors import KeeperUnavailable, ZkplanError

if TYPE_CHECKING:
    from .embedded import EmbeddedServer

PREFIX = "embedded:"
#: A folder is locked before its address can be read, and a little longer than it can be connected
#: to: for so many seconds the one or the other is waited for.
_LOCKED_S = 5.0
_POLL_S = 0.05

logger = logging.getLogger("zkplan.addresses")


class Lease:
    """`hosts` for ZooKeeper clients, served at least until `release`. A context manager."""

    def __init__(self, hosts: str, release: Callable[[], None] | None = None) -> None:
        self.hosts = hosts
        self._release = release
        self._pid = os.getpid()

    def release(self) -> None:
        """Need it no longer; may be repeated. Close clients first: it may stop their server."""
        release, self._release = self._release, None
        # In a forked child the server is the parent's: there is nothing here to stop.
        if release is not None and os.getpid() == self._pid:
            release()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class _Served:
    """A server of this process and how many leases it has."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.server = server
        self.leases = 0


_lock = threading.Lock()
_served: dict[str, _Served] = {}


def is_embedded(hosts: str) -> bool:
    """
    >>> is_embedded("embedded:"), is_embedded("embedded:plans"), is_embedded("zk1:2181")
    (True, True, False)
    """
    return hosts.startswith(PREFIX)


def folder_of(address: str) -> Path | None:
    """The data folder that an embedded address names, absolute; None: in memory.

    The folder is all that follows the colon: there is no chroot. Raises ZkplanError where hosts
    follow, or where a number is more likely the port of a host named "embedded".
    """
    name = address.removeprefix(PREFIX)
    if re.fullmatch(r"\d+(/.*)?", name):
        raise ZkplanError(
            f"{address!r} could be a port or a folder: write {PREFIX}./{name} for the folder, and "
            "the number of its address for a host of this name"
        )
    if re.search(rf",\s*({PREFIX}|[^/]*:\d+$)", name):
        raise _not_alone(address)
    return Path(name).expanduser().resolve() if name.strip() else None


def lease(hosts: str) -> Lease:
    """The host:port to connect to for any hosts; where they are embedded, their server serves.

    Hosts of another kind are given back as they are. Raises KeeperUnavailable where the server
    cannot be started, ZkplanError for a malformed embedded address.
    """
    if not is_embedded(hosts):
        if any(part.strip().startswith(PREFIX) for part in hosts.split(",")):
            raise _not_alone(hosts)
        return Lease(hosts)
    folder = folder_of(hosts)
    key = "" if folder is None else str(folder)
    # The lock is also held while a server starts and stops: of two threads with one address, the
    # second would find the folder locked by its own process.
    with _lock:
        served = _served.get(key)
        if served is not None and not served.server.is_running():
            logger.error("the server of %s had ended: %s", hosts, served.server.fatal)
            del _served[key]
            served = None
        if served is None:
            server = _start(hosts, folder)
            if isinstance(server, str):
                return Lease(server)
            served = _served[key] = _Served(server)
        served.leases += 1
        return Lease(served.server.hosts, lambda: _let_go(key, served))


def lease_in_memory() -> Lease:
    """A server in memory for this lease alone, which ends with it."""
    from .embedded import EmbeddedServer

    try:
        server = EmbeddedServer().start()
    except OSError as error:
        raise _cannot_serve(PREFIX, error) from error
    return Lease(server.hosts, server.stop)


def _let_go(key: str, served: _Served) -> None:
    with _lock:
        served.leases -= 1
        if key and not served.leases:
            if _served.get(key) is served:
                del _served[key]
            served.server.stop()


def _start(hosts: str, folder: Path | None) -> EmbeddedServer | str:
    """A server of this process, or the address of the process that serves the folder."""
    # Imported here: who uses an ensemble does not load a server.
    from .embedded import EmbeddedServer, StorageLocked, address_of

    deadline = time.monotonic() + _LOCKED_S
    while True:
        try:
            server = EmbeddedServer(folder).start()
            break
        except StorageLocked as error:
            other = address_of(folder) if folder is not None else None
            if other is not None:
                logger.info("%s is served by another process, at %s", folder, other)
                return other
            if time.monotonic() > deadline:
                raise _cannot_serve(hosts, error) from error
            time.sleep(_POLL_S)
        except OSError as error:
            raise _cannot_serve(hosts, error) from error
    if folder is None:
        logger.info(
            "serving %s in memory only: its data end with process %d", server.hosts, os.getpid()
        )
    else:
        logger.info("serving %s from %s", server.hosts, folder)
    return server


def _cannot_serve(hosts: str, error: OSError) -> KeeperUnavailable:
    return KeeperUnavailable(f"no server for {hosts}: {error}")


def _not_alone(hosts: str) -> ZkplanError:
    return ZkplanError(
        f"{hosts!r}: an embedded server stands alone, without other hosts beside it; write "
        f"{PREFIX}, {PREFIX}FOLDER, or the host:port of each member of an ensemble"
    )


def _stop_all() -> None:
    with _lock:
        while _served:
            _served.popitem()[1].server.stop()


def _forget_all() -> None:
    """In a forked child the threads of the servers do not exist, and the lock may be held."""
    global _lock
    _lock = threading.Lock()
    _served.clear()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
