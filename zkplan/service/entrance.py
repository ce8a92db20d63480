"""The entrance: each request passes it before any of it is read. Host, origin, token, rate."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..history.by import CHARS_MAX, acting
from ..log import get_logger
from .connections import Connection, origin_of
from .options import Options
from .problems import Problem
from .rates import Rates
from .seldom import Seldom
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
