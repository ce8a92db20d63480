"""While plans run, a key is added, made the first, and the old key is removed."""

from __future__ import annotations

import json
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.stores import damaged
from tests.tools.support import (
    Here,
    Run,
    WorkerProcess,
    key_file,
    note,
    notes,
    secret_of,
    tree,
    wait_until,
    working,
)
from zkplan.basics.settings import Settings
from zkplan.errors import InvalidSettings, PayloadUndecodable
from zkplan.values.keyring import keys_of

WAIT_S = 60.0


def sealed_with(znodes: KazooClient, root: str) -> dict[bytes, int]:
    """How many znodes of plans are sealed with which key, by what they say."""
    found: dict[bytes, int] = {}
    for path in tree(znodes, root):
        data = znodes.get(root + path)[0]
        if data[:2] == b"z3":
            found[data[3:7]] = found.get(data[3:7], 0) + 1
    return found


def tags(*names: str) -> list[bytes]:
    return [key.tag for name in names for key in keys_of(Settings(secret=secret_of(name).encode()))]


def step(file: str, at: int, *_: Any) -> int:
    note(file, str(at))
    return at


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.chaos)])
def test_a_key_is_rotated_while_plans_run_and_workers_are_killed(
    rounds: int, here: Here, tmp_path: Path, znodes: KazooClient, run: Run
) -> None:
    file, length = str(tmp_path / "steps"), 60 * rounds
    with ExitStack() as stack:

        def connect(*keys: str) -> zkplan.Client:
            files = [key_file(tmp_path, *keys)]
            return stack.enter_context(zkplan.connect(*here, secret_files=files))

        names = [f"k{number}" for number in range(rounds + 1)]
        author = connect(names[0])
        with author.create_plan(keep=True) as plan:
            before = plan.add_task(step, [file, 0])
            for at in range(1, length):
                before = plan.add_task(step, [file, at, before])
        workers: list[WorkerProcess] = []

        def replace(*keys: str) -> None:
            """Start a worker with these keys and kill the one before, in the middle of its work."""
            options = ("--secret-file", str(key_file(tmp_path, *keys)), "--session-timeout", "2")
            workers.append(stack.enter_context(WorkerProcess(*here, tmp_path, *options)))
            workers[-1].wait_ready()
            if len(workers) > 1:
                workers[-2].process.end(0)
            seen = len(notes(file))
            wait_until(lambda: len(notes(file)) > min(seen + 3, length - 1), "it goes on", WAIT_S)

        for old, new in pairwise(names):
            for keys in ((old,), (old, new), (new, old)):
                replace(*keys)
            both = connect(new, old)
            wait_until(lambda: len(both.workers()) == 1, "the killed ones are gone")  # noqa: B023
            assert both.workers()[0].keys.split()[0].startswith(f"{new}:")
            rotate = ("root", "rotate-key", "-o", "json", "--secret-file")
            if new == names[-1]:
                both.plan(plan.path).wait(10 * WAIT_S)
            # What an old worker has written last may arrive while the first one looks.
            for _ in range(2):
                done = run(*rotate, str(key_file(tmp_path, new, old)))
                assert done.code == 0, done
                assert json.loads(done.out)["refused"] == []
        assert [*sealed_with(znodes, here[1])] == tags(names[-1])
        # The old key may go.
        after = connect(names[-1])
        assert after.plan(plan.path).task(before.number).result(WAIT_S) == length - 1
    with (
        zkplan.connect(*here, secret=secret_of(names[0])) as late,
        pytest.raises(PayloadUndecodable, match="another secret"),
    ):
        late.plan(plan.path).task(before.number).result(WAIT_S)
    assert sorted(set(map(int, notes(file)))) == [*range(length)]


def test_a_key_rotation_does_not_reseal_znodes_of_an_outsider(
    here: Here, tmp_path: Path, znodes: KazooClient, run: Run
) -> None:
    with zkplan.connect(*here, secret=secret_of("old")) as client:
        plan = client.create_plan()
        task = plan.add_task(int)
        forged = damaged(znodes.get(task.path)[0])
        znodes.set(task.path, forged)
        done = run("root", "rotate-key", "--secret-file", str(key_file(tmp_path, "new", "old")))
        assert (done.code, f"{task.path} is not used" in done.out) == (1, True)
        assert znodes.get(task.path)[0] == forged
        with working(*here, secret=secret_of("old")):
            done = run("root", "rotate-key", "--secret-file", str(key_file(tmp_path, "new", "old")))
            assert (done.code, "1 worker would still seal" in done.err) == (2, True)


@pytest.mark.either
@pytest.mark.parametrize("kind", ["secret", "aes", "ed25519"])
def test_a_new_key_is_stored_privately_and_opens_data_sealed_with_it(
    kind: str, here: Here, tmp_path: Path, znodes: KazooClient, run: Run
) -> None:
    file, public = tmp_path / "key", tmp_path / "public"
    more = ["--public", str(public)] if kind == "ed25519" else []
    made = run("root", "new-key", str(file), "--kind", kind, "--id", "mine", *more)
    assert made.out.startswith("mine:")
    assert file.read_text().rpartition(":")[2].strip() not in made.out + made.err
    assert file.stat().st_mode & 0o777 == 0o600
    assert run("root", "new-key", str(file)).code == 1  # it overwrites nothing
    with (
        zkplan.connect(*here, secret_files=[file]) as client,
        working(*here, secret_files=[file]) as worker,
    ):
        with client.create_plan() as plan:
            first = plan.add_task(str.upper, ["hello, tree"], name="first", keep=True)
            last = plan.add_task(len, [first])
            plan.add_task(int, ["no number"], attempts=1, name="fails")
        assert (last.result(WAIT_S), first.result(WAIT_S)) == (11, "HELLO, TREE")
        wait_until(lambda: plan.status().dead, "the other has failed")
        kept = znodes.get(f"{plan.path}/results/{first.number}")[0]
        assert (b"HELLO" in kept) == (kind != "aes")
        assert worker.statistics().committed
    if kind == "ed25519":
        with zkplan.connect(*here, secret_files=[public]) as reader:
            seen = reader.plan(plan.path)
            assert seen.task("first").result(WAIT_S) == "HELLO, TREE"
            assert "no number" in str(next(iter(seen.dead()))[1].error)
            with pytest.raises(InvalidSettings, match="can only read"):
                seen.cancel()
            with pytest.raises(InvalidSettings, match="can only read"):
                reader.create_plan()
