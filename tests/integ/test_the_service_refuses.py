"""A service refuses strangers, other pages, endless bodies, pickles and slow listeners."""

from __future__ import annotations

import json
import logging
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import WAIT_S, Bomb, wait_until, working, zkplan_command
from zkplan.errors import InvalidSettings
from zkplan.service import Tokens, new_token
from zkplan.service import events as of_watcher
from zkplan.service import run as patience
from zkplan.service.tokens import ROLES, Role

from .serving import Service, serving

JSON_TYPE = "application/problem+json"


@pytest.fixture
def service(here: tuple[str, str]) -> Iterator[Service]:
    with serving(*here, body_max=100_000) as running:
        yield running


def problem(answer: Any, status: int, kind: str) -> dict[str, Any]:
    """The problem that an answer is: it says what happened, and what to do."""
    assert (answer.status, answer.headers["content-type"]) == (status, JSON_TYPE), answer
    facts: dict[str, Any] = answer.data
    assert facts["type"] == f"urn:zkplan:problem:{kind}"
    assert facts["detail"]
    assert facts["todo"]
    return facts


def test_each_route_requires_a_token_with_its_role(
    here: tuple[str, str], service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "tokens"
    texts = {role: new_token(file, f"for {role}", [role]) for role in ROLES}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not any(text in file.read_text() for text in texts.values())
    service.tokens._file = file  # type: ignore[union-attr]

    def ask(role: Role | None, method: str, path: str, body: Any = None) -> int:
        token = None if role is None else f"Bearer {texts[role]}"
        return service.ask(method, f"/v1{path}", body, {"Authorization": token}).status

    wanted = {"read": 403, "operate": 403, "author": 201, "work": 403}
    assert {role: ask(role, "POST", "/plans", {}) for role in ROLES} == wanted
    may_read = {"read": 200, "operate": 200, "author": 200, "work": 403}
    assert {role: ask(role, "GET", "/plans") for role in ROLES} == may_read
    may_operate = {"read": 403, "operate": 200, "author": 403, "work": 403}
    assert {role: ask(role, "PUT", "/limits/a", {"size": 1}) for role in ROLES} == may_operate
    assert ask(None, "GET", "/plans") == 401
    answer = service.ask("GET", "/v1/plans", headers={"Authorization": "Bearer zkp_00000000_x"})
    assert answer.headers["www-authenticate"] == "Bearer"
    problem(answer, 401, "no-token")
    late = {"Authorization": f"Bearer {new_token(file, 'late', ['read'], 0.001)}"}
    wait_until(
        lambda: service.ask("GET", "/v1/plans", headers={**late}).status == 401, "it has expired"
    )
    expired = service.ask("GET", "/v1/plans", headers={**late})
    assert "has expired (20" in problem(expired, 401, "token-expired")["detail"]
    # A line that is taken out of the file closes the door at once.
    file.write_text("")
    assert ask("read", "GET", "/plans") == 401
    file.chmod(0o644)
    with pytest.raises(InvalidSettings, match="every user of this machine can read it"):
        Tokens(file)
    told = caplog.text
    assert "for author" in told
    # A secret may contain "_" itself: what follows its last one may be a single letter.
    secrets = [text.split("_", 2)[2] for text in (*texts.values(), service.token)]
    assert all(len(secret) > 20 for secret in secrets)
    assert not any(secret in told for secret in secrets)


def test_a_program_settles_only_claims_made_under_its_own_name(
    service: Service, tmp_path: Path
) -> None:
    file = tmp_path / "tokens"
    names = {"owner": "resizer", "thief": "other", "next": "resizer", "nameless": "", "too": ""}
    texts = {who: new_token(file, name, ["work"]) for who, name in names.items()}
    plan = service.post("/plans", {})["number"]
    service.post(f"/plans/{plan}/tasks", {"tasks": [{"kind": "shrink"}, {"kind": "shrink"}]})
    service.post(f"/plans/{plan}/ready")
    service.tokens._file = file  # type: ignore[union-attr]

    def ask(who: str, path: str, body: Any) -> Any:
        token = {"Authorization": f"Bearer {texts[who]}"}
        return service.ask("POST", f"/v1{path}", body, {**token})

    (mine,) = ask("owner", "/leases/claim", {"wait": 10}).data["tasks"]
    value = [{"id": mine["id"], "value": 1}]
    for thief in ("thief", "nameless"):
        for verb, body in (
            ("complete", {"results": value}),
            ("fail", {"failures": [{"id": mine["id"], "message": "no"}]}),
            ("release", {"ids": [mine["id"]]}),
            ("renew", {"ids": [mine["id"]]}),
            ("log", {"id": mine["id"], "number": 1, "value": 1}),
        ):
            problem(ask(thief, f"/leases/{verb}", body), 403, "foreign-claim")
        update = {"operations": [{"do": "complete", **value[0]}]}
        problem(ask(thief, f"/plans/{plan}/update", update), 403, "foreign-claim")
    # A token that replaces another one, of the same name, goes on with what that has claimed.
    assert ask("next", "/leases/renew", {"ids": [mine["id"]]}).data["claims"][0]["ok"]
    assert ask("next", "/leases/complete", {"results": value}).status == 200
    (other,) = ask("nameless", "/leases/claim", {"wait": 10}).data["tasks"]
    problem(ask("too", "/leases/release", {"ids": [other["id"]]}), 403, "foreign-claim")
    assert ask("nameless", "/leases/complete", {"results": [{"id": other["id"]}]}).status == 200


def test_a_page_from_another_origin_gets_no_answer(here: tuple[str, str]) -> None:
    names = frozenset(("127.0.0.1", "localhost"))
    with serving(*here, is_open=True, host_names=names) as service:
        own = {"Origin": service.url, "Sec-Fetch-Site": "same-origin"}
        assert service.ask("POST", "/v1/plans", {}, {**own}).status == 201
        for strange in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = service.ask("POST", "/v1/plans", {}, {**strange})
            problem(answer, 403, "other-origin")
            assert "access-control-allow-origin" not in answer.headers
        # A name of elsewhere that leads here, as in DNS rebinding.
        answer = service.ask("GET", "/v1/plans", headers={"Host": "evil.example"})
        problem(answer, 421, "wrong-host")
        page = service.ask("GET", "/")
        assert page.headers["content-security-policy"].startswith("default-src 'self'")
        assert page.headers["x-content-type-options"] == "nosniff"
        assert len(service.get("/plans")["items"]) == 1


@pytest.mark.parametrize(
    ("raw", "status", "kind"),
    [
        (b"[" * 10_000 + b"]" * 10_000, 400, "wrong-body"),
        (b"[" * 90_000, 400, "wrong-body"),
        (b'{"name": NaN, "nam', 400, "not-json"),
        (b'{"weight": ' + b"9" * 9000 + b"}", 400, "wrong-body"),
        (b'{"name": "a\\nb"}', 422, "invalid-request"),
        (b'{"name": "\\ud800"}', 422, "invalid-request"),
        (b'{"weight": "3"}', 422, "invalid-request"),
        (b'{"colour": "red"}', 422, "invalid-request"),
        (b'{"name": "' + b"x" * 200_000 + b'"}', 413, "body-too-large"),
    ],
)
def test_a_wrong_body_is_refused_with_what_to_do(
    service: Service, raw: bytes, status: int, kind: str
) -> None:
    answer = service.ask("POST", "/v1/plans", raw=raw)
    assert answer.status in (400, 413, 422), answer
    assert (answer.status, answer.data["type"].rpartition(":")[2]) == (status, kind)
    assert len(answer.body) < 3000
    assert service.get("/plans")["items"] == []


def test_the_contract_lists_the_refusal_of_a_large_body_for_each_such_route(
    service: Service,
) -> None:
    routes = service.get("/openapi.json")["paths"].values()
    answers = [
        each["responses"] for route in routes for each in route.values() if "requestBody" in each
    ]
    assert len(answers) > 10
    assert all("413" in each for each in answers)


def test_an_endless_body_is_cut_off(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port), WAIT_S) as raw:
        head = f"POST /v1/plans HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.token}\r\n"
        raw.sendall(f"{head}Content-Type: application/json\r\n".encode())
        raw.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        sent = 0
        try:
            while sent < 50_000_000:
                raw.sendall(b"10000\r\n" + b" " * 65_536 + b"\r\n")
                sent += 65_536
        except OSError:
            pass  # it has closed the connection, as it should
        assert sent < 20_000_000
    assert service.get("/plans")["items"] == []


