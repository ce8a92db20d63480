"""A task that takes over its worker gets the rights of the worker, and none in other roots."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.outsiders import TRIES, tried
from tests.tools.support import WAIT_S, WorkerProcess, plain_client, tree
from zkplan.testing.servers import remove_tree

ALICE: dict[str, Any] = {"auth_data": [("digest", "alice:wonder")]}


def use_all_of_the_worker(paths: list[str]) -> list[tuple[list[str], int]]:
    """As a task: for each connection in the worker's memory, what it may do, and may not."""
    gc.unfreeze()  # a worker has frozen what it began with
    clients = [each for each in gc.get_objects() if isinstance(each, KazooClient)]
    return [tried(client, paths, TRIES) for client in clients]


def test_a_compromised_worker_gets_nowhere_in_a_root_with_another_login(
    zookeeper_hosts: str, zkplan_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task may use whatever its worker has. In its own root that is enough for everything."""
    profile = tmp_path / "zkplan.toml"
    here, there = f"{zkplan_root}-here", f"{zkplan_root}-there"
    profile.touch(0o600)
    profile.write_text('[profiles.a.login]\nuser = "alice"\npassword = "wonder"\n')
    for name, value in (("CONFIG", str(profile)), ("PROFILE", "a")):
        monkeypatch.setenv(f"ZKPLAN_{name}", value)
    bob: dict[str, Any] = {"auth_data": [("digest", "bob:builder")]}
    with (
        zkplan.connect(zookeeper_hosts, there, **bob) as other,
        plain_client(zookeeper_hosts, auth_data=[*bob["auth_data"], *ALICE["auth_data"]]) as owner,
        zkplan.connect(zookeeper_hosts, here, **ALICE) as client,
        WorkerProcess(zookeeper_hosts, here, tmp_path / "log") as worker,
    ):
        other.create_plan().add_task(len, ["secret"])
        theirs = sorted(f"{there}{path}" for path in tree(owner, there))
        before = {path: owner.get(path)[0] for path in theirs}
        worker.wait_ready()
        ours = client.create_plan().path
        with client.create_plan() as plan:
            there_too = plan.add_task(use_all_of_the_worker, [theirs])
            inside = plan.add_task(use_all_of_the_worker, [[ours]])
        found = there_too.result(WAIT_S)
        assert found
        for may, refused in found:
            assert may == []
            assert refused >= len(theirs)
        assert {path: owner.get(path)[0] for path in theirs} == before
        assert any(f"write {ours}" in may for may, _ in inside.result(WAIT_S))
        worker.process.end(0)
        for root in (here, there):
            remove_tree(owner, root)
