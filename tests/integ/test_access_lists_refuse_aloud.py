"""What an access list refuses is told: each command says the path and the right, and ends with 2.

On ZooKeeper and on the embedded server alike.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from kazoo.security import CREATOR_ALL_ACL, make_acl

import zkplan
from zkplan import AccessDenied, Client, Plan
from zkplan.cli import cli
from zkplan.testing.znodes import remove_tree

from .support import Here, Run, plain_client, started, wait_until, working

LOGIN = [("digest", "owner:its-password")]
READERS = [*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True)]

#: By the words of a command, what follows them; each is tried on a closed root.
READING = {
    "plan ls": "",
    "plan show": "{failed}",
    "plan why": "{failed}",
    "plan graph": "{failed}",
    "task why": "{failed} {dead}",
    "plan wait": "{failed} --timeout 5",
    "plan check": "{failed} --no-repair",
    "plan history": "{failed}",
    "plan timeline": "{failed}",
    "task replay": "{failed} {dead}",
    "task ls": "{failed}",
    "task logs": "{failed} {dead}",
    "task show": "{failed} {dead} --values",
    "worker ls": "",
    "queue ls": "",
    "root budget show": "",
    "root retention show": "",
    "top": "--once",
    "limit ls": "",
    "schedule ls": "",
    "schedule show": "rare",
    "schedule next": "rare",
}
WRITING = {
    "plan gc": ("--state failed --keep 0 --yes", "write", "{failed_path}/ready"),
    "plan mark-ready": ("{defining}", "create", "{defining_path}"),
    "plan pause": ("{failed}", "write", "{failed_path}/ready"),
    "plan set": ("{failed} --weight 2", "write", "{failed_path}/ready"),
    "plan resume": ("{paused}", "write", "{paused_path}/ready"),
    "plan cancel": ("{failed}", "write", "{failed_path}/ready"),
    "plan rm": ("{failed} --yes", "write", "{failed_path}/ready"),
    "plan retry": ("{failed}", "create", "{failed_path}/task-{dead}"),
    "task skip": ("{failed} {dead} --yes", "create", "{failed_path}/task-{dead}"),
    "task cancel": ("{failed} {waiting} --yes", "delete", "{failed_path}/task-{waiting}"),
    "task set": ("{failed} {waiting} --priority 1", "delete", "{failed_path}/task-{dead}"),
    "task retry": ("{failed} {dead}", "create", "{failed_path}/task-{dead}"),
    "plan export": ("{failed} --pause --out {folder}/new", "write", "{failed_path}/ready"),
    "limit set": ("db 2", "create", "{root}/limits"),
    "limit rm": ("standing", "delete", "{root}/limits"),
    "schedule add": ("rare @yearly operator:pos --args [1]", "write", "{root}/schedules"),
    "schedule pause": ("rare", "write", "{root}/schedules"),
    "schedule resume": ("paused", "write", "{root}/schedules"),
    "schedule trigger": ("rare", "create", "{root}"),
    "schedule rm": ("rare", "write", "{root}/schedules"),
    "worker drain": ("{worker}", "write", "{root}/workers/{worker}"),
    "worker pause": ("{worker}", "write", "{root}/workers/{worker}"),
    "worker resume": ("{halted}", "write", "{root}/workers/{halted}"),
    "root budget set": ("--znodes 9", "write", "{root}/bounds"),
    "root budget rm": ("", "write", "{root}/bounds"),
    "root retention set": ("forever", "write", "{root}/bounds"),
    "root retention rm": ("--yes", "write", "{root}/bounds"),
    "plan import": ("{folder}/exported --copy", "create", "{root}"),
}


class World(NamedTuple):
    """A root that only its owner may change, and what is in it."""

    here: Here
    owner: Client
    words: dict[str, str]


def fail() -> None:
    raise ValueError("as it was told")


@pytest.fixture(params=["shut", "readable"])
def world(
    request: pytest.FixtureRequest, zookeeper_hosts: str, zkplan_root: str, tmp_path: Path
) -> Iterator[World]:
    root = f"{zkplan_root}-{request.param}"
    options: dict[str, Any] = {
        "auth_data": LOGIN,
        "default_acl": READERS if request.param == "readable" else CREATOR_ALL_ACL,
    }
    with zkplan.connect(zookeeper_hosts, root, **options) as owner:
        plans: dict[str, Plan] = {}
        with working(zookeeper_hosts, root, **options):
            with owner.create_plan("failed", attempts=1) as plans["failed"]:
                dead = plans["failed"].add_task(fail)
                waiting = plans["failed"].add_task(str, [dead])
                plans["failed"].add_task(int, [7], keep=True)
            wait_until(lambda: plans["failed"].status().state == "failed", "it has failed")
        owner.set_limit("standing", 1)
        plans["defining"] = owner.create_plan("defining")
        owner.set_retention(1e6)
        with owner.create_plan("paused") as plans["paused"]:
            plans["paused"].add_task(int)
        plans["paused"].pause()
        for name in ("rare", "paused"):
            owner.schedule(name, "@yearly", abs, [1])
        owner.find_schedule("paused").pause()
        owner.export_plan(plans["paused"], tmp_path / "exported")
        words = {name: str(int(plan.number)) for name, plan in plans.items()}
        words |= {f"{name}_path": plan.path for name, plan in plans.items()}
        words |= {"dead": dead.number, "waiting": waiting.number}
        words |= {"root": root, "folder": str(tmp_path)}
        # One of them was told to pause: so each of three commands has something to write.
        words |= {"worker": "here", "halted": "halted"}
        for name, data in (("here", b"{}"), ("halted", b'{"state":"paused"}')):
            owner.transport.client.create(f"{root}/workers/{name}", data, ephemeral=True)
        yield World((zookeeper_hosts, root), owner, words)
    with plain_client(zookeeper_hosts, auth_data=LOGIN) as plain:
        remove_tree(plain, root)


def test_every_command_that_reads_or_writes_plans_is_tried() -> None:
    groups = {
        name: cli.get_command(click.Context(cli), name)
        for name in ("plan", "task", "schedule", "worker", "queue", "limit")
    }
    top = cli.get_command(click.Context(cli), "root")
    assert isinstance(top, click.Group)
    groups |= {f"root {name}": top.commands[name] for name in ("budget", "retention")}
    found = {
        f"{name} {word}"
        for name, group in groups.items()
        if isinstance(group, click.Group)
        for word in group.commands
    }
    found.remove("plan archived")  # it reads the store alone
    assert {*found, "top"} == {*READING, *WRITING}


def test_a_command_without_rights_says_which_is_missing_where(world: World, run: Run) -> None:
    """At d18eeb0 `plan retry` said "0 tasks runnable again" and ended with 0."""
    tried: dict[str, tuple[str, str] | None] = {
        f"{name} {rest}": None for name, rest in READING.items()
    }
    tried |= {f"{name} {rest}": (right, at) for name, (rest, right, at) in WRITING.items()}
    is_readable = world.here[1].endswith("readable")
    for words, lacks in tried.items():
        line = [*words.format(**world.words).split(), "--root", world.here[1]]
        said = run(*line)
        if is_readable and lacks is None:
            fails = words.startswith(("plan wait", "task replay"))
            assert said.code == fails, (line, said)
            continue
        assert said.code == 2, (line, said)
        if is_readable and lacks is not None:
            right, place = lacks[0], lacks[1].format(**world.words)
            assert f"the right `{right}` is missing on {place}:" in said.err, (line, said)
        else:
            at = world.here[1]
            assert re.search(rf"the right `read` is missing on {at}[^ ]*:", said.err), (line, said)
        assert said.out == "" or words.startswith("plan gc")  # which tells of each plan
    assert world.owner.plan("failed").status().dead == 1
    assert world.owner.plan("paused").status().state == "paused"


@pytest.mark.parametrize("command", ["demo", "stress"])
def test_a_run_that_may_not_create_its_root_says_so(world: World, command: str, run: Run) -> None:
    hosts, chroot = world.here
    said = run(command, "--hosts", f"{hosts}{chroot}")
    assert said.code == 2, said
    right = "create" if chroot.endswith("readable") else "(read|create)"
    assert re.search(f"the right `{right}` is missing on ", said.err), said


def test_a_plan_that_may_not_be_read_does_not_hide_the_others(
    zkplan_client: Client, zookeeper_hosts: str, run: Run
) -> None:
    zkplan_client.create_plan("open")
    with zkplan.connect(
        zookeeper_hosts, zkplan_client.root, auth_data=LOGIN, default_acl=CREATOR_ALL_ACL
    ) as other:
        shut = other.create_plan("closed")
        said = run("plan", "ls")
        assert said.code == 2
        assert "open" in said.out
        assert f"the right `read` is missing on {shut.path}:" in said.err
        assert f"the right `read` is missing on {shut.path}:" in run("plan", "show", "closed").err
        with pytest.raises(AccessDenied) as caught:
            zkplan_client.plan(shut.number).status()
        assert (caught.value.path, caught.value.right) == (shut.path, "read")
        shut.remove()


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_that_may_not_register_says_so_within_5_seconds(
    world: World, processes: str
) -> None:
    """At d18eeb0 it was silent. It waits for the right, and ends where it may not even read."""
    hosts, root = world.here
    options = ("--hosts", hosts, "--root", root, "--processes", processes)
    before = time.monotonic()
    with started(sys.executable, "-m", "zkplan", "worker", *options) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert time.monotonic() - before < 5 + 2 * int(processes)
        if root.endswith("shut"):
            assert f"the right `read` is missing on {root}/workers:" in line
            assert process.wait(20) == 2
            return
        assert "this worker is not registered yet, and runs nothing" in line
        assert f"the right `create` is missing on {root}/workers:" in line
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)  # it waits for the right
