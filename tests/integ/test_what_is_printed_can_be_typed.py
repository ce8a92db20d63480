"""Commands printed in messages work as printed; if nothing can be done, the message says so."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from kazoo.security import CREATOR_ALL_ACL

import zkplan
from tests.tools.support import WAIT_S, Here, fail, secret_of, wait_until, working, zkplan_command
from zkplan import Client, InvalidTask, Plan, PlanFailed, PlanNotFound, WaitTimeout, ZooKeeperError
from zkplan.values.connection import Connection


def typed(message: str, default_root: str) -> subprocess.CompletedProcess[str]:
    """The command of `message` in a shell where another root is the usual one."""
    found = re.search(r"`(zkplan .*?)`", message)
    assert found is not None, message
    return zkplan_command(*shlex.split(found[1])[1:], env={"ZKPLAN_ROOT": default_root})


def dead_plan(client: Client) -> Plan:
    with client.create_plan(attempts=1) as plan:
        plan.add_task(fail, name=client.root)
    with working(client.transport.hosts, client.root), pytest.raises(PlanFailed):
        plan.wait(WAIT_S)
    return plan


def test_a_retry_command_typed_as_printed_retries_that_plan(
    zkplan_client: Client, elsewhere: Client
) -> None:
    mine, other = dead_plan(zkplan_client), dead_plan(elsewhere)
    assert mine.number == other.number
    with pytest.raises(PlanFailed) as told:
        other.wait(WAIT_S)
    assert typed(str(told.value), zkplan_client.root).returncode == 0
    assert (mine.status().dead, other.status().dead) == (1, 0)


def test_a_printed_command_omits_settings_that_a_bare_command_would_use(
    zkplan_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ZKPLAN_HOSTS", "ZKPLAN_ROOT", "ZKPLAN_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    config = tmp_path / "zkplan.toml"
    config.touch(0o600)
    monkeypatch.setenv("ZKPLAN_CONFIG", str(config))

    def shown(root: str) -> str:
        usual = Connection(zkplan_client.transport, root, hosts="127.0.0.1:2181")
        return usual.command("plan ls")

    assert shown("/zkplan") == "zkplan plan ls"
    assert shown("/other") == "zkplan plan ls --root /other"
    monkeypatch.setenv("ZKPLAN_ROOT", "/other")
    assert shown("/zkplan") == "zkplan plan ls --root /zkplan"
    monkeypatch.delenv("ZKPLAN_ROOT")
    config.write_text('default = "far"\n[profiles.far]\nhosts = "far.example:2181"\n')
    assert shown("/zkplan") == "zkplan plan ls --hosts 127.0.0.1:2181 --root /zkplan"


def test_a_show_command_typed_as_printed_shows_that_task(
    zkplan_client: Client, elsewhere: Client, zookeeper_hosts: str
) -> None:
    zkplan_client.create_plan().add_task(int, name="mine")
    with elsewhere.create_plan() as other:
        task = other.add_task(int, name="other")

    def told() -> str:
        with pytest.raises(WaitTimeout) as caught:
            other.wait(timeout=0.2)
        return str(caught.value) if "`zkplan task show" in str(caught.value) else ""

    elsewhere.transport.client.set(task.path, b"written by a later zkplan")
    with working(zookeeper_hosts, elsewhere.root) as worker:
        wait_until(lambda: worker.statistics().handed_back, "the worker cannot decode it")
        # While the worker has the task in its hands it is claimed, and the wait says: it goes on.
        message = wait_until(told, "who waits is told where to look")
    shown = typed(message, zkplan_client.root)
    assert task.path in shown.stdout


def test_without_the_secret_a_command_says_so_instead_of_task_not_found(
    zkplan_client: Client, here: Here
) -> None:
    with zkplan.connect(*here, secret=secret_of("s1")) as signing:
        task = signing.create_plan("signed").add_task(int, name="hidden")
    with pytest.raises(PlanNotFound, match=r"1 plan cannot be read here.*secret-files"):
        zkplan_client.plan("signed")
    seen = zkplan_client.plan(task.plan.path)
    with pytest.raises(InvalidTask, match=r"1 task whose name cannot be read here: the secret"):
        seen.task("hidden")
    assert [(found.number, found.name) for found in seen.tasks()] == [(task.number, None)]


def test_a_retry_of_a_plan_says_what_runs_again(zkplan_client: Client, here: Here) -> None:
    with zkplan_client.create_plan("cascade", on_failure="cascade", attempts=1) as plan:
        plan.add_task(fail)
    with working(*here):
        wait_until(plan.is_drained, "it drains")
    retry = zkplan_client.command("plan retry cascade")
    assert "(cascade): 1 task run again" in typed(f"`{retry}`", zkplan_client.root).stderr


def test_without_the_right_to_read_a_command_names_the_access_list(
    zookeeper_hosts: str, zkplan_root: str
) -> None:
    root = f"{zkplan_root}-secured"
    login = [("digest", "user:password")]
    with (
        zkplan.connect(
            zookeeper_hosts, root, auth_data=login, default_acl=CREATOR_ALL_ACL
        ) as owner,
        zkplan.connect(zookeeper_hosts, root) as stranger,
    ):
        owner.create_plan()
        with pytest.raises(ZooKeeperError, match=rf"access list .* read {root}: .*auth_data"):
            stranger.plans()
