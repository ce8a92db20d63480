"""`zkplan server` as a person starts it: what it prints, how it ends and what it refuses."""

from __future__ import annotations

import operator
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import first_line, started, zkplan_command
from zkplan.testing.server_process import free_port

DEADLINE_S = 30.0


def served(
    *options: str, listen: str = "127.0.0.1:0", **process: Any
) -> AbstractContextManager[subprocess.Popen[str]]:
    command = (sys.executable, "-m", "zkplan", "server", "--listen", listen, *options)
    return started(*command, **process)


def address_in(line: str) -> str:
    return line.removeprefix("zkplan server at ").partition(",")[0]


def refused(*options: str) -> subprocess.CompletedProcess[str]:
    done = zkplan_command("server", *options)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_server_prints_its_address_and_ends_cleanly_on_a_signal(number: signal.Signals) -> None:
    with served() as server:
        line = first_line(server)
        assert line.endswith(", in memory only: its data is lost when it ends")
        with zkplan.connect(address_in(line)) as client:
            client.create_plan("of this moment")
        server.send_signal(number)
        output, errors = server.communicate(timeout=DEADLINE_S)
    assert (server.returncode, output) == (0, "")
    assert errors.startswith("note: this server asks for a login")


def test_the_port_option_serves_this_machine_on_that_port() -> None:
    port = free_port()
    # Kubernetes sets this variable for a service of that name.
    environment = os.environ | {"ZKPLAN_SERVER_PORT": "tcp://10.0.0.1:2181"}
    command = (sys.executable, "-m", "zkplan", "server", "--port", str(port))
    with started(*command, env=environment) as server:
        assert address_in(first_line(server)) == f"127.0.0.1:{port}"
    both = refused("--port", "2182", "--listen", "127.0.0.1:2183")
    assert both.returncode == 2
    assert "--port 2182 and --listen both name the port: give one of them" in both.stderr


def test_a_server_in_memory_has_a_store_that_ends_with_it(tmp_path: Path) -> None:
    with served(env=os.environ | {"TMPDIR": str(tmp_path)}) as server:
        hosts = address_in(first_line(server))
        worker = (sys.executable, "-m", "zkplan", "worker", "--hosts", hosts)
        with zkplan.connect(hosts) as client, started(*worker):
            with client.create_plan() as plan:
                made = plan.add_task(bytes, [2_000_000])
                taken = plan.add_task(operator.length_hint, [made], keep=True)
            assert taken.result(DEADLINE_S) == 2_000_000
            assert list(tmp_path.glob("zkplan-memory-*/store/plan-*"))
        server.send_signal(signal.SIGTERM)
        assert server.wait(DEADLINE_S) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_client_that_stays_connected_does_not_stop_the_server_from_ending() -> None:
    with served() as server, zkplan.connect(address_in(first_line(server))):
        server.send_signal(signal.SIGTERM)
        assert server.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("durability", ["durable", "fast"])
def test_the_data_folder_survives_kill_9(durability: str, tmp_path: Path) -> None:
    options = ("--data", str(tmp_path / "data"), "--durability", durability)
    with served(*options) as server:
        line = first_line(server)
        assert f"data in {tmp_path / 'data'}" in line
        with zkplan.connect(address_in(line)) as client:
            client.create_plan("kept")
            server.kill()
            server.wait(DEADLINE_S)
    with served(*options) as server, zkplan.connect(address_in(first_line(server))) as client:
        assert [plan.name for plan in client.plans()] == ["kept"]


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("", "cannot serve at {}: the port is taken.*--listen 127.0.0.1:0"),
        ("192.0.2.1:2181", "no address 192.0.2.1; --listen 127.0.0.1:2181"),
        ("no-such-host.invalid:2181", "no host 'no-such-host.invalid' is known"),
    ],
)
def test_an_unusable_address_is_refused_with_what_to_do_and_leaves_no_folder(
    listen: str, words: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = listen or f"127.0.0.1:{taken.getsockname()[1]}"
        done = refused("--listen", listen, "--data", str(tmp_path / "data"))
    assert done.returncode == 1
    assert re.search(words.format(listen), done.stderr)
    assert "Errno" not in done.stderr
    assert len(done.stderr.splitlines()) == 1, "no warning about a server that never was"
    assert not (tmp_path / "data").exists()


def test_a_folder_in_use_is_refused_and_its_process_is_named(tmp_path: Path) -> None:
    with served("--data", str(tmp_path)) as server:
        line = first_line(server)
        done = refused("--listen", "127.0.0.1:0", "--data", str(tmp_path))
        assert done.returncode == 1
        # `env`, which starts the server, becomes it: so the process has the id that is told.
        assert f"process {server.pid}" in done.stderr
        assert address_in(line) in done.stderr


def test_a_server_refuses_other_machines_without_tls_and_login_unless_open(tmp_path: Path) -> None:
    done = refused("--listen", "0.0.0.0:0")
    assert done.returncode == 2
    assert "it needs TLS and a login" in done.stderr
    done = refused("--listen", "0.0.0.0:0", "--data", str(tmp_path))
    assert done.returncode == 2
    assert "it needs TLS. Give" in done.stderr
    assert not list(tmp_path.iterdir())
    with served("--open", listen="0.0.0.0:0") as server:
        first_line(server)
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=DEADLINE_S)
    assert "warning: this server is open: anyone who can reach 0.0.0.0" in errors


@pytest.mark.parametrize(
    ("options", "told"),
    [
        *(
            (("--listen", listen), "")
            for listen in ("2181", "localhost:", "127.0.0.1:99999", "127.0.0.1:x")
        ),
        (("--listen", "127.0.0.1:0", "--data", ""), "the name is empty"),
    ],
)
def test_a_malformed_address_or_an_empty_folder_is_wrong_usage(
    options: tuple[str, ...], told: str
) -> None:
    done = refused(*options)
    assert done.returncode == 2
    assert told in done.stderr


def test_a_full_limit_of_znodes_refuses_writes_and_the_server_goes_on(tmp_path: Path) -> None:
    with served("--max-znodes", "40") as server:
        hosts = address_in(first_line(server))
        with zkplan.connect(hosts, patience=5) as client:
            plan = client.create_plan("too large")
            with pytest.raises(zkplan.ZkplanError):
                plan.add_tasks([zkplan.TaskSpec(os.getpid) for _ in range(100)])
            assert [found.name for found in client.plans()] == ["too large"]


def test_the_server_prints_where_the_login_of_its_folder_is(tmp_path: Path) -> None:
    data = tmp_path / "my data"
    with served("--data", str(data)) as server:
        first_line(server)
        assert (data / "login").stat().st_mode & 0o777 == 0o600
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=DEADLINE_S)
    assert f"need a digest login: {data}/login" in errors
    assert (data / "login").read_text().strip() not in errors
