"""While ZooKeeper is away the service says so, loses nothing, and goes on by itself afterwards."""

from __future__ import annotations

import re
import signal
import sys
import time

from tests.tools.support import WAIT_S, first_line, started, wait_until
from zkplan.testing.server_process import ServerProcess

from .serving import Service, serving


def test_the_service_reports_an_unreachable_zookeeper_and_recovers(
    zookeeper_server: ServerProcess,
) -> None:
    root = "/t-away"
    with serving(zookeeper_server.hosts, root) as service:
        plan = service.post("/plans", {"name": "stays"})["number"]
        with service.events(f"/plans/{plan}/events") as events:
            assert next(events).data["whole"]
            zookeeper_server.kill()
            begin = time.monotonic()
            away = service.ask("GET", f"/v1/plans/{plan}")
            assert time.monotonic() - begin < 10
            assert (away.status, away.headers["retry-after"]) == (503, "5")
            assert away.data["type"] == "urn:zkplan:problem:zookeeper-unavailable"
            assert service.ask("GET", "/readyz").status == 503
            assert service.ask("GET", "/healthz").status == 200
            assert next(events).name == "problem"
            zookeeper_server.start()
            back = wait_until(lambda: is_back(service, plan), "the service goes on", 2 * WAIT_S)
            assert back["name"] == "stays"
            told = next(event for event in events if event.name == "plan")
            assert told.data["whole"]
        # What was found counts for a second.
        wait_until(lambda: service.ask("GET", "/readyz").status == 200, "it is ready again")


def is_back(service: Service, plan: int) -> dict[str, object] | None:
    answer = service.ask("GET", f"/v1/plans/{plan}")
    return answer.data if answer.status == 200 else None


def test_the_command_serves_with_a_generated_token_and_ends_on_a_signal(
    zookeeper_hosts: str, zkplan_root: str
) -> None:
    place = ("--hosts", zookeeper_hosts, "--root", zkplan_root, "--listen", "127.0.0.1:0")
    with started(sys.executable, "-m", "zkplan", "serve", *place) as process:
        line = first_line(process)
        found = re.fullmatch(r"serving at http://127\.0\.0\.1:(\d+)/#token=(\S+)", line)
        assert found is not None
        with serving(zookeeper_hosts, zkplan_root) as other:
            plan = other.post("/plans", {"name": "seen by both"})["number"]
            other.port, other.token = int(found[1]), found[2]
            assert other.get(f"/plans/{plan}")["name"] == "seen by both"
            with other.events(f"/plans/{plan}/events") as events:
                assert next(events).data["whole"]
                process.send_signal(signal.SIGTERM)
                assert list(events) == []
        assert process.wait(WAIT_S) == 0
        _, log = process.communicate()
        assert found[2] not in log
        assert f"'/v1/plans/{plan}" not in log  # a read is no line of the log at its usual level