def test_wrong_tasks_are_refused_before_any_is_written(service: Service) -> None:
    plan = service.post("/plans", {})["number"]
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    good = {"function": "operator:add", "args": [1, 2]}
    for wrong, told in (
        ({"function": "operator:add", "args": [deep]}, "too deeply"),
        ({"function": "operator:add", "args": [{"$task": "nobody"}]}, "no task 'nobody'"),
        ({"function": "operator:add", "args": [{"$task": 1, "x": 2}]}, "must be alone"),
        ({"function": "operator:_private"}, "function"),
        ({"function": "os"}, "function"),
        ({"kind": "Resize!"}, "kind"),
        ({"function": "operator:add", "limits": ["nowhere"]}, "no limit 'nowhere'"),
        ({"function": "operator:add", "isolation": "process"}, "isolation"),
    ):
        answer = service.ask("POST", f"/v1/plans/{plan}/tasks", {"tasks": [good, wrong]})
        assert answer.status == 422, (wrong, answer)
        assert told in answer.data["detail"], (wrong, answer.data)
    assert service.get(f"/plans/{plan}")["added"] == 0
    claims: list[dict[str, Any]] = [
        *({"count": 0}, {"count": 501}, {"lease": 0.1}, {"lease": 1e9}, {"wait": -1}),
        *({"wait": 1e9}, {"kinds": ["A b"]}, {"kinds": [".."]}, {"queues": []}, {"queues": ["."]}),
    ]
    for asked in claims:
        answer = service.ask("POST", "/v1/leases/claim", asked)
        assert answer.status == 422, (asked, answer)
    late = service.ask("GET", f"/v1/plans/{plan}/tasks?limt=3")
    assert "limit" in problem(late, 422, "unknown-parameter")["todo"]
    problem(service.ask("GET", f"/v1/plans/{plan}/tasks/999"), 404, "task-not-found")
    problem(service.ask("POST", f"/v1/plans/{plan}/tasks/999/retry"), 404, "task-not-found")
    problem(service.ask("GET", "/v1/plans/123456"), 404, "plan-not-found")
    problem(service.ask("PATCH", "/v1/plans"), 405, "wrong-method")


