"""With keys an author decodes no pickle that somebody without a key has planted in the tree."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import Bomb, Here, secret_of, wait_until, working
from zkplan import Client, Task
from zkplan.protocol.records import Failure
from zkplan.protocol.requests import Multi, Node, SetData
from zkplan.values.codec import FAILURE, LOG, VALUE
from zkplan.values.function_codec import HERE
from zkplan.values.guard import Guard
from zkplan.values.keyring import without_proof


@pytest.fixture
def sealing(here: Here) -> Iterator[Client]:
    """A client with a key, and a worker that has it."""
    ours = secret_of("ours")
    with zkplan.connect(*here, secret=ours) as client, working(*here, secret=ours):
        yield client


def log_and_fail() -> None:
    zkplan.current().log("seen")
    raise ValueError("on purpose")


def used_all_the_same(_: Guard, path: str, node: Node, error: Exception) -> bytes:
    return without_proof(node.data)


@pytest.mark.parametrize("key", ["", "theirs"])
def test_no_author_decodes_a_pickle_not_sealed_with_a_known_key(
    key: str,
    sealing: Client,
    here: Here,
    znodes: KazooClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the check of the seals, each of these reads decodes the pickle."""
    trace, seal = tmp_path / "decoded", sealing.codec.seal
    with sealing.create_plan() as plan:
        done = plan.add_task(int, [1], keep=True).number
        dead = plan.add_task(log_and_fail, attempts=1).number
    wait_until(lambda: plan.status().dead and plan.status().tasks == 1, "one is dead")
    path = f"{plan.path}/task-{dead}"
    note = f"{path}/{min(name for name in znodes.get_children(path) if name[:4] == 'log-')}"
    bomb = b"C" + HERE + pickle.dumps(Bomb(trace))
    failure = seal(FAILURE, Failure("ValueError", "m", "", "w", 0, 1.0, bomb).to_bytes())
    outcome, letter = f"{plan.path}/results/{done}", f"{plan.path}/dead/{dead}"

    def task(number: str) -> Task:
        return sealing.plan(plan.path).task(number)  # a new handle, which remembers nothing

    decoding: list[tuple[str, bytes, list[Callable[[], Any]]]] = [
        (
            outcome,
            seal(VALUE, bomb),
            [lambda: task(done).result(), lambda: plan.results([task(done)])],
        ),
        (outcome, failure, [lambda: task(done).result(), lambda: task(done).exception()]),
        (note, seal(LOG, bomb), [lambda: task(dead).info().progress()]),
    ]
    with zkplan.connect(*here, secret=secret_of(key) if key else None) as stranger:
        for path, data, reads in decoding:
            stranger.transport.ask(Multi([SetData(path, data, -1)]))
            for read in reads:
                with suppress(zkplan.ZkplanError):
                    read()
                assert not trace.exists()
                with monkeypatch.context() as patch, suppress(zkplan.ZkplanError, ValueError):
                    patch.setattr(Guard, "_refused", used_all_the_same)
                    read()
                trace.unlink()
        # A dead letter is JSON: what reads it decodes no pickle either way.
        stranger.transport.ask(Multi([SetData(letter, bomb, -1)]))
    for read in (lambda: [*plan.dead()], task(dead).info, task(dead).exception):
        with suppress(zkplan.ZkplanError):
            read()
    assert not trace.exists()
