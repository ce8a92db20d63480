"""Run a service in this process until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from .connections import AT_ONCE, Door
from .patience import Patience
from .tokens import Tokens

#: Seconds that requests have to end when the service stops.
GRACE_S = 5
#: A connection whose other end takes nothing for so long is ended by the system.
DEAD_AFTER_MS = 30_000
#: The bytes that the system keeps for a connection besides those that are on their way.
UNSENT_MAX = 128 * 1024


class _Server(uvicorn.Server):
    """Ends the streams of events when it is told to stop: it waits for all connections."""

    def __init__(self, config: uvicorn.Config, end: Callable[[], None]) -> None:
        super().__init__(config)
        self._end = end
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Not as uvicorn does, which raises the signal again when all has ended well."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end)


def listening(host: str, port: int, proxies: Sequence[str] = ()) -> Door:
    """A socket that listens there; port 0 takes a free one. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    opened = Door(family, kind, protocol, _in_one_of(proxies))
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # its connections inherit it
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_MAX)
        opened.bind(address)
        opened.listen()
    except OSError:
        opened.close()
        raise
    return opened


def _in_one_of(networks: Sequence[str]) -> Callable[[str], bool]:
    known = [ipaddress.ip_network(each, strict=False) for each in networks]
    return lambda address: any(ipaddress.ip_address(address) in each for each in known)


def configured(
    app: FastAPI, opened: Door, certificate: Path | None = None, key: Path | None = None
) -> uvicorn.Config:
    """How uvicorn serves it. It logs no requests: the entrance does, without their secrets."""
    tokens: Tokens | None = app.state.tokens
    if tokens is not None:
        opened.connections.stands = tokens.stands
    proxies: tuple[str, ...] = app.state.options.proxies
    served: Any = ProxyHeadersMiddleware(app, [*proxies]) if proxies else app  # type: ignore[arg-type]
    return uvicorn.Config(
        Patience(served, opened.connections),
        # The door needs sockets of asyncio.
        loop="asyncio",
        http="h11",
        backlog=AT_ONCE,
        # Anybody may name another address in a header; whom to believe, the options say.
        proxy_headers=False,
        log_config=None,
        # Its warnings are about what strangers send, a line for each.
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        ws="none",
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )


def serve(
    app: FastAPI, opened: Door, certificate: Path | None = None, key: Path | None = None
) -> None:
    """Serve until SIGTERM or SIGINT."""

    def end() -> None:
        app.state.watcher.end()
        app.state.work.end()

    server = _Server(configured(app, opened, certificate, key), end)
    # Ctrl-C has been answered: the streams have ended.
    with contextlib.suppress(KeyboardInterrupt):
        server.run([opened])
