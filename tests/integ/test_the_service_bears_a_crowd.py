"""Idle, slow and greedy clients of a service do not block other clients or fill the log."""

from __future__ import annotations

import logging
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tests.tools.support import WAIT_S, Here, first_line, run_python, started, wait_until
from zkplan.service import connections, entrance, new_token
from zkplan.service import entrance as bodies
from zkplan.service import events as watcher
from zkplan.service import run as patience

from .serving import Service, serving

Waiting = Callable[[Service], socket.socket]


def connected(service: Service | int, sent: str = "") -> socket.socket:
    port = service if isinstance(service, int) else service.port
    made = socket.create_connection(("127.0.0.1", port), WAIT_S)
    made.sendall(sent.replace("\n", "\r\n").encode())
    return made


def head(service: Service, line: str, *more: str) -> str:
    token = f"Authorization: Bearer {service.token}"
    return "\n".join([f"{line} HTTP/1.1", f"Host: 127.0.0.1:{service.port}", token, *more, "", ""])


def status(connection: socket.socket) -> int:
    """That of the answer which comes next; 0 if none comes."""
    found = re.match(rb"HTTP/1.1 (\d+) ", connection.recv(4096))
    return int(found[1]) if found else 0


def is_ended(connection: socket.socket) -> bool:
    with suppress(ConnectionError):
        while connection.recv(65_536):
            pass
    return True


def token_of(service: Service, text: str) -> dict[str, str | None]:
    return {"Authorization": f"Bearer {text}"}


def test_idle_connections_do_not_block_others_or_fill_the_log(here: Here, tmp_path: Path) -> None:
    tokens, log = tmp_path / "tokens", tmp_path / "log"
    text = new_token(tokens, "", ["read"])
    words = ["-m", "zkplan", "serve", "--hosts", here[0], "--root", here[1]]
    few = ["sh", "-c", 'ulimit -n 160; exec "$@"', "sh", sys.executable, *words]
    with (
        log.open("w") as opened,
        started(*few, "--tokens", str(tokens), "--listen", "127.0.0.1:0", stderr=opened) as process,
        ExitStack() as crowd,
    ):
        port = int(first_line(process).rstrip("/").rpartition(":")[2])
        for _ in range(400):
            crowd.enter_context(closing(connected(port)))
        with closing(connected(port)) as asking:
            line = f"GET /v1/plans HTTP/1.1\nHost: localhost\nAuthorization: Bearer {text}\n\n"
            asking.sendall(line.replace("\n", "\r\n").encode())
            assert status(asking) == 200
        with closing(connected(port, "GET /readyz HTTP/1.1\nHost: localhost\n\n")) as asking:
            assert status(asking) == 200
    assert len(log.read_text().splitlines()) < 10, log.read_text()[:2000]


def half_a_head(service: Service) -> socket.socket:
    return connected(service, "GET /v1/plans HTTP/1.1\nHost: loc")


def half_a_head_behind_an_answer(service: Service) -> socket.socket:
    made = connected(service, head(service, "GET /v1/plans"))
    assert status(made) == 200
    made.sendall(b"GET /v1/pla")
    return made


def half_a_body(service: Service) -> socket.socket:
    return connected(service, head(service, "POST /v1/plans", "Content-Length: 90") + '{"name":')


def a_body_behind_its_refusal(service: Service) -> socket.socket:
    return connected(service, head(service, "GET /v1/nothing", "Content-Length: 90") + "x")


