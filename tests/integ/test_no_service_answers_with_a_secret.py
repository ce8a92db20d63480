"""No long-running command, and none that starts processes, shows a password, key or argument."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tools.support import WAIT_S, Here, first_line, plain_client, started, zkplan_command
from zkplan.testing.server_process import free_port

from .planted import ARGUMENT, CANARY, LOGIN, PASSWORD, SECRET, Closed, closed_root, file_with


@pytest.fixture
def closed(here: Here) -> Iterator[Closed]:
    with closed_root(here[0], f"{here[1]}-closed") as made:
        yield made


@pytest.fixture
def environment(closed: Closed, tmp_path: Path) -> dict[str, str]:
    """That of the owner."""
    return {
        "ZKPLAN_HOSTS": closed.hosts,
        "ZKPLAN_ROOT": closed.root,
        "ZKPLAN_SECRET_FILES": file_with(tmp_path, SECRET),
        "ZKPLAN_LOGIN_USER": "owner",
        "ZKPLAN_LOGIN_PASSWORD": PASSWORD,
    }


@contextmanager
def searched(
    folder: Path, environment: dict[str, str], *words: str
) -> Iterator[subprocess.Popen[str]]:
    """The command, whose log is searched at its end: it ends with 0 when it is told to."""
    log = folder / "log"
    command = (sys.executable, "-m", "zkplan", *words, "--log-level", "debug")
    with (
        log.open("w") as opened,
        started(*command, stderr=opened, env=os.environ | environment) as process,
    ):
        yield process
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert CANARY.search(said + log.read_text()) is None


def ask(address: str, method: str, path: str, token: str, body: Any = None) -> tuple[int, str]:
    """Status and answer; of a stream of events its first line."""
    host, _, port = address.removeprefix("http://").strip("/").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        is_stream = "event-stream" in str(answer.headers["content-type"])
        told = answer.readline() if is_stream else answer.read()
        return answer.status, f"{answer.headers}{told.decode()}"
    finally:
        connection.close()


def test_answers_errors_and_logs_of_the_service_contain_no_planted_value(
    closed: Closed, environment: dict[str, str], tmp_path: Path
) -> None:
    """Each route as it is meant, with a token that is wrong, and with a body that is."""
    plan = closed.plans["done"]
    names = {"plan": str(int(plan.number)), "task": str(int(plan.task("second").number))}
    with searched(tmp_path, environment, "serve", "--listen", "127.0.0.1:0") as process:
        address, _, token = first_line(process).partition(" at ")[2].partition("#token=")
        assert first_line(process) == f"token for this run: {token}"  # once, to who started it
        shown = Path(f"/proc/{process.pid}/environ")
        if shown.exists():
            assert CANARY.search(shown.read_text(errors="replace")) is None
        status, told = ask(address, "GET", "/v1/openapi.json", token)
        routes = json.loads(told[told.index("{") :])["paths"]
        statuses = []
        for route, methods in routes.items():
            path = re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "planted"), route)
            path = path if path.startswith("/v1") else f"/v1{path}"
            for method in methods:
                for given, body in ((token, None), (token[:-5], None), (token, {"x": ARGUMENT})):
                    status, told = ask(address, method.upper(), path, given, body)
                    statuses.append(status)
                    assert status < 500, (method, path, told)
                    assert CANARY.search(told) is None, (method, path, told)
                    assert token not in told
    assert len(statuses) > 100
    assert {200, 401, 422} <= {*statuses}
    assert token not in (tmp_path / "log").read_text()


def test_metrics_of_a_closed_root_contain_no_planted_value(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with searched(tmp_path, environment, "metrics", "--listen", "127.0.0.1:0") as process:
        address = first_line(process).partition(" at ")[2].removesuffix("/metrics")
        for path, wanted in (("/metrics", 200), ("/healthz", 200), ("/readyz", 200), ("/x", 404)):
            status, told = ask(address, "GET", path, PASSWORD)
            assert status == wanted
            assert CANARY.search(told) is None


def test_a_server_with_a_file_of_logins_prints_none_of_them(tmp_path: Path) -> None:
    file = file_with(tmp_path, f"owner:{PASSWORD}", "logins")
    words = ("server", "--listen", f"127.0.0.1:{free_port()}", "--login-file", file)
    with searched(tmp_path, {}, *words) as process:
        hosts = first_line(process).removeprefix("zkplan server at ").partition(",")[0]
        with plain_client(hosts, auth_data=LOGIN) as client:
            assert "zookeeper" in client.get_children("/")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("demo", "--workers", "1", "--threads", "2", "--no-kill"),
        ("stress", "--workers", "1", "--tasks", "6", "--deps", "1", "--sleep", "0"),
        ("stress", "--workers", "2", "--tasks", "6", "--deps", "1", "--sleep", "0", "--supervised"),
    ],
    ids=" ".join,
)
def test_demo_and_stress_under_a_closed_root_print_no_secret(
    words: tuple[str, ...], environment: dict[str, str]
) -> None:
    ran = zkplan_command(*words, env=environment)
    assert ran.returncode == 0, ran
    assert CANARY.search(ran.stdout + ran.stderr) is None
