"""Find the server of an address, and start one for `embedded:` and `embedded:FOLDER`.

Within one process the same embedded address means the same server. The server of `embedded:` is in
memory and runs until the process ends: if it stopped with its first client, the plans would be
lost. The server of `embedded:FOLDER` stops with its last user in this process. If another process
serves the folder, this process uses that server. When the other process ends, one of the processes
that used its server serves the folder, and all clients go on there with their sessions.

An embedded server is closed: each client logs in. Its owner finds the login in the folder, or by
the address of a running server (embedded/login.py). No other user can read either.
"""

from __future__ import annotations

import atexit
import math
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..basics.log import get_logger
from ..basics.private import ProcessFolder
from ..errors import ZkplanError, ZooKeeperUnavailable
from .kazoo_private import stopped

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from ..embedded import Access, EmbeddedServer, StorageLocked

PREFIX = "embedded:"
#: How long to wait for the address of a locked folder: a server first locks its folder, then loads
#: all data, then publishes its address. It unlocks the folder a little after it stops serving.
_LOCKED_S = 60.0
_WARN_AFTER_S = 3.0
_POLL_S = 0.05
#: How often a client that lost the server of its folder looks for it.
_SEARCH_S = 0.2
#: How long a process that served a folder may be away before another one serves it. Otherwise a
#: server that restarts would find its folder in use.
_RETURN_S = 2.0

logger = get_logger("zkplan.transport.addresses")


class ServerAddress:
    """Where a server is, and how this user logs in to it.

    A server that this process started serves at least until `release`. A context manager.
    """

    #: Whether another process serves the folder, for as long as that process lives.
    is_elsewhere = False

    def __init__(
        self,
        hosts: str,
        access: Access | None = None,
        release: Callable[[], None] | None = None,
    ) -> None:
        self.hosts = hosts
        self._access = access
        self._release = release
        self._pid = os.getpid()

    @property
    def access(self) -> Access | None:
        """Login, secret and store of this user's embedded server; None if there is none."""
        return self._access

    @property
    def secret(self) -> str:
        """The secret that clients without one sign with. Empty for all but embedded servers."""
        return "" if self.access is None else self.access.secret

    @property
    def store(self) -> str:
        """The URL of the store of an embedded server; otherwise empty."""
        return "" if self.access is None else self.access.store

    def login(self) -> str:
        """`user:password` of this user's server, or empty."""
        return "" if self.access is None else self.access.login

    def is_closed(self) -> bool:
        """Whether a server of this user runs there now that refuses clients without a login."""
        return bool(self.login())

    def release(self) -> None:
        """Give up the server; may be called again. Close clients first: this may stop it."""
        release, self._release = self._release, None
        # In a forked child the server belongs to the parent, so there is nothing to stop.
        if release is not None and os.getpid() == self._pid:
            release()

    def find(self) -> str:
        """Return where the server is now. Starts none."""
        return self.hosts

    def follow(self, client: KazooClient) -> None:
        """Until `release`, keep this started client connected if others serve the folder."""

    def __enter__(self) -> ServerAddress:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _LocalPort(ServerAddress):
    """A port of this machine, where a server of this user may listen."""

    def __init__(self, hosts: str, host: str, port: int) -> None:
        super().__init__(hosts)
        self._host, self._port = host, port

    @property
    def access(self) -> Access | None:
        """See ServerAddress. Each call looks again, so a server that starts later counts, too."""
        from ..embedded import announced

        self._access = announced(self._host, self._port) or self._access
        return self._access

    def is_closed(self) -> bool:
        """See ServerAddress. Only a running server counts: others may listen there after it."""
        return _is_announced(self._host, self._port)


