"""Run a service in this process until a signal stops it, and cut off slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from .connections import AT_ONCE, Connections, Door
from .tokens import Tokens

#: Seconds that requests have to end when the service stops.
GRACE_S = 5
#: The system ends a connection whose other end accepts nothing for this long.
DEAD_AFTER_MS = 30_000
#: The most bytes that the system keeps for a connection before it sends them.
UNSENT_MAX = 128 * 1024


class _Server(uvicorn.Server):
    """Ends the streams of events at a signal: uvicorn would wait for them."""

    def __init__(self, config: uvicorn.Config, end: Callable[[], None]) -> None:
        super().__init__(config)
        self._end = end
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Unlike uvicorn, do not raise the signal again after a graceful stop."""
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
    """The configuration of uvicorn. It logs no requests: Entrance does, without their secrets."""
    tokens: Tokens | None = app.state.tokens
    if tokens is not None:
        opened.connections.stands = tokens.stands
    proxies: tuple[str, ...] = app.state.options.proxies
    served: Any = ProxyHeadersMiddleware(app, [*proxies]) if proxies else app  # type: ignore[arg-type]
    return uvicorn.Config(
        Patience(served, opened.connections),
        # Door needs sockets of asyncio.
        loop="asyncio",
        http="h11",
        backlog=AT_ONCE,
        # Anybody may name another address in a header: the options say whom to believe.
        proxy_headers=False,
        log_config=None,
        # uvicorn would write a warning for each wrong request of a stranger.
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
        app.state.lease_calls.end()

    server = _Server(configured(app, opened, certificate, key), end)
    # Ctrl-C has stopped the server, as SIGTERM does.
    with contextlib.suppress(KeyboardInterrupt):
        server.run([opened])


# ---- How fast a client must send its request and accept its answer.


#: How many seconds the service waits for a body, and how many bytes add another second.
BODY_S, BODY_RATE = 20.0, 4096
#: Seconds in which the client must accept so much that the next piece of an answer fits into the
#: buffers, and the most bytes of a piece.
SEND_S, PIECE = 20.0, 64 * 1024


class Patience:
    """The outermost middleware. It sets deadlines for the connection of a request, and puts it into
    `scope["state"]`."""

    def __init__(self, app: ASGIApp, connections: Connections) -> None:
        self._app, self._connections = app, connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self._connections.at(scope.get("client"))
        if scope["type"] != "http" or connection is None:
            await self._app(scope, receive, send)
            return
        has_more, patience = True, BODY_S

        async def read() -> Message:
            nonlocal has_more, patience
            if not has_more:
                return await receive()  # the end of the connection, which may come much later
            begin = time.monotonic()
            connection.reads_by = begin + patience
            message = await receive()
            connection.reads_by = float("inf")
            has_more = message.get("more_body", False)
            got = len(message.get("body", b""))
            patience += got / BODY_RATE - (time.monotonic() - begin)
            return message

        async def write(message: Message) -> None:
            for piece in _pieces(message):
                connection.writes_by = time.monotonic() + SEND_S
                await send(piece)
                connection.writes_by = float("inf")

        scope.setdefault("state", {})["connection"] = connection
        connection.begin()
        try:
            await self._app(scope, read, write)
        finally:
            connection.finish()


def _pieces(message: Message) -> Iterator[Message]:
    """A large body in pieces, each with its own deadline: a slow client could not accept a whole
    large body in the time of one piece."""
    body = memoryview(message.get("body", b""))
    if len(body) <= PIECE:
        yield message
        return
    for start in range(0, len(body), PIECE):
        more = start + PIECE < len(body) or message.get("more_body", False)
        yield {**message, "body": bytes(body[start : start + PIECE]), "more_body": more}
