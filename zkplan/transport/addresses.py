"""Addresses that start a server: `embedded:` and `embedded:FOLDER`.

Within one process the same address means the same server. `embedded:` lives in memory until the
process ends: were it stopped with its first client, the plans would go with that. `embedded:FOLDER`
is stopped when the last one that leased it lets go. A folder that another process serves leads to
that process; when that one ends, one of those that used it serves the folder, and the clients of
all go on there, with their sessions.

Such a server is closed: it lets in who logs in. Its owner finds the login in the folder, or by the
address of a server that runs (embedded/login.py); nobody else can read either.
"""

from __future__ import annotations

import atexit
import math
import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..basics.log import get_logger
from ..errors import ZkplanError, ZooKeeperUnavailable
from .address_lease import Lease, PassingFolder
from .kazoo_private import stopped

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from ..embedded import Access, EmbeddedServer, StorageLocked

PREFIX = "embedded:"
#: A folder is locked before its address can be read (all of it is loaded first), and a little
#: longer than it can be connected to: for so many seconds the one or the other is waited for.
_LOCKED_S = 60.0
_TELL_S = 3.0
_POLL_S = 0.05
#: How often a client that lost the server of its folder looks for it.
_SEARCH_S = 0.2
#: So long the process that served it has to come back, before another one takes the folder: a
#: server that is restarted would otherwise find it in use.
_RETURN_S = 2.0

logger = get_logger("zkplan.transport.addresses")


class _ByAddress(Lease):
    """The host:port of a server on this machine, which may be one of this user."""

    def __init__(self, hosts: str, host: str, port: int) -> None:
        super().__init__(hosts)
        self._host, self._port = host, port

    @property
    def access(self) -> Access | None:
        """See Lease. A server that is started later is found then."""
        from ..embedded import announced

        self._access = announced(self._host, self._port) or self._access
        return self._access

    def is_closed(self) -> bool:
        """See Lease. One that has ended counts for nothing: another may listen there by now."""
        return _is_announced(self._host, self._port)


class _Elsewhere(Lease):
    """The server of a folder in another process, and what follows it when that one ends."""

    def __init__(self, folder: Path, hosts: str) -> None:
        super().__init__(hosts)
        self.is_elsewhere = True
        self._folder = folder
        self._next: Lease | None = None
        self._released = threading.Event()
        self._searching = threading.Lock()

    @property
    def access(self) -> Access:
        """See Lease."""
        from ..embedded import folder_access

        return folder_access(self._folder, _store_in(self._folder))

    def find(self) -> str:
        """See Lease."""
        from ..embedded import address_of

        return address_of(self._folder) or self.hosts

    def is_closed(self) -> bool:
        """See Lease. A folder keeps its login also while an open server serves it."""
        host, _, port = self.hosts.rpartition(":")
        return _is_announced(host.strip("[]"), int(port))

    def follow(self, client: KazooClient) -> None:
        """See Lease: kazoo tells on its own thread, where nobody may wait."""

        def changed(state: str) -> None:
            if state == "SUSPENDED":
                self._search_soon(client)

        client.add_listener(changed)
        if not client.connected:
            self._search_soon(client)

    def _search_soon(self, client: KazooClient) -> None:
        if os.getpid() == self._pid and not self._released.is_set():
            name = "zkplan-addresses"
            threading.Thread(target=self._search, args=[client], name=name, daemon=True).start()

    def _search(self, client: KazooClient) -> None:
        """Until the client is connected: find who serves the folder now, or serve it here."""
        logger.info("lost the server of %s at %s, another process", self._folder, self.hosts)
        began = time.monotonic()
        met, tell_at = "", began
        while not (client.connected or stopped(client).is_set()):
            with self._searching:
                if self._released.is_set():
                    return
                try:
                    self._go_on(client, time.monotonic() - began > _RETURN_S)
                except ZooKeeperUnavailable as error:
                    now = time.monotonic()
                    if met != str(error):
                        met, tell_at = str(error), now + _TELL_S
                    elif now > tell_at:
                        logger.warning("%s", error)
                        tell_at = math.inf
            if self._released.wait(_SEARCH_S):
                return

    def _go_on(self, client: KazooClient, may_serve: bool) -> None:
        if may_serve:
            # At the port of before, where those are waiting who cannot be told.
            port = int(self.hosts.rpartition(":")[2])
            found = _lease(f"{PREFIX}{self._folder}", self._folder, port, wait_s=0)
            self._next, before = found, self._next
            if before is not None:
                before.release()
            self.hosts = found.hosts
        else:
            self.hosts = self.find()
        client.set_hosts(self.hosts)

    def release(self) -> None:
        """See Lease; also stops the server where it is here by now."""
        self._released.set()
        if os.getpid() != self._pid:
            return
        with self._searching:
            found, self._next = self._next, None
        if found is not None:
            found.release()


def _is_announced(host: str, port: int) -> bool:
    """Whether a closed server of this user listens there now: each of them announces itself."""
    from ..embedded import announced

    return announced(host, port) is not None


@dataclass
class _Served:
    """A server of this process and how many leases it has."""

    server: EmbeddedServer
    leases: int = 0


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
            "the IP address for a host of this name"
        )
    if re.search(rf",\s*({PREFIX}|[^/]*:\d+$)", name):
        raise _not_alone(address)
    try:
        return Path(name).expanduser().resolve() if name.strip() else None
    except (ValueError, OSError, RuntimeError) as error:  # a null byte, a loop of links, no home
        raise ZkplanError(f"{address!r} names no folder: {error}") from None


