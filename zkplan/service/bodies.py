"""Bodies of requests: as large as the service takes, each and all of them together, and refused
before they are in memory."""

from __future__ import annotations

from collections import Counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import Problem

#: How many of the largest bodies are in memory at most: in all, and of one token.
AT_ONCE, OF_TOKEN = 16, 4


class Bodies:
    """Passes bodies of at most `most` bytes on, and answers 413 to larger ones. Those that are in
    memory count until they are answered: who sends too much at once is told to wait (429)."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most
        #: The bytes in memory, by caller.
        self._held: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = Headers(scope=scope).get("content-length", "")
        if told.isascii() and told.isdecimal() and int(told[:20]) > self._most:
            await self._refused().response()(scope, receive, send)
            return
        got, has_begun = 0, False
        key: str = scope["state"]["key"]

        async def counted() -> Message:
            nonlocal got
            message = await receive()
            if message["type"] == "http.request":
                more = len(message.get("body", b""))
                got += more
                self._held[key] += more
                if got > self._most:
                    raise self._refused()
                if (
                    self._held[key] > OF_TOKEN * self._most
                    or self._held.total() > AT_ONCE * self._most
                ):
                    raise self._crowded()
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
        finally:
            self._held[key] -= got
            if not self._held[key]:
                del self._held[key]

    def _crowded(self) -> Problem:
        return Problem(
            429,
            "too-many-bodies",
            f"bodies of more than {OF_TOKEN * self._most} bytes of this token are under way, or "
            f"{AT_ONCE * self._most} of all",
            "Send one after the other.",
            headers={"Connection": "close", "Retry-After": "5"},
        )

    def _refused(self) -> Problem:
        return Problem(
            413,
            "body-too-large",
            f"the body has more than {self._most} bytes",
            "Send it in several requests; the service takes more with --body-max.",
            headers={"Connection": "close"},  # the rest of it is not read
        )