def a_reader(service: Service, asked: str) -> socket.socket:
    """It takes little at a time."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    made.settimeout(WAIT_S)
    made.connect(("127.0.0.1", service.port))
    made.sendall(asked.replace("\n", "\r\n").encode())
    return made


def a_reader_that_sleeps(service: Service) -> socket.socket:
    return a_reader(service, 50 * head(service, "GET /v1/openapi.json"))


@pytest.mark.parametrize(
    "slow",
    [
        half_a_head,
        half_a_head_behind_an_answer,
        half_a_body,
        a_body_behind_its_refusal,
        a_reader_that_sleeps,
    ],
)
def test_a_client_that_keeps_the_service_waiting_is_disconnected(
    here: Here, monkeypatch: pytest.MonkeyPatch, slow: Waiting
) -> None:
    for name in ("HEAD_S", "NEXT_S"):
        monkeypatch.setattr(connections, name, 0.5)
    for name in ("BODY_S", "SEND_S"):
        monkeypatch.setattr(patience, name, 0.5)
    with serving(*here) as service, closing(slow(service)) as made:
        wait_until(lambda: len(service.connections) > 0, "it is there")
        wait_until(lambda: len(service.connections) == 0, "it is cut off")
        assert is_ended(made)
        assert service.get("/plans")["items"] == []


def test_a_slow_client_that_goes_on_gets_time(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("HEAD_S", 1.0), ("NEXT_S", 1.0), ("SWEEP_S", 0.05)):
        monkeypatch.setattr(connections, name, value)
    monkeypatch.setattr(patience, "SEND_S", 1.0)
    with serving(*here) as service:
        body = f'{{"name": "{"x" * 400}"}}'
        with closing(
            connected(service, head(service, "POST /v1/plans", f"Content-Length: {len(body)}"))
        ) as slow:
            for letter in body:
                slow.sendall(letter.encode())
                service.ask("GET", "/healthz")
            assert status(slow) in (201, 422)
        assert service.post("/leases/claim", {"wait": 1.0}) == {"tasks": []}
        plan = service.post("/plans", {})["number"]
        large = {"tasks": [{"function": "operator:neg", "args": ["x" * 900_000]}]}
        (task,) = service.post(f"/plans/{plan}/tasks", large)["tasks"]
        where = f"GET /v1/plans/{plan}/tasks/{task['number']}/arguments"
        with closing(a_reader(service, head(service, where, "Connection: close"))) as reader:
            got = 0
            while more := len(reader.recv(2_048)):
                got += more
                service.ask("GET", "/healthz")
            assert got > 900_000


@pytest.fixture
def two_tokens(tmp_path: Path) -> tuple[Path, str, str]:
    file = tmp_path / "tokens"
    return file, new_token(file, "one", ["read"]), new_token(file, "other", ["read"])


@pytest.fixture
def service(here: Here, two_tokens: tuple[Path, str, str]) -> Iterator[Service]:
    """Its tokens are those of the file, and `token` is the first of them."""
    with serving(*here, tokens=two_tokens[0]) as made:
        made.token = two_tokens[1]
        yield made


def test_each_token_has_its_own_maximum_of_streams(
    service: Service, two_tokens: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "LISTENERS_OF_TOKEN", 3)
    other = token_of(service, two_tokens[2])
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(service.events("/events"))
        refused = service.ask("GET", "/v1/events")
        assert (refused.status, refused.data["type"]) == (
            429,
            "urn:zkplan:problem:too-many-streams",
        )
        assert service.ask("GET", "/v1/plans", headers=other).status == 200
        service.token = two_tokens[2]
        with service.events("/events") as told:
            assert next(told).name == "root"
    wait_until(lambda: service.app.state.watcher.listeners == 0, "all have gone")
    service.token = two_tokens[1]
    with service.events("/events") as told:
        assert next(told).name == "root"


def test_a_revoked_or_expired_token_ends_only_its_own_streams(
    service: Service, two_tokens: tuple[Path, str, str]
) -> None:
    file, first, second = two_tokens
    service.token = second
    with service.events("/events") as stays:
        assert next(stays).name == "root"
        service.token = first
        with closing(connected(service, head(service, "GET /v1/events"))) as one:
            assert status(one) == 200
            file.write_text("".join(file.read_text().splitlines(True)[1:]))
            assert is_ended(one)
        service.token = new_token(file, "late", ["read"], 2.0)
        with closing(connected(service, head(service, "GET /v1/events"))) as late:
            assert status(late) == 200
            assert is_ended(late)
        assert service.ask("GET", "/v1/plans").data["type"].endswith("token-expired")
        service.token = second
        service.get("/plans")
        wait_until(lambda: service.app.state.watcher.listeners == 1, "the other one stays")


def test_each_token_has_its_own_maximum_of_connections(
    here: Here, two_tokens: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "OF_TOKEN_MAX", 3)
    with serving(*here, tokens=two_tokens[0]) as service, ExitStack() as stack:
        service.token = two_tokens[1]
        for _ in range(3):
            stack.enter_context(service.events("/events"))
        refused = service.ask("GET", "/v1/plans")
        assert refused.data["type"] == "urn:zkplan:problem:too-many-connections"
        other = token_of(service, two_tokens[2])
        assert service.ask("GET", "/v1/plans", headers=other).status == 200
        assert service.ask("GET", "/readyz").status == 200


def test_a_new_connection_takes_the_place_of_the_oldest_without_a_token(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STRANGERS_OF_ADDRESS", 5)
    with serving(*here) as service, ExitStack() as stack, service.events("/events") as stays:
        idle = [stack.enter_context(closing(connected(service))) for _ in range(8)]
        assert all(map(is_ended, idle[:3]))
        wait_until(lambda: len(service.connections) == 6, "the youngest and the stream stay")
        service.post("/plans", {})
        assert {"root"} == {next(stays).name for _ in range(2)}


def test_each_token_has_its_own_maximum_of_unfinished_request_bodies(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "OF_TOKEN", 1)
    with serving(*here, body_max=100_000) as service, ExitStack() as stack:
        first, second = (
            stack.enter_context(
                closing(
                    connected(service, head(service, "POST /v1/plans", "Content-Length: 90000"))
                )
            )
            for _ in range(2)
        )
        first.sendall(b" " * 60_000)
        assert service.post("/plans", {"name": "small"})["number"] >= 0
        second.sendall(b" " * 60_000)
        # Whichever is read last is too much.
        first.settimeout(0.01)
        refused = []

        def answered() -> bool:
            for each in (first, second):
                each.settimeout(0.05)
                with suppress(TimeoutError):
                    refused.append(status(each))
            return bool(refused)

        wait_until(answered, "one of them is refused")
        assert refused == [429]


def test_requests_beyond_the_rate_are_refused_one_a_second_on_each_connection(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends thousands at once takes no time from others with their refusal."""
    monkeypatch.setattr(entrance, "REFUSAL_S", 3600.0)
    with (
        serving(*here, rate=0.001, burst=3.0) as service,
        closing(connected(service, 100 * head(service, "GET /v1/caller"))) as greedy,
    ):
        got = b""
        while got.count(b'"root":') < 3 or not got.endswith(b"}"):
            got += greedy.recv(4096)
        assert service.ask("GET", "/healthz").status == 200
        assert service.ask("GET", "/v1/plans", headers={"Authorization": None}).status == 401
        greedy.setblocking(False)
        with pytest.raises(BlockingIOError):
            greedy.recv(1)


