"""An address that answers /metrics, /healthz and /readyz over HTTP, on threads of its own."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from .prometheus import Collector, ThreadingWSGIServer, make_wsgi_app

#: What is wrong; empty where all is well.
Check = Callable[[], str]
_Start = Callable[[str, list[tuple[str, str]]], object]

#: Seconds that a client may take to send its request.
_PATIENCE_S = 10.0


class Endpoint:
    """Serves the families of `collector`, and what the checks say: 200, or 503 with the reason.

    `address` is host and port (0 takes a free one), or the path of a Unix socket. It serves from
    `start` to `close`; its threads do not keep the process alive. Whoever reaches the address may
    read all: there is no login.

    Raises OSError if it cannot listen there.
    """

    def __init__(
        self,
        address: tuple[str, int] | Path,
        collector: Collector,
        healthy: Check = lambda: "",
        ready: Check = lambda: "",
    ) -> None:
        self._metrics = make_wsgi_app(collector)
        self._checks = {"/healthz": healthy, "/readyz": ready}
        self._server = _listening(address)
        self._server.set_app(self._answer)

    @property
    def address(self) -> str:
        """HOST:PORT, as in a URL; the path of a Unix socket."""
        if isinstance(self._server, _UnixServer):
            return str(self._server.server_address)
        host, port = self._server.server_address[:2]
        host = host if isinstance(host, str) else host.decode()
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> Endpoint:
        serve = threading.Thread(
            target=self._server.serve_forever, name="zkplan-metrics", daemon=True
        )
        serve.start()
        return self

    def close(self) -> None:
        """Stop serving. Only after `start`."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: dict[str, Any], start: _Start) -> Iterable[bytes]:
        path, method = request["PATH_INFO"], request["REQUEST_METHOD"]
        if method != "GET":
            return _say(start, "405 Method Not Allowed", "only GET is answered", ("Allow", "GET"))
        if path == "/metrics":
            answer: Iterable[bytes] = self._metrics(request, start)
            return answer
        check = self._checks.get(path)
        if check is None:
            return _say(start, "404 Not Found", "there are /metrics, /healthz and /readyz")
        wrong = check()
        return _say(start, "503 Service Unavailable" if wrong else "200 OK", wrong or "ok")


def _say(start: _Start, status: str, text: str, *headers: tuple[str, str]) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [f"{text}\n".encode()]


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_S

    def log_message(self, *_: Any) -> None:
        """No line for each scrape."""

    def address_string(self) -> str:
        return "local" if not self.client_address else super().address_string()


class _Server(ThreadingWSGIServer):
    def server_bind(self) -> None:
        """Not as HTTPServer does, which asks for the name of the host, and may wait for it."""
        socket.socket.bind(self.socket, self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "zkplan", 0
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def get_request(self) -> tuple[Any, Any]:
        accepted, _ = UnixStreamServer.get_request(self)
        return accepted, ("local", 0)


def _listening(address: tuple[str, int] | Path) -> _Server:
    if isinstance(address, Path):
        return _UnixServer(os.fspath(address), _Handler)  # type: ignore[arg-type]
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, place = found[0]
    kind = _Server6 if family == socket.AF_INET6 else _Server
    return kind((str(place[0]), int(place[1])), _Handler)
