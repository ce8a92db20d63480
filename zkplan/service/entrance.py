"""The entrance: every request passes it first. It checks host, origin, token, rate and size."""

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

#: Whether the service lives: answered to everybody, by whatever name, and at any rate.
_HEALTH = ("/healthz", "/readyz")
#: What needs no token below what needs one: the contract.
_FREE = ("/v1/openapi.json",)
_GUARDED = ("/v1/", "/metrics")
_TOO_MANY = "too-many-requests"
#: How long an answer takes that refuses a request beyond the rate.
REFUSAL_S = 1.0
_SECURITY = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
log = get_logger("zkplan.service")


class Entrance:
    """Refuses what may not ask; tells the rest who asks, in `scope["state"]["caller"]`.

    Without `tokens` the service is open: anybody has every role.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens | None, options: Options) -> None:
        self._app, self._tokens, self._options = app, tokens, options
        self._rates = Rates(options.rate, options.burst)
        self._seldom = Seldom()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, told, is_known = time.monotonic(), _Told(send, scope), False
        state = scope.setdefault("state", {})
        state["caller"], state["key"] = None, ""
        try:
            if scope["path"] not in _HEALTH:
                caller = self._caller(scope)
                is_known = caller is not None
                acting.set(_in_histories(caller))
        except Problem as problem:
            if problem.kind == _TOO_MANY:
                # Who goes on at once gets one answer a second on each connection: refusing costs
                # time, too, and whoever keeps to the rate would wait for it.
                await asyncio.sleep(REFUSAL_S)
            if scope["method"] not in ("GET", "HEAD"):
                # Its body is not read: nobody need wait for the end of it.
                problem.headers = {**(problem.headers or {}), "Connection": "close"}
            await problem.response()(scope, receive, told)
        else:
            await self._pass(scope, receive, told)
        finally:
            self._record(scope, told.status, time.monotonic() - begin, is_known)

    async def _pass(self, scope: Scope, receive: Receive, told: _Told) -> None:
        try:
            await self._app(scope, receive, told)
        except Exception:
            log.exception("an error that the service does not know")
            if told.status:
                raise  # half of an answer is sent: the server ends the connection
            text = "the service has met an error that it does not know"
            problem = Problem(500, "internal", text, "Report it, with the log of the service.")
            await problem.response()(scope, receive, told)

    def _caller(self, scope: Scope) -> Caller | None:
        """Raises Problem."""
        headers = Headers(scope=scope)
        self._check_host(headers)
        path: str = scope["path"]
        caller = ANYBODY if self._tokens is None else self._known(headers)
        if caller is not None and caller.has_expired():
            raise Problem(
                401,
                "token-expired",
                f"the token {caller.id} has expired ({time_text(caller.expires)})",
                "Make another one: `zkplan serve new-token --tokens FILE --role ROLE`.",
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
                "this token, or all tokens together, have as many connections as the service takes",
                "Close some, or ask another service of the same root.",
                headers={"Retry-After": "10", "Connection": "close"},
            )
        wait = self._rates.take(key)
        if wait > 0:
            raise Problem(
                429,
                _TOO_MANY,
                f"more than {self._options.rate:g} requests a second",
                "Wait as long as Retry-After says, and ask for many things at once.",
                headers={"Retry-After": str(max(1, round(wait + 0.5)))},
            )
        if caller is None and path.startswith(_GUARDED) and path not in _FREE:
            raise Problem(
                401,
                "no-token",
                "the request has no token that is known here",
                "Give one: `Authorization: Bearer TOKEN`. `zkplan serve new-token` makes it.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return caller

    def _record(self, scope: Scope, status: int, seconds: float, is_known: bool) -> None:
        """A line for the request: never a header, nor what stands behind the path. Whoever may not
        ask, or asks too often, does not fill the log with it."""
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
        """A page of elsewhere may not ask, neither by its own name nor by one that leads here."""
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname if _is_plain(host) else None
        if self._options.host_names and name not in self._options.host_names:
            raise Problem(
                421,
                "wrong-host",
                "the request names a host that this service is not",
                "Ask by an address that the service prints, or name the host with --host-name.",
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        is_own = origin is None or (_is_plain(origin) and urlsplit(origin).netloc == host)
        if not is_own or site not in ("none", "same-origin"):
            raise Problem(
                403,
                "other-origin",
                "a page of another origin may not ask this service",
                "Ask from a program, or from the page that the service itself serves.",
            )


def _is_plain(text: str) -> bool:
    """Whether it can be looked at as a URL: no brackets that do not fit, nothing strange."""
    try:
        urlsplit(f"//{text.rpartition('//')[2]}").hostname  # noqa: B018
    except ValueError:
        return False
    return True


class _Told:
    """Sends answers with the headers that keep browsers safe, and notes the status."""

    def __init__(self, send: Send, scope: Scope) -> None:
        self._send, self._path = send, scope["path"]
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY.items():
                headers.setdefault(name, value)
            # Nothing of a plan stays in a cache that others use; the page may, if it is fresh.
            headers.setdefault("Cache-Control", "no-cache, private")
        await self._send(message)


def _in_histories(caller: Caller | None) -> str:
    """What the histories of plans call who asks; empty where nobody knows."""
    if caller is None or not caller.id:
        return ""
    return f"{caller.name[: CHARS_MAX - 20]} (token {caller.id})"


# ---- What a service is told when it starts.


#: The static files of the page.
PAGE = Path(__file__).parent / "page"


@dataclass(frozen=True)
class Options:
    """`body_max` is in bytes. `rate` is how many requests a second one token, or one address
    without a token, may send, 0 for any number; `burst` as many at once. `looks` is how often a
    second, at most, the service looks for what has changed. `host_names` are what a request
    may name as its host; empty for any. `proxies` are addresses and networks of proxies, which are
    believed when they say whom a request comes from.
    """

    body_max: int = 16 * 1024 * 1024
    rate: float = 100.0
    burst: float = 400.0
    looks: float = 2.0
    host_names: frozenset[str] = field(default_factory=frozenset)
    proxies: tuple[str, ...] = ()
    page: Path = PAGE


# ---- How many requests each caller may send: a bucket that fills as time goes by.


#: Buckets of so many callers are kept; who has not asked for longest begins anew.
CALLERS_MAX = 10_000


class Rates:
    """`rate` requests a second for each caller, `burst` at once; any number if `rate` is 0."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, max(1.0, burst)
        #: How many requests each caller has left, and when that was.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float | None = None) -> float:
        """Take one; returns 0, or in how many seconds there is one."""
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


# ---- Bodies of requests: as large as the service takes, each and all of them together, and
# refused before they are in memory.


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