def test_health_is_answered_at_any_rate_and_for_any_host_name(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = frozenset(("plans.example",))
    monkeypatch.setattr(entrance, "REFUSAL_S", 0.0)
    with serving(*here, rate=1.0, burst=2.0, host_names=names) as service:
        service.token = ""
        known = {"Host": "plans.example"}
        answers = [service.ask("GET", "/v1/openapi.json", headers={**known}) for _ in range(4)]
        assert answers[-1].status == 429
        for path in ("/healthz", "/readyz") * 20:
            assert service.ask("GET", path).status == 200


@pytest.mark.parametrize(("proxies", "last"), [((), 429), (("127.0.0.0/8",), 401)])
def test_only_a_configured_proxy_may_say_where_a_request_comes_from(
    here: Here, proxies: tuple[str, ...], last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrance, "REFUSAL_S", 0.0)
    with serving(*here, rate=0.01, burst=3.0, proxies=proxies) as service:
        service.token = ""
        found = [
            service.ask("GET", "/v1/plans", headers={"X-Forwarded-For": f"192.0.2.{number}"}).status
            for number in range(6)
        ]
        assert found == [401] * 3 + [last] * 3


def test_strangers_requests_are_logged_rarely(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with serving(*here) as service:
        for _ in range(50):
            answer = service.ask("POST", "/v1/plans", {}, {"Authorization": None})
            assert answer.status == 401
            with closing(connected(service, "what is this\n\n")) as strange:
                assert status(strange) == 400
        service.post("/plans", {})
    ours = [each.message for each in caplog.records if each.name.startswith(("zkplan.s", "uvi"))]
    refused = [each for each in ours if " 401 " in each]
    assert len(refused) == 1
    assert any(" 201 " in each for each in ours)
    assert len(ours) < 10, ours


_FULL = """
import resource, socket
from zkplan.service.run import listening
door = listening("127.0.0.1", 0)
door.setblocking(False)
first = socket.create_connection(door.getsockname())
last = first.fileno()
resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, last + 1))
for _ in range(3):
    try:
        door.accept()
    except BlockingIOError:
        pass
    else:
        raise AssertionError("it has room")
assert first.recv(1) == b"", "it was not turned away"
"""


def test_a_connection_that_cannot_be_accepted_is_refused_without_a_traceback() -> None:
    ran = run_python("-c", _FULL)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
