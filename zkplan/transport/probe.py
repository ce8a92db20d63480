"""Requests that no step of the protocol makes: who may do what, how large, how quick."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from kazoo import exceptions
from kazoo.client import KazooClient


class Refusal(Enum):
    """Why a request was not done."""

    NO_AUTH = "an access list forbids it"
    NO_NODE = "there is no such znode"
    INVALID_ACL = "the server does not take the access list"
    LOGIN = "the server refused the login"
    LOST = "the server closed the connection"
    OTHER = "the server refused it"


_REFUSALS = (
    (exceptions.NoAuthError, Refusal.NO_AUTH),
    (exceptions.NoNodeError, Refusal.NO_NODE),
    (exceptions.InvalidACLError, Refusal.INVALID_ACL),
    (exceptions.AuthFailedError, Refusal.LOGIN),
    (exceptions.ConnectionLoss, Refusal.LOST),
    (exceptions.SessionExpiredError, Refusal.LOST),
    (exceptions.ConnectionClosedError, Refusal.LOST),
)


class Made(NamedTuple):
    """A znode that was created: by the clocks of the server and of this machine, in seconds."""

    path: str
    server_time: float
    #: This machine's, halfway between the request and its answer, and half of that time.
    own_time: float
    half_s: float


class Probe:
    """Asks over one connected client. Each answer may be a Refusal."""

    def __init__(self, client: KazooClient, timeout_s: float) -> None:
        self._client, self._timeout_s = client, timeout_s

    def children(self, path: str) -> list[str] | Refusal:
        found: list[str] | Refusal = self._asked(lambda: self._client.get_children_async(path))
        return found

    def create(self, parent: str) -> Made | Refusal:
        """Create a znode below `parent` that ends with this session."""
        path = f"{parent.rstrip('/')}/zkplan-check-{secrets.token_hex(6)}"
        began = time.time()
        made = self._asked(
            lambda: self._client.create_async(path, b"", ephemeral=True, include_data=True)
        )
        half_s = (time.time() - began) / 2
        if isinstance(made, Refusal):
            return made
        return Made(path, made[1].ctime / 1000, began + half_s, half_s)

    def write_s(self, path: str) -> float | Refusal:
        """How long a small write takes, in seconds."""
        return self._timed(lambda: self._client.set_async(path, b"x"))

    def read_s(self, path: str) -> float | Refusal:
        return self._timed(lambda: self._client.exists_async(path))

    def takes(self, path: str, size: int) -> bool:
        """Whether a write of `size` bytes is done. If not, the server closes the connection."""
        return not isinstance(
            self._asked(lambda: self._client.set_async(path, bytes(size))), Refusal
        )

    def wait_connected(self) -> bool:
        deadline = time.monotonic() + self._timeout_s
        while not self._client.connected and time.monotonic() < deadline:
            time.sleep(0.02)
        return bool(self._client.connected)

    def _timed(self, ask: Callable[[], Any]) -> float | Refusal:
        began = time.monotonic()
        found = self._asked(ask)
        return found if isinstance(found, Refusal) else time.monotonic() - began

    def _asked(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask().get(timeout=self._timeout_s)
        except self._client.handler.timeout_exception:
            return Refusal.LOST
        except exceptions.KazooException as error:
            return next((why for kind, why in _REFUSALS if isinstance(error, kind)), Refusal.OTHER)
