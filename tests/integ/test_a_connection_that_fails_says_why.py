"""A client that cannot reach ZooKeeper, or must not, says so and says what to do."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from zkplan import Client, ClientClosed, ZooKeeperUnavailable
from zkplan.testing.loopback import free_port
from zkplan.testing.server_process import ServerProcess

from .support import WAIT_S, note, notes, wait_until


def test_an_unreachable_zookeeper_is_told_within_the_connect_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = KazooClient.start_async

    def begin_and_be_refused(client: KazooClient) -> Any:
        begun = begin(client)
        # On a busy machine its thread may come to that after the time-out, and has no reason then.
        wait_until(lambda: client.logger.complaint, "it is refused")
        return begun

    monkeypatch.setattr(KazooClient, "start_async", begin_and_be_refused)
    start = time.monotonic()
    told = r"127.0.0.1:.*within 0.5 s \(.*Connection refused\); is it running"
    with pytest.raises(ZooKeeperUnavailable, match=told):
        zkplan.connect(f"127.0.0.1:{free_port()}", connect_timeout=0.5)
    assert time.monotonic() - start < 10  # that would be the time-out of who asks for none


def test_a_call_without_an_answer_ends_after_the_patience(
    zookeeper_server: ServerProcess,
) -> None:
    with zkplan.connect(zookeeper_server.hosts, patience=0.5) as client:
        transport = client.transport
        # A server that has just started, or goes on, may well take longer than that.
        short, transport.patience_s = transport.patience_s, WAIT_S
        plan = client.create_plan()
        plan.add_task(int)
        zookeeper_server.pause()
        transport.patience_s = short
        with pytest.raises(ZooKeeperUnavailable, match=r"for 0\.5 s.*may or may not be applied"):
            plan.add_task(int)
        transport.patience_s = WAIT_S
        zookeeper_server.resume()
        zookeeper_server.wait_serving()
        # The write was under way, and it is applied; the plan can be used as before.
        plan.add_task(int)
        wait_until(lambda: plan.status().added == 3, "all three are there")


def test_a_closed_client_says_so(zookeeper_hosts: str, zkplan_root: str) -> None:
    client = zkplan.connect(zookeeper_hosts, root=zkplan_root)
    plan = client.create_plan()
    client.close()
    client.close()
    with pytest.raises(ClientClosed, match="was closed"):
        plan.status()
    plan.client = zkplan.connect(zookeeper_hosts, root=zkplan_root)
    plan.remove()
    plan.client.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_told_to_connect_anew(zkplan_client: Client, tmp_path: Path) -> None:
    plan = zkplan_client.create_plan()
    file = tmp_path / "child"
    # As where another thread asks at the moment of the fork: nobody will let go of it in the child.
    with zkplan_client.transport._requests._lock:
        child = os.fork()
        if child == 0:  # pragma: no cover - in another process
            try:
                plan.status()
            except ClientClosed as error:
                note(file, str(error))
                zkplan_client.close()
                note(file, "closed")
            except BaseException as error:
                note(file, repr(error))
            finally:
                os._exit(0)
    os.waitpid(child, 0)
    refused, closed = notes(file)
    assert "connect anew in the child" in refused
    assert closed == "closed"
    assert plan.status().state == "defining"