def require_data(hosts: str) -> None:
    """For who only looks at plans: raises ZkplanError where `hosts` is embedded and holds none."""
    if not is_embedded(hosts):
        return
    folder = folder_of(hosts)
    if folder is None:
        raise ZkplanError(
            f"{hosts} is a new server in the memory of this process, so there is nothing in it: "
            f"name {PREFIX}FOLDER, or the host:port of a server that runs"
        )
    from ..embedded.database import DATABASE

    try:
        is_there, has_data = folder.exists(), (folder / DATABASE).exists()
    except OSError:
        return  # it may not be looked at: connecting says why
    if not has_data:
        what = "holds no data of zkplan" if is_there else "does not exist"
        raise ZkplanError(
            f"{hosts}: the folder {folder} {what}; is the name right? `zkplan worker` and "
            "zkplan.connect create one"
        )


def lease(hosts: str) -> Lease:
    """The host:port to connect to for any hosts; where they are embedded, their server serves.

    Hosts of another kind are given back as they are. Raises ZooKeeperUnavailable where the server
    cannot be started, ZkplanError for a malformed embedded address.
    """
    if is_embedded(hosts):
        return _lease(hosts, folder_of(hosts))
    parts = hosts.split(",")
    if len(parts) > 1 and any(part.strip().startswith(PREFIX) for part in parts):
        raise _not_alone(hosts)
    if re.match(r"\s*embedded\s*([:/]|$)", hosts, re.IGNORECASE):
        raise ZkplanError(
            f"{hosts!r} is no address: write {PREFIX} or {PREFIX}FOLDER, in small letters, for a "
            "server in this process; for a host of this name, its IP address"
        )
    own = re.fullmatch(r"\s*(localhost|127\.[\d.]+|\[::1\]):(\d+)\s*(/.*)?", hosts, re.IGNORECASE)
    if own is None:
        return Lease(hosts)
    host = own[1].lower().strip("[]")
    return _ByAddress(hosts, "127.0.0.1" if host == "localhost" else host, int(own[2]))


def lease_folder(folder: Path) -> Lease:
    """The server of a folder, whatever its name looks like. Raises ZooKeeperUnavailable."""
    return _lease(f"{PREFIX}{folder}", folder)


def _lease(hosts: str, folder: Path | None, port: int = 0, wait_s: float = _LOCKED_S) -> Lease:
    began, told = time.monotonic(), False
    while True:
        found = _lease_now(hosts, folder, port)
        if isinstance(found, Lease):
            return found
        waited_s = time.monotonic() - began
        if waited_s >= wait_s or not found.by_server:
            raise _cannot_serve(hosts, found) from found
        if waited_s > _TELL_S and not told:
            told = True
            logger.warning("waiting until another process has loaded %s, to use its server", folder)
        time.sleep(_POLL_S)


def _lease_now(hosts: str, folder: Path | None, port: int) -> Lease | StorageLocked:
    # Imported here: who uses an ensemble does not load a server.
    from ..embedded import StorageLocked, address_of

    key = str(folder or "")
    # The lock is also held while a server starts and stops: of two threads with one address, the
    # second would find the folder locked by its own process.
    with _lock:
        served = _served.get(key)
        if served is not None and not served.server.is_running():
            logger.error("the server of %s had ended: %s", hosts, served.server.fatal)
            del _served[key]
            served.server.stop()  # it may still be ending, with the folder in its hands
            served = None
        if served is None:
            try:
                served = _Served(_start(folder, port))
            except StorageLocked as error:
                if folder is None or (other := address_of(folder)) is None:
                    return error
                logger.info("%s is served by another process, at %s", folder, other)
                return _Elsewhere(folder, other)
            except OSError as error:
                raise _cannot_serve(hosts, error) from error
            _served[key] = served
        served.leases += 1
        server = served.server
        return Lease(server.hosts, lambda: _let_go(key, served), server.access)


def lease_in_memory() -> Lease:
    """A server in memory for this lease alone, which ends with it."""
    from ..embedded import EmbeddedServer

    try:
        folder = PassingFolder()
        server = EmbeddedServer(store=_store_in(folder.path)).start()
    except OSError as error:
        raise _cannot_serve(PREFIX, error) from error

    def stop() -> None:
        server.stop()
        folder.remove()

    return Lease(server.hosts, stop, server.access)


def _store_in(folder: Path) -> str:
    return f"file://{folder}/store"


def _let_go(key: str, served: _Served) -> None:
    with _lock:
        served.leases -= 1
        if key and not served.leases:
            if _served.get(key) is served:
                del _served[key]
            served.server.stop()


def _start(folder: Path | None, port: int) -> EmbeddedServer:
    """A server of this process, at `port` where that is free. Raises OSError."""
    from ..embedded import EmbeddedServer, StorageError

    try:
        store = _store_in(folder or PassingFolder().path)
        server = EmbeddedServer(folder, port=port, store=store).start()
    except OSError as error:
        if not port or isinstance(error, StorageError):
            raise
        server = EmbeddedServer(folder, store=store).start()
    place = (
        f"from {folder}" if folder else f"in memory only: its data end with process {os.getpid()}"
    )
    logger.info("serving %s %s", server.hosts, place)
    return server


def _cannot_serve(hosts: str, error: OSError) -> ZooKeeperUnavailable:
    return ZooKeeperUnavailable(f"no server for {hosts}: {error}")


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