def test_nothing_is_unpickled(here: tuple[str, str], service: Service, tmp_path: Path) -> None:
    file = tmp_path / "sprung"
    with zkplan.connect(*here) as author, working(*here):
        with author.create_plan("traps") as plan:
            kept = plan.add_task(Bomb, [file])
        plan.wait(WAIT_S)
    number, task = int(plan.number), int(kept.number)
    answer = service.ask("GET", f"/v1/plans/{number}/results/{task}")
    assert problem(answer, 406, "not-json")["task"] == task
    with zkplan.connect(*here) as author, author.create_plan("waits") as waits:
        held = waits.add_task(print, [Bomb(file)])
    where = f"/plans/{int(waits.number)}/tasks/{int(held.number)}"
    problem(service.ask("GET", f"/v1{where}/arguments"), 406, "not-json")
    assert service.get(where)["function"] == "builtins.print"
    assert service.post(f"{where}/skip", {"value": [1]})["changed"]
    problem(
        service.ask(
            "POST",
            f"/v1/plans/{int(waits.number)}/tasks",
            {"tasks": [{"function": "operator:add"}]},
        ),
        409,
        "plan-state",
    )
    assert not file.exists()


def test_a_caller_beyond_its_rate_gets_a_retry_after(here: tuple[str, str]) -> None:
    with serving(*here, rate=0.1, burst=5.0) as service:
        answers = [service.ask("GET", "/v1/workers") for _ in range(8)]
        assert [each.status for each in answers[:5]] == [200] * 5
        assert int(answers[-1].headers["retry-after"]) >= 1
        problem(answers[-1], 429, "too-many-requests")


def test_a_sleeping_listener_is_disconnected_and_does_not_block_others(
    here: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SEND_S", 0.5)
    monkeypatch.setattr(of_watcher, "WAITING_MAX", 4)
    with serving(*here, looks=50.0) as service:
        plan = service.post("/plans", {"name": "x" * 200})["number"]
        watcher = service.app.state.watcher
        with socket.socket() as sleeper, service.events(f"/plans/{plan}/events") as awake:
            sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sleeper.connect(("127.0.0.1", service.port))
            token = f"Authorization: Bearer {service.token}\r\n"
            asked = f"GET /v1/plans/{plan}/events HTTP/1.1\r\nHost: x\r\n{token}\r\n"
            sleeper.sendall(asked.encode())
            wait_until(lambda: watcher.listeners == 2, "both listen")
            next(awake)
            loop, large = service.server.servers[0].get_loop(), {"text": "x" * 100_000}
            deadline = time.monotonic() + WAIT_S
            while watcher.listeners == 2:
                event = of_watcher.Event("plan", large)
                loop.call_soon_threadsafe(watcher._send, f"{plan:010d}", event)
                assert next(awake).data == large
                assert time.monotonic() < deadline, "the sleeper still listens"
            assert watcher.listeners == 1


def test_the_command_is_closed_by_default(tmp_path: Path) -> None:
    for words, told in (
        (["--listen", "0.0.0.0:0"], "give --tokens FILE"),
        (["--listen", "0.0.0.0:0", "--open"], "give --tokens FILE"),
        (["--open", "--tokens", str(tmp_path / "t")], "no effect"),
        (["--tls-cert", str(tmp_path)], "belong together"),
        (["--listen", "0.0.0.0:0", "--tokens", str(tmp_path / "t")], "so it needs TLS"),
        (["--proxy", "plans.example"], "is not an address or network"),
    ):
        ran = zkplan_command("serve", "--hosts", "embedded:", *words)
        assert (ran.returncode, told in ran.stderr) == (2, True), ran
    file = tmp_path / "tokens"
    made = zkplan_command("serve", "new-token", "--tokens", str(file), "--role", "read")
    assert Tokens(file).find(made.stdout.strip()) is not None
    assert json.dumps(made.stdout.strip())[1:-1] not in file.read_text()