class _Elsewhere(ServerAddress):
    """The server of a folder in another process, and its successor when that process ends."""

    is_elsewhere = True

    def __init__(self, folder: Path, hosts: str) -> None:
        super().__init__(hosts)
        self._folder = folder
        self._next: ServerAddress | None = None
        self._released = threading.Event()
        self._searching = threading.Lock()

    @property
    def access(self) -> Access:
        """See ServerAddress."""
        from ..embedded import folder_access

        return folder_access(self._folder, _store_in(self._folder))

    def find(self) -> str:
        """See ServerAddress."""
        from ..embedded import address_of

        return address_of(self._folder) or self.hosts

    def is_closed(self) -> bool:
        """See ServerAddress. The login in the folder proves nothing: an open server leaves it."""
        host, _, port = self.hosts.rpartition(":")
        return _is_announced(host.strip("[]"), int(port))

    def follow(self, client: KazooClient) -> None:
        """See ServerAddress."""

        def changed(state: str) -> None:
            # kazoo calls this on its own thread, which must not wait.
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
        """Find the server of the folder, or serve it here, until the client is connected."""
        logger.info("lost the server of %s at %s, another process", self._folder, self.hosts)
        began = time.monotonic()
        problem, warn_at = "", began
        while not (client.connected or stopped(client).is_set()):
            with self._searching:
                if self._released.is_set():
                    return
                try:
                    self._go_on(client, time.monotonic() - began > _RETURN_S)
                except ZooKeeperUnavailable as error:
                    now = time.monotonic()
                    if problem != str(error):
                        problem, warn_at = str(error), now + _WARN_AFTER_S
                    elif now > warn_at:
                        logger.warning("%s", error)
                        warn_at = math.inf
            if self._released.wait(_SEARCH_S):
                return

    def _go_on(self, client: KazooClient, may_serve: bool) -> None:
        if may_serve:
            # Use the same port: some clients wait there and cannot be sent to another one.
            port = int(self.hosts.rpartition(":")[2])
            found = _embedded(f"{PREFIX}{self._folder}", self._folder, port, wait_s=0)
            self._next, before = found, self._next
            if before is not None:
                before.release()
            self.hosts = found.hosts
        else:
            self.hosts = self.find()
        client.set_hosts(self.hosts)

    def release(self) -> None:
        """See ServerAddress. If this process has taken over the folder, also give that up."""
        self._released.set()
        if os.getpid() != self._pid:
            return
        with self._searching:
            found, self._next = self._next, None
        if found is not None:
            found.release()


def _is_announced(host: str, port: int) -> bool:
    """Whether a closed server of this user listens there now: each such server announces itself."""
    from ..embedded import announced

    return announced(host, port) is not None


# ---- What an address means.


def is_embedded(hosts: str) -> bool:
    """
    >>> is_embedded("embedded:"), is_embedded("embedded:plans"), is_embedded("zk1:2181")
    (True, True, False)
    """
    return hosts.startswith(PREFIX)


def folder_of(address: str) -> Path | None:
    """Return the absolute data folder of an embedded address, or None if it is in memory.

    The folder is everything after the colon: there is no chroot. Raises ZkplanError if other hosts
    follow, or for a number, which may be meant as the port of a host named "embedded".
    """
    name = address.removeprefix(PREFIX)
    if re.fullmatch(r"\d+(/.*)?", name):
        raise ZkplanError(
            f"{address!r} could be a port or a folder: write {PREFIX}./{name} for the folder, or "
            'the IP address for a host named "embedded"'
        )
    if re.search(rf",\s*({PREFIX}|[^/]*:\d+$)", name):
        raise _not_alone(address)
    try:
        return Path(name).expanduser().resolve() if name.strip() else None
    except (ValueError, OSError, RuntimeError) as error:  # a null byte, a loop of links, no home
        raise ZkplanError(f"{address!r} names no folder: {error}") from None


def require_data(hosts: str) -> None:
    """Raise ZkplanError if `hosts` is embedded and has no data. For commands that only read."""
    if not is_embedded(hosts):
        return
    folder = folder_of(hosts)
    if folder is None:
        raise ZkplanError(
            f"{hosts} is a new server in the memory of this process, so there is nothing in it: "
            f"name {PREFIX}FOLDER, or the host:port of a running server"
        )
    from ..embedded.database import DATABASE

    try:
        is_there, has_data = folder.exists(), (folder / DATABASE).exists()
    except OSError:
        return  # this user may not read the folder: connecting reports why
    if not has_data:
        what = "holds no data of zkplan" if is_there else "does not exist"
        raise ZkplanError(
            f"{hosts}: the folder {folder} {what}; is the name right? `zkplan worker` and "
            "zkplan.connect create one"
        )


def server_at(hosts: str) -> ServerAddress:
    """Return the host:port to connect to. For an embedded address, start its server if necessary.

    Other hosts are returned unchanged. Raises ZooKeeperUnavailable if the server cannot start, and
    ZkplanError for a malformed embedded address.
    """
    if is_embedded(hosts):
        return _embedded(hosts, folder_of(hosts))
    parts = hosts.split(",")
    if len(parts) > 1 and any(part.strip().startswith(PREFIX) for part in parts):
        raise _not_alone(hosts)
    if re.match(r"\s*embedded\s*([:/]|$)", hosts, re.IGNORECASE):
        raise ZkplanError(
            f"{hosts!r} is not an address: write {PREFIX} or {PREFIX}FOLDER, in small letters, for "
            'a server in this process; for a host named "embedded", write its IP address'
        )
    own = re.fullmatch(r"\s*(localhost|127\.[\d.]+|\[::1\]):(\d+)\s*(/.*)?", hosts, re.IGNORECASE)
    if own is None:
        return ServerAddress(hosts)
    host = own[1].lower().strip("[]")
    return _LocalPort(hosts, "127.0.0.1" if host == "localhost" else host, int(own[2]))


