"""Run a service in this process until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

#: Seconds that requests have to end when the service stops.
GRACE_S = 5
#: A connection whose other end takes nothing for so long is ended by the system.
DEAD_AFTER_MS = 30_000


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


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # its connections inherit it
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
        opened.bind(address)
        opened.listen(1024)
    except OSError:
        opened.close()
        raise
    return opened


def configured(
    app: FastAPI, certificate: Path | None = None, key: Path | None = None
) -> uvicorn.Config:
    """How uvicorn serves it. It logs no requests: the entrance does, without their secrets."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        ws="none",
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )


def serve(
    app: FastAPI, opened: socket.socket, certificate: Path | None = None, key: Path | None = None
) -> None:
    """Serve until SIGTERM or SIGINT."""

    def end() -> None:
        app.state.watcher.end()
        app.state.work.end()

    server = _Server(configured(app, certificate, key), end)
    # Ctrl-C has been answered: the streams have ended.
    with contextlib.suppress(KeyboardInterrupt):
        server.run([opened])
