"""Bodies of requests: as large as the service takes, and refused before they are in memory."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import Problem


class Bodies:
    """Passes bodies of at most `most` bytes on, and answers 413 to larger ones."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = Headers(scope=scope).get("content-length", "")
        if told.isascii() and told.isdecimal() and int(told[:20]) > self._most:
            await self._refused().response()(scope, receive, send)
            return
        got, has_begun = 0, False

        async def counted() -> Message:
            nonlocal got
            message = await receive()
            if message["type"] == "http.request":
                got += len(message.get("body", b""))
                if got > self._most:
                    raise self._refused()
            return message

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, counted, noted)
        except Problem as problem:
            if has_begun:
                raise
            await problem.response()(scope, receive, send)

    def _refused(self) -> Problem:
        return Problem(
            413,
            "body-too-large",
            f"the body has more than {self._most} bytes",
            "Send it in several requests; the service takes more with --body-max.",
            headers={"Connection": "close"},  # the rest of it is not read
        )
