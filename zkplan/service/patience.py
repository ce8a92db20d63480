"""How long a request may take to arrive, and its answer to be taken: who is slower is cut off."""

from __future__ import annotations

import time
from collections.abc import Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .connections import Connections

#: Seconds that a body may keep the service waiting, and the bytes that gain it a second more.
BODY_S, BODY_RATE = 20.0, 4096
#: Seconds in which the other end has to take a piece of an answer, so that the next one fits into
#: the buffers, and the most bytes of a piece.
SEND_S, PIECE = 20.0, 64 * 1024


class Patience:
    """The outermost layer. It has the connection of each request in `scope["state"]`."""

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
                return await receive()  # for its end, which may be far away
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
    """A large body in pieces: one that is sent at once is never waited for, and its end would have
    to be taken as fast as the end of a small one."""
    body = memoryview(message.get("body", b""))
    if len(body) <= PIECE:
        yield message
        return
    for start in range(0, len(body), PIECE):
        more = start + PIECE < len(body) or message.get("more_body", False)
        yield {**message, "body": bytes(body[start : start + PIECE]), "more_body": more}