def server_of_folder(folder: Path) -> ServerAddress:
    """Return the server of `folder`, whatever its name. Raises ZooKeeperUnavailable."""
    return _embedded(f"{PREFIX}{folder}", folder)


def server_in_memory() -> ServerAddress:
    """Start a server in memory for one caller, until `release`. Raises ZooKeeperUnavailable."""
    from ..embedded import EmbeddedServer

    try:
        folder = ProcessFolder()
        server = EmbeddedServer(store=_store_in(folder.path)).start()
    except OSError as error:
        raise _cannot_serve(PREFIX, error) from error

    def stop() -> None:
        server.stop()
        folder.remove()

    return ServerAddress(server.hosts, server.access, stop)


def _cannot_serve(hosts: str, error: OSError) -> ZooKeeperUnavailable:
    return ZooKeeperUnavailable(f"no server for {hosts}: {error}")


def _not_alone(hosts: str) -> ZkplanError:
    return ZkplanError(
        f"{hosts!r}: an embedded server stands alone, so no other hosts may follow or precede it; "
        f"write {PREFIX}, {PREFIX}FOLDER, or the host:port of each member of an ensemble"
    )


def _store_in(folder: Path) -> str:
    return f"file://{folder}/store"


# ---- The embedded servers of this process, shared by all users of the same address.


@dataclass
class _Served:
    """A server of this process, and the number of its users."""

    server: EmbeddedServer
    users: int = 0


_lock = threading.Lock()
#: The servers by folder; the one in memory has the key "".
_served: dict[str, _Served] = {}


def _embedded(
    hosts: str, folder: Path | None, port: int = 0, wait_s: float = _LOCKED_S
) -> ServerAddress:
    began, has_warned = time.monotonic(), False
    while True:
        found = _serve_or_find(hosts, folder, port)
        if isinstance(found, ServerAddress):
            return found
        waited_s = time.monotonic() - began
        if waited_s >= wait_s or not found.by_server:
            raise _cannot_serve(hosts, found) from found
        if waited_s > _WARN_AFTER_S and not has_warned:
            has_warned = True
            logger.warning("waiting until another process has loaded %s, to use its server", folder)
        time.sleep(_POLL_S)


def _serve_or_find(hosts: str, folder: Path | None, port: int) -> ServerAddress | StorageLocked:
    # Imported late: a user of an ensemble does not load a server.
    from ..embedded import StorageLocked, address_of

    key = str(folder or "")
    # Hold the lock while a server starts or stops, too. Otherwise, of two threads with the same
    # address, the second would find the folder locked by its own process.
    with _lock:
        served = _served.get(key)
        if served is not None and not served.server.is_running():
            logger.error("the server of %s had ended: %s", hosts, served.server.fatal)
            del _served[key]
            served.server.stop()  # while it ends, it still holds the folder
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
        served.users += 1
        return ServerAddress(
            served.server.hosts, served.server.access, lambda: _release(key, served)
        )


def _release(key: str, served: _Served) -> None:
    with _lock:
        served.users -= 1
        if key and not served.users:
            if _served.get(key) is served:
                del _served[key]
            served.server.stop()


def _start(folder: Path | None, port: int) -> EmbeddedServer:
    """Start a server in this process, at `port` if that port is free. Raises OSError."""
    from ..embedded import EmbeddedServer, StorageError

    try:
        store = _store_in(folder or ProcessFolder().path)
        server = EmbeddedServer(folder, port=port, store=store).start()
    except OSError as error:
        if not port or isinstance(error, StorageError):
            raise
        server = EmbeddedServer(folder, store=store).start()
    place = (
        f"from {folder}" if folder else f"in memory only: its data ends with process {os.getpid()}"
    )
    logger.info("serving %s %s", server.hosts, place)
    return server


def _stop_all() -> None:
    with _lock:
        while _served:
            _served.popitem()[1].server.stop()


def _forget_all() -> None:
    """For a forked child, where the servers have no threads and the lock may be held."""
    global _lock
    _lock = threading.Lock()
    _served.clear()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
