"""A client whose server went back in time is told so; one whose server was away goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import zkplan
from zkplan.testing.server_process import ServerProcess

ROOT = "/restored"
SESSION_S = 1.0
#: More transactions than a server makes by itself when it is back; once it has caught up, nobody
#: can see any more that it went back.
LOST = 50


def test_a_client_that_has_seen_more_than_the_server_is_told_that_it_was_restored(
    zookeeper_server: ServerProcess, tmp_path: Path
) -> None:
    """The server just closes its connection; without asking anew it would wait for ever."""
    data, kept = zookeeper_server.data / "data", tmp_path / "kept"
    with zkplan.connect(zookeeper_server.hosts, ROOT, session_timeout=SESSION_S) as client:
        client.create_plan("stands in the snapshot")
        zookeeper_server.stop()
        shutil.copytree(data, kept)
        zookeeper_server.start()
        for number in range(LOST):
            client.create_plan(f"lost {number}")
        zookeeper_server.stop()
        shutil.rmtree(data)
        shutil.copytree(kept, data)
        zookeeper_server.start()
        with pytest.raises(zkplan.HistoryLost, match="restored from an older state"):
            client.plans()
        with pytest.raises(zkplan.HistoryLost):
            client.create_plan("at once, too")
    with zkplan.connect(zookeeper_server.hosts, ROOT, session_timeout=SESSION_S) as client:
        assert [plan.name for plan in client.plans()] == ["stands in the snapshot"]


def test_a_client_whose_server_was_away_for_several_sessions_goes_on(
    zookeeper_server: ServerProcess,
) -> None:
    with zkplan.connect(zookeeper_server.hosts, ROOT, session_timeout=SESSION_S) as client:
        client.create_plan("before")
        zookeeper_server.kill()
        with pytest.raises(zkplan.KeeperUnavailable):
            zkplan.connect(zookeeper_server.hosts, ROOT, connect_timeout=4 * SESSION_S)
        zookeeper_server.start()
        client.create_plan("after")
        assert sorted(plan.name for plan in client.plans()) == ["after", "before"]
