"""`zkplan plan rm` removes one plan after confirmation, and reports ambiguous names and roots."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Callable

import pytest

from tests.tools.support import zkplan_command
from zkplan import Client, PlanError, PlanNotFound, connect

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(zookeeper_hosts: str, zkplan_root: str) -> Command:
    def call(
        *words: str, stdin: int = subprocess.DEVNULL, root: str = zkplan_root
    ) -> subprocess.CompletedProcess[str]:
        return zkplan_command(*words, "--hosts", zookeeper_hosts, "--root", root, stdin=stdin)

    return call


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("n", 1), ("", 1)])
def test_a_removal_on_a_terminal_asks_for_confirmation(
    answer: str, left: int, zkplan_client: Client, command: Command
) -> None:
    plan = zkplan_client.create_plan("nightly")
    plan.add_task(int)
    typed, terminal = pty.openpty()
    os.write(typed, f"{answer}\n".encode())
    ran = command("plan", "rm", "nightly", stdin=terminal)
    os.close(terminal)
    os.close(typed)
    assert f"Remove {plan.path} (nightly), defining, 1 task unfinished?" in ran.stderr
    assert (ran.returncode, len(zkplan_client.plans())) == (0 if not left else 2, left)


@pytest.mark.parametrize("words", [["rm", "--yes"], ["cancel"]])
def test_a_name_shared_by_several_plans_is_refused_with_their_numbers(
    words: list[str], zkplan_client: Client, command: Command
) -> None:
    first, second = (zkplan_client.create_plan("nightly") for _ in range(2))
    numbers = f"{int(first.number)}, {int(second.number)}"
    ran = command("plan", words[0], "nightly", *words[1:])
    assert ran.returncode == 2
    assert f"2 plans are named 'nightly': give the number of one: {numbers}" in ran.stderr
    with pytest.raises(PlanError, match=numbers):
        zkplan_client.plan("nightly", only=True)
    assert zkplan_client.plan("nightly").path == second.path
    assert command("plan", words[0], first.number, *words[1:]).returncode == 0
    assert [plan.path for plan in zkplan_client.plans()][-1] == second.path


def test_a_mistyped_root_is_reported_with_the_roots_beside_it(
    zookeeper_hosts: str, zkplan_client: Client, command: Command
) -> None:
    zkplan_client.prepare()
    mistyped = f"{zkplan_client.root}x"
    told = f"there is no such root; beside it: .*{zkplan_client.root}"
    with connect(zookeeper_hosts, root=mistyped) as client:
        for which in ("nightly", "3"):
            with pytest.raises(PlanNotFound, match=told):
                client.plan(which)
        assert client.transport.client.exists(mistyped) is None, "looking creates nothing"
    no_root = f"{zkplan_client.root}/claims"
    with (
        connect(zookeeper_hosts, root=no_root) as client,
        pytest.raises(PlanNotFound, match="it is not a root of zkplan"),
    ):
        client.plan("nightly")
    with pytest.raises(PlanNotFound) as missing:
        zkplan_client.plan("nightly")
    assert "root" not in str(missing.value).replace(zkplan_client.root, "")
    missing_root = f"there are no plans under {mistyped} of {zookeeper_hosts}: {told}"
    for words in (("plan", "ls"), ("worker", "ls"), ("queue", "ls"), ("limit", "ls"), ("metrics",)):
        listed = command(*words, root=mistyped)
        assert (listed.returncode, listed.stdout) == (2, "")
        assert re.search(missing_root, listed.stderr)
        assert command(*words).returncode == 0
    listed = command("plan", "ls", root=no_root)
    assert listed.returncode == 2
    assert "it is not a root of zkplan" in listed.stderr
