"""A service of the test, on a real socket of loopback, and what asks it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

import zkplan
from tests.tools.support import WAIT_S, wait_until
from zkplan.service import Link, Options, Tokens, create_app
from zkplan.service.run import configured, listening


class Answer(NamedTuple):
    """What a service has answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Event(NamedTuple):
    """One event of a stream."""

    name: str
    data: dict[str, Any]


class Service:
    """A service that runs in a thread of the test. `token` has every role; empty: it is open."""

    def __init__(
        self,
        hosts: str,
        root: str,
        *,
        is_open: bool = False,
        tokens: Path | None = None,
        store: str = "",
        secret: str | None = None,
        **options: Any,
    ) -> None:
        self.tokens = None if is_open else Tokens(tokens)
        self.token = "" if self.tokens is None else self.tokens.add_one_time()
        given: dict[str, Any] = {"serializer": "json", "patience": 2.0, "store": store or None}
        given["secret"] = secret
        link = Link(lambda: zkplan.connect(hosts, root, **given))
        link.client.prepare()
        self.link = link
        self.app = app = create_app(link, self.tokens, Options(**{"rate": 0, **options}))
        opened = listening("127.0.0.1", 0, app.state.options.proxies)
        self.connections = opened.connections
        self.port: int = opened.getsockname()[1]
        self.server = uvicorn.Server(configured(app, opened))
        self._work, self._watcher = app.state.lease_calls, app.state.watcher
        self._thread = threading.Thread(target=self.server.run, args=([opened],), daemon=True)

    def start(self) -> Service:
        self._thread.start()
        wait_until(lambda: self.server.started, "the service to start")
        return self

    def _ended(self) -> None:
        self._watcher.end()
        self._work.end()

    def stop(self) -> None:
        """As a signal does."""
        self.server.should_exit = True
        for loop in self.server.servers:
            loop.get_loop().call_soon_threadsafe(self._ended)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the service does not stop"
        self.link.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str | None] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        """Ask once. A header that is None is left out."""
        given: dict[str, str | None] = {"Content-Type": "application/json"}
        if self.token:
            given["Authorization"] = f"Bearer {self.token}"
        given.update(headers or {})
        sent = {name: value for name, value in given.items() if value is not None}
        data = json.dumps(body).encode() if body is not None else raw
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Any:
        """What a GET gives, which is no error."""
        answer = self.ask("GET", f"/v1{path}", headers={**headers})
        assert answer.status == 200, answer
        return answer.data

    def post(self, path: str, body: Any = None, method: str = "POST", **headers: str) -> Any:
        """What a change gives, which is no error."""
        answer = self.ask(method, f"/v1{path}", body, {**headers})
        assert answer.status in (200, 201), answer
        return answer.data

    @contextmanager
    def events(self, path: str) -> Iterator[Iterator[Event]]:
        """The events of a stream, as they come, without signs of life."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request(
                "GET", f"/v1{path}", headers={"Authorization": f"Bearer {self.token}"}
            )
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            yield _events(answer)
        finally:
            connection.close()


def _events(answer: http.client.HTTPResponse) -> Iterator[Event]:
    name = ""
    for line in answer:
        field, _, value = line.decode().strip().partition(": ")
        if field == "event":
            name = value
        elif field == "data" and name != "beat":
            yield Event(name, json.loads(value))


@contextmanager
def serving(hosts: str, root: str, **options: Any) -> Iterator[Service]:
    """A service of that root, for the block."""
    service = Service(hosts, root, **options).start()
    try:
        yield service
    finally:
        service.stop()
