"""Each command that an access list refuses names the path and the right, and exits with 2.

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

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_acl

import zkplan
from tests.tools.command_tree import commands
from tests.tools.support import (
    TOP,
    Here,
    Run,
    key_file,
    plain_client,
    secret_of,
    started,
    wait_until,
    working,
)
from zkplan import AccessDenied, Client, Plan
from zkplan.cli import cli
from zkplan.testing.servers import remove_tree

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
    "metrics": "",
    "root show": "",
    "root init": "",
}
#: Commands that exit with 1 when all may be read: the plan has failed, or the root is open.
ENDS_WITH_1 = ("plan wait", "task replay", "root show", "root init")
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
    "run": ("{plan_file} --no-wait", "create", "{root}"),
    "root lock": ("", "admin", "{root}"),
}
#: Commands with a test of their own below, and commands that read nothing of ZooKeeper.
TRIED_ELSEWHERE = {"root rotate-key", "serve", "worker", "demo", "stress"}
NOT_OF_A_ROOT = {"root new-key", "serve new-token", "plan archived", "server"}
NOT_OF_A_ROOT |= {"config show", "config check"}  # the latter: test_config_check.py
PLAN_FILE = TOP / "examples" / "report.toml"


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
        words |= {"root": root, "folder": str(tmp_path), "plan_file": str(PLAN_FILE)}
        # One of them was told to pause: so each of three commands has something to write.
        words |= {"worker": "here", "halted": "halted"}
        for name, data in (("here", b"{}"), ("halted", b'{"state":"paused"}')):
            owner.transport.client.create(f"{root}/workers/{name}", data, ephemeral=True)
        yield World((zookeeper_hosts, root), owner, words)
    with plain_client(zookeeper_hosts, auth_data=LOGIN) as plain:
        remove_tree(plain, root)


def test_these_tests_try_every_command_that_reads_or_writes_plans() -> None:
    found = {path.removeprefix("zkplan ") for path in commands(cli, "zkplan")}
    assert found == {*READING, *WRITING} | TRIED_ELSEWHERE | NOT_OF_A_ROOT


def test_a_command_without_rights_names_the_missing_right_and_the_path(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At d18eeb0 `plan retry` said "0 tasks runnable again" and ended with 0."""
    # Some commands want a login: that of somebody else.
    monkeypatch.setenv("ZKPLAN_LOGIN_USER", "mallory")
    monkeypatch.setenv("ZKPLAN_LOGIN_PASSWORD", "guess")
    tried: dict[str, tuple[str, str] | None] = {
        f"{name} {rest}": None for name, rest in READING.items()
    }
    tried |= {f"{name} {rest}": (right, at) for name, (rest, right, at) in WRITING.items()}
    is_readable = world.here[1].endswith("readable")
    for words, lacks in tried.items():
        line = [*words.format(**world.words).split(), "--root", world.here[1]]
        said = run(*line)
        if is_readable and lacks is None:
            fails = words.startswith(ENDS_WITH_1)
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


def test_an_unreadable_znode_is_not_called_closed(here: Here, run: Run) -> None:
    """`root show` said "open no" of it, and `root lock` that all is closed."""
    hosts, root = here
    other = [("digest", "other:password")]
    with (
        zkplan.connect(hosts, root, auth_data=LOGIN, default_acl=OPEN_ACL_UNSAFE) as owner,
        zkplan.connect(hosts, root, auth_data=other, default_acl=CREATOR_ALL_ACL) as closed,
        pytest.MonkeyPatch.context() as environment,
    ):
        owner.prepare()
        plan = closed.create_plan("shut")
        environment.setenv("ZKPLAN_LOGIN_USER", "owner")
        environment.setenv("ZKPLAN_LOGIN_PASSWORD", "its-password")
        message = "1 znode may not be read with this login, and may be open: "
        shown = run("root", "show")
        assert shown.code == 1
        assert message + plan.path in shown.err
        for _ in range(2):
            locked = run("root", "lock")
            assert (locked.code, locked.out) == (1, "")
            assert message + plan.path in locked.err
        assert "0 znodes had been open; " in locked.err
        shown = run("root", "show")
        assert (shown.code, "open                 not known of all of it" in shown.out) == (1, True)
        assert run("root", "init").code == 1
        with plain_client(hosts, auth_data=[*LOGIN, *other]) as both:
            remove_tree(both, plan.path)
            assert run("root", "show").code == 0
            remove_tree(both, root)


def test_a_key_rotation_that_an_access_list_refuses_is_reported(
    world: World, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, root = world.here
    options: dict[str, Any] = {
        "auth_data": LOGIN,
        "default_acl": world.owner.transport.client.default_acl,
    }
    with zkplan.connect(hosts, f"{root}-sealed", secret=secret_of("old"), **options) as owner:
        plan = owner.create_plan("sealed")
        keys = str(key_file(tmp_path, "new", "old"))
        said = run("root", "rotate-key", "--secret-file", keys, "--root", owner.root)
        assert said.code == 2, said
        right, at = ("write", plan.path) if root.endswith("readable") else ("read", owner.root)
        assert f"the right `{right}` is missing on {at}" in said.err
        remove_tree(owner.transport.client, owner.root)


def test_a_service_without_the_right_to_read_its_root_says_so(world: World) -> None:
    hosts, root = world.here
    options = ("--hosts", hosts, "--root", root, "--listen", "127.0.0.1:0")
    with started(sys.executable, "-m", "zkplan", "serve", *options) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        if root.endswith("readable"):
            assert process.stdout.readline().startswith("serving at ")
            return
        assert process.wait(20) == 2
        assert f"the right `read` is missing on {root}" in process.stderr.read()


@pytest.mark.parametrize("command", ["demo", "stress"])
def test_a_run_that_may_not_create_its_root_says_so(world: World, command: str, run: Run) -> None:
    hosts, chroot = world.here
    said = run(command, "--hosts", f"{hosts}{chroot}")
    assert said.code == 2, said
    right = "create" if chroot.endswith("readable") else "(read|create)"
    assert re.search(f"the right `{right}` is missing on ", said.err), said


def test_an_unreadable_plan_does_not_hide_other_plans(
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
def test_a_worker_without_the_right_to_register_says_so_within_5_seconds(
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
