"""What an address is leased as: the host:port to connect to, and the login of its server."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from ..embedded import Access


class Lease:
    """`hosts` for ZooKeeper clients, served at least until `release`. A context manager."""

    def __init__(
        self,
        hosts: str,
        release: Callable[[], None] | None = None,
        access: Access | None = None,
    ) -> None:
        self.hosts = hosts
        self._access = access
        #: Whether it is that of a folder which another process serves, as long as that one lives.
        self.is_elsewhere = False
        self._release = release
        self._pid = os.getpid()

    @property
    def access(self) -> Access | None:
        """The login of a closed server of this user, as it is now, and what goes with it."""
        return self._access

    @property
    def secret(self) -> str:
        """What those sign with who are given no secret. Empty but for an embedded server."""
        return "" if self.access is None else self.access.secret

    @property
    def store(self) -> str:
        """The URL of the store that comes with an embedded server. Empty otherwise."""
        return "" if self.access is None else self.access.store

    def login(self) -> str:
        """`user:password` of this user's server, or empty."""
        return "" if self.access is None else self.access.login

    def is_closed(self) -> bool:
        """Whether its server is one of this user that lets in nobody without a login, by now."""
        return bool(self.login())

    def release(self) -> None:
        """Need it no longer; may be repeated. Close clients first: it may stop their server."""
        release, self._release = self._release, None
        # In a forked child the server is the parent's: there is nothing here to stop.
        if release is not None and os.getpid() == self._pid:
            release()

    def find(self) -> str:
        """Where its server is by now. Starts none."""
        return self.hosts

    def follow(self, client: KazooClient) -> None:
        """Keep a started client connected when the folder is served elsewhere, until `release`."""

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
