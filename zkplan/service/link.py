"""The client of a service: one for all requests, made anew if its server was restored."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..client import Client
from ..errors import ClientClosed, ServerRolledBack
from ..protocol.keys import LEASE_MS


class Link:
    """Has the client that answers requests. `connect` makes one that decodes JSON alone."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        """Raises what `connect` raises, and ValueError for a client that would unpickle."""
        self._connect = connect
        self._lock = threading.Lock()
        self._is_lost = self._is_closed = False
        self.client = self._connected()

    def _connected(self) -> Client:
        client = self._connect()
        if not client.codec.is_json_only:
            client.close()
            raise ValueError("the client of a service has serializer json: it never unpickles")
        client.authors.lease_ms = LEASE_MS  # its authors have no session
        return client

    @property
    def is_lost(self) -> bool:
        """Whether the client is of no use any more, so that `renewed` makes another."""
        return self._is_lost

    def note(self, error: Exception) -> None:
        """Learn from an error of the client whether it can be used again."""
        if isinstance(error, ServerRolledBack):
            self._is_lost = True

    def renewed(self) -> Client:
        """A client that can be used. Raises what `connect` raises."""
        with self._lock:
            if self._is_closed:
                raise ClientClosed("the service ends")
            if self._is_lost:
                self.client.close()
                self.client = self._connected()
                self._is_lost = False
            return self.client

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self.client.close()
