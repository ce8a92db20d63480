"""The middleware that sees every request first: it checks host, origin, token, rate and size."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..basics.log import get_logger
from ..values.connection import CHARS_MAX, acting
from .answers import Problem
from .connections import Connection, Seldom, origin_of
from .tokens import ANYBODY, Caller, Tokens, time_text

#: Health checks: answered to everybody, under any host name, at any rate.
_HEALTH = ("/healthz", "/readyz")
#: The paths that need a token, and the exception.
_GUARDED, _FREE = ("/v1/", "/metrics"), "/v1/openapi.json"
_TOO_MANY = "too-many-requests"
#: The delay of an answer that refuses a request beyond the rate.
REFUSAL_S = 1.0
_SECURITY = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # No shared cache keeps data of plans; a browser asks whether its copy is fresh.
    "Cache-Control": "no-cache, private",
}
#: The static files of the page.
PAGE = Path(__file__).parent / "page"
log = get_logger("zkplan.service")


@dataclass(frozen=True)
class Options:
    """The options of a service.

    `body_max` is in bytes. `rate` is how many requests a second one token, or one address without a
    token, may send (0: any number), `burst` how many at once. The service looks for changes at most
    `looks` times a second. `host_names` are the hosts that a request may name (empty: any).
    `proxies` are addresses and networks of proxies: the service believes them when they name the
    client of a request.
    """

    body_max: int = 16 * 1024 * 1024
    rate: float = 100.0
    burst: float = 400.0
    looks: float = 2.0
    host_names: frozenset[str] = field(default_factory=frozenset)
    proxies: tuple[str, ...] = ()
    page: Path = PAGE


class Entrance:
    """Refuses requests, or passes them on with the caller in `scope["state"]["caller"]`.

    Without `tokens` every caller has every role.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens | None, options: Options) -> None:
        self._app, self._tokens, self._options = app, tokens, options
        self._rates = Rates(options.rate, options.burst)
        self._seldom = Seldom()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, answer, is_known = time.monotonic(), _Answer(send), False
        state = scope.setdefault("state", {})
        state["caller"], state["key"] = None, ""
        try:
            if scope["path"] not in _HEALTH:
                caller = self._caller(scope)
                is_known = caller is not None
                acting.set(_in_histories(caller))
        except Problem as problem:
            if problem.kind == _TOO_MANY:
                # A caller that goes on at once gets one refusal a second on each connection:
                # refusals take time, for which callers within the rate would wait.
                await asyncio.sleep(REFUSAL_S)
            if scope["method"] not in ("GET", "HEAD"):
                # The body of the request is not read, so the connection cannot be used again.
                problem.headers = {**(problem.headers or {}), "Connection": "close"}
            await problem.response()(scope, receive, answer)
        else:
            await self._pass(scope, receive, answer)
        finally:
            self._record(scope, answer.status, time.monotonic() - begin, is_known)

    async def _pass(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            await self._app(scope, receive, answer)
        except Exception:
            log.exception("an unexpected error")
            if answer.status:
                raise  # half of an answer is sent: the server ends the connection
            text = "the service has met an unexpected error"
            problem = Problem(500, "internal", text, "Report it, with the log of the service.")
            await problem.response()(scope, receive, answer)

    def _caller(self, scope: Scope) -> Caller | None:
        """The caller of a request; None for a stranger. Raises Problem to refuse the request."""
        headers = Headers(scope=scope)
        self._check_host(headers)
        path: str = scope["path"]
        caller = ANYBODY if self._tokens is None else self._known(headers)
        if caller is not None and caller.has_expired():
            raise Problem(
                401,
                "token-expired",
                f"the token {caller.id} has expired ({time_text(caller.expires)})",
                "Make another token: `zkplan serve new-token --tokens FILE --role ROLE`.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        address = origin_of((scope.get("client") or ("",))[0])
        key = caller.id if caller is not None and caller.id else address
        scope["state"].update(caller=caller, key=key)
        connection: Connection | None = scope["state"].get("connection")
        if connection is not None and not connection.give("" if caller is None else key, caller):
            raise Problem(
                429,
                "too-many-connections",
                "this token, or all tokens together, have the maximum number of connections",
                "Close some, or use another service of the same root.",
                headers={"Retry-After": "10", "Connection": "close"},
            )
        wait = self._rates.take(key)
        if wait > 0:
            raise Problem(
                429,
                _TOO_MANY,
                f"more than {self._options.rate:g} requests a second",
                "Wait as long as Retry-After says, and ask for more in each request.",
                headers={"Retry-After": str(max(1, round(wait + 0.5)))},
            )
        if caller is None and path.startswith(_GUARDED) and path != _FREE:
            raise Problem(
                401,
                "no-token",
                "the request has no token that is known here",
                "Send one: `Authorization: Bearer TOKEN`. `zkplan serve new-token` makes one.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return caller

    def _record(self, scope: Scope, status: int, seconds: float, is_known: bool) -> None:
        """Log the request, without headers and query, which may hold secrets. Strangers, and
        callers beyond the rate, cannot fill the log."""
        method, path, caller = scope["method"], scope["path"][:300], scope["state"]["caller"]
        who = f"{caller.id} ({caller.name})" if caller is not None and caller.id else "-"
        line = f"{method} {path!r} {status} {seconds * 1000:.0f} ms by {who}"
        if method in ("GET", "HEAD") and status < 500:
            log.debug("%s", line)
        elif is_known:
            log.info("%s", line)
        else:
            self._seldom.info(str(status), line)

    def _known(self, headers: Headers) -> Caller | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or self._tokens is None:
            return None
        return self._tokens.find(token.strip())

    def _check_host(self, headers: Headers) -> None:
        """Refuse pages of other origins, also those whose host name leads here (DNS rebinding)."""
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname if _is_plain(host) else None
        if self._options.host_names and name not in self._options.host_names:
            raise Problem(
                421,
                "wrong-host",
                "the request names a host that is not this service",
                "Use an address that the service prints, or name the host with --host-name.",
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        is_own = origin is None or (_is_plain(origin) and urlsplit(origin).netloc == host)
        if not is_own or site not in ("none", "same-origin"):
            raise Problem(
                403,
                "other-origin",
                "a page of another origin may not use this service",
                "Use a program, or the page that the service itself serves.",
            )


def _is_plain(text: str) -> bool:
    """Whether urlsplit accepts the text: unpaired brackets, for example, raise ValueError."""
    try:
        urlsplit(f"//{text.rpartition('//')[2]}").hostname  # noqa: B018
    except ValueError:
        return False
    return True


class _Answer:
    """Sends an answer with the headers that protect browsers, and notes its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY.items():
                headers.setdefault(name, value)
        await self._send(message)


def _in_histories(caller: Caller | None) -> str:
    """The name of the caller in the histories of plans; empty for an unknown one."""
    if caller is None or not caller.id:
        return ""
    return f"{caller.name[: CHARS_MAX - 20]} (token {caller.id})"


#: The most callers whose rates are remembered. The one that was silent longest is forgotten.
CALLERS_MAX = 10_000


class Rates:
    """A token bucket for each caller: `rate` requests a second (0: no limit), `burst` at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, max(1.0, burst)
        #: How many requests each caller had left, and at which time.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float | None = None) -> float:
        """Take one request. Returns 0, or the seconds until a request may be taken."""
        if self._rate <= 0:
            return 0.0
        now = time.monotonic() if now is None else now
        left, when = self._left.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - when) * self._rate)
        taken = left >= 1
        self._left[caller] = (left - taken, now)
        if len(self._left) > CALLERS_MAX:
            self._left.popitem(last=False)
        return 0.0 if taken else (1 - left) / self._rate


#: Bodies in memory may be this many times the largest body: in all, and of one token.
AT_ONCE, OF_TOKEN = 16, 4


class Bodies:
    """Middleware that answers 413 to bodies of more than `most` bytes, and 429 to a caller that
    sends too much at once, before they are in memory. A body counts until it is answered."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most
        #: The bytes in memory, by caller.
        self._held: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "")
        if length.isascii() and length.isdecimal() and int(length[:20]) > self._most:
            await self._too_large().response()(scope, receive, send)
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
                    raise self._too_large()
                is_crowded = self._held.total() > AT_ONCE * self._most
                if is_crowded or self._held[key] > OF_TOKEN * self._most:
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
            f"unanswered bodies have more than {OF_TOKEN * self._most} bytes for this token, or "
            f"{AT_ONCE * self._most} for all",
            "Send one body after the other.",
            headers={"Connection": "close", "Retry-After": "5"},
        )

    def _too_large(self) -> Problem:
        return Problem(
            413,
            "body-too-large",
            f"the body has more than {self._most} bytes",
            "Send it in several requests, or raise --body-max of the service.",
            headers={"Connection": "close"},  # the rest of it is not read
        )
