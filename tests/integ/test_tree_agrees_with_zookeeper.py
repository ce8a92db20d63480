"""Random programs get the same answers, errors, Stats and events from the tree and from ZooKeeper.

Requests go to the server as they are, below kazoo's public methods: those repair odd paths and
hand one event to several callbacks, and here the server is to be asked, not kazoo.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol import serialization as wire
from kazoo.security import OPEN_ACL_UNSAFE

from zkplan.embedded.tree import (
    Check,
    Create,
    Delete,
    MultiFailed,
    SetData,
    Stat,
    Tree,
    TreeError,
)

STEPS = 600
ANSWER_S_MAX = 20
KINDS = {1: "created", 2: "deleted", 3: "changed", 4: "child"}
REFUSALS = {
    "BadArgumentsError",
    "BadVersionError",
    "NoChildrenForEphemeralsError",
    "NoNodeError",
    "NodeExistsError",
    "NotEmptyError",
}
ODD_TAILS = (
    "//x",
    "/",
    "/.",
    "/..",
    "/./x",
    "/...",
    "/\x00",
    "/\x01",
    "/\x7f",
    "/\u00a0",
    "/\uf8ff",
)
SYSTEM_PATHS = ("/", "/zookeeper", "/zookeeper/config")
ODD_PATHS = (*SYSTEM_PATHS, "relative", "relative/x", "/missing/\U0001f600")

Op = Create | Delete | SetData | Check


class Refusal(NamedTuple):
    """A refused request; `culprit` is its index in a multi, 0 elsewhere."""

    error: str
    code: int
    culprit: int = 0


class Connection:
    """One session with the real server, its events read from the wire in order."""

    def __init__(self, hosts: str) -> None:
        self.events: list[tuple[str, str]] = []
        self.client = KazooClient(hosts, timeout=30)
        self.client.start(timeout=ANSWER_S_MAX)
        connection = self.client._connection
        read_event = connection._read_watch_event

        def record_event(buffer: Any, offset: int) -> None:
            watch, _ = wire.Watch.deserialize(buffer, offset)
            self.events.append((KINDS[watch.type], watch.path))
            read_event(buffer, offset)

        connection._read_watch_event = record_event
        self.session: int = self.client.client_id[0]

    def ask(self, request: Any) -> Any:
        """The answer to one raw request, or the Refusal."""
        answer = self.client.handler.async_result()
        self.client._call(request, answer)
        try:
            return answer.get(timeout=ANSWER_S_MAX)
        except kazoo_errors.ZookeeperError as error:
            return Refusal(type(error).__name__, error.code)

    def multi(self, ops: list[Op]) -> Any:
        """The answers to a transaction, or the Refusal of its culprit."""
        answers = self.ask(wire.Transaction([self.encode(op) for op in ops]))
        assert len(answers) == len(ops)
        failed = [isinstance(answer, Exception) for answer in answers]
        if not any(failed):
            return answers
        assert all(failed)
        before, after = kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency
        index = next(i for i, answer in enumerate(answers) if not isinstance(answer, before))
        assert all(isinstance(answer, after) for answer in answers[index + 1 :])
        return Refusal(type(answers[index]).__name__, answers[index].code, index)

    def encode(self, op: Op) -> Any:
        """The operation as kazoo writes it."""
        return encoded(op)

    def close(self) -> None:
        """End the session, so that the server deletes its ephemerals now."""
        self.client.stop()
        self.client.close()


def encoded(op: Op) -> Any:
    if isinstance(op, Create):
        flags = (1 if op.ephemeral else 0) | (2 if op.sequence else 0)
        return wire.Create(op.path, op.data, OPEN_ACL_UNSAFE, flags)
    if isinstance(op, SetData):
        return wire.SetData(op.path, op.data, op.version)
    if isinstance(op, Delete):
        return wire.Delete(op.path, op.version)
    return wire.CheckVersion(op.path, op.version)


def answer_of(call: Callable[[], Any]) -> Any:
    """What the tree answers, or its Refusal."""
    try:
        return call()
    except TreeError as error:
        return Refusal(type(error).__name__, error.code)
    except MultiFailed as failed:
        return Refusal(type(failed.error).__name__, failed.error.code, failed.index)


class Comparison:
    """One program under way on both sides, which must agree after every step."""

    def __init__(self, hosts: str, seed: int) -> None:
        self.hosts = hosts
        self.random = random.Random(seed)
        # The programs work on and below `top`; its sequential siblings stay in a folder of our own.
        self.folder = f"/agree-{uuid.uuid4().hex}"
        self.top = f"{self.folder}/top"
        self.tree = Tree(system_nodes=True)
        self.connections = [Connection(hosts), Connection(hosts)]
        self.zxids: dict[int, int] = {}
        self.tally: Counter[str] = Counter()
        self.history: list[object] = []
        self.awaited: list[str] = []
        self.single(self.connections[0], Create(self.folder))
        self.single(self.connections[0], Create(self.top))

    # Steps.

    def step(self) -> None:
        me = self.random.choice(self.connections)
        dice = self.random.random()
        if dice < 0.30:
            self.single(me, self.some_op([], checks=False))
        elif dice < 0.60:
            self.multi(me)
        elif dice < 0.98:
            self.read(me)
        else:
            self.reopen(me)
        self.agree_on_events()

    def single(self, me: Connection, op: Op) -> None:
        self.history.append(op)
        expected = answer_of(lambda: self.tree.apply(op, session=me.session))
        self.agree(me.ask(encoded(op)), expected)
        self.tally[expected.error if isinstance(expected, Refusal) else "applied"] += 1

    def multi(self, me: Connection) -> None:
        planned: list[str] = []
        ops = [
            self.some_op(planned, checks=True)
            for _ in range(self.random.choice((0, *range(1, 7), *range(2, 7))))
        ]
        self.history.append(ops)
        expected = answer_of(lambda: self.tree.multi(ops, session=me.session))
        actual = me.multi(ops)
        if isinstance(expected, Refusal) or isinstance(actual, Refusal):
            self.agree(actual, expected)
            self.tally[f"refused at {expected.culprit}"] += 1
        else:
            for actual_answer, expected_answer in zip(actual, expected, strict=True):
                self.agree(actual_answer, expected_answer)
            self.tally[f"applied {len(ops)}"] += 1

    def read(self, me: Connection) -> None:
        path = self.some_path([], new=self.random.random() < 0.3)
        if path in SYSTEM_PATHS:
            return  # Their Stats depend on everybody who uses the server.
        watcher = me if self.random.random() < 0.6 else None
        armed = None if watcher is None else ignore_event
        kind = self.random.choice(("get", "exists", "children"))
        self.history.append((kind, path, watcher is not None))
        if kind == "get":
            self.agree(
                me.ask(wire.GetData(path, armed)), answer_of(lambda: self.tree.get(path, watcher))
            )
        elif kind == "exists":
            if path not in self.tree.walk(self.folder):
                self.awaited.append(path)
            self.agree(
                me.ask(wire.Exists(path, armed)), answer_of(lambda: self.tree.exists(path, watcher))
            )
        else:
            self.agree_on_children(me, path, watcher)

    def reopen(self, me: Connection) -> None:
        self.history.append("reopen")
        expected = self.tree.ephemerals(me.session)
        self.tree.drop_watches(me)
        me.close()
        self.connections.remove(me)
        self.connections.append(Connection(self.hosts))
        assert self.tree.close_session(me.session) == sorted(expected)
        self.tally["ephemerals gone"] += len(expected)

    # Choices.

    def some_op(self, planned: list[str], *, checks: bool) -> Op:
        """An operation on what exists or is planned earlier in the same multi, mostly."""
        dice = self.random.random()
        data = self.random.randbytes(self.random.randrange(4))
        path = self.some_path(planned, new=dice < 0.38)
        version = self.some_version(path)
        if path in SYSTEM_PATHS:
            # Only what a server refuses, or what only looks: they belong to everybody.
            return Create(path) if dice < 0.3 else Check(path) if checks else Delete(path)
        if dice < 0.45:
            ephemeral, sequence = self.random.random() < 0.4, self.random.random() < 0.3
            planned.append(self.predicted(path) if sequence else path)
            return Create(path, data, ephemeral, sequence)
        if dice < 0.70:
            return Delete(path, version)
        if dice < 0.85 or not checks:
            return SetData(path, data, version)
        return Check(path, version)

    def some_path(self, planned: list[str], *, new: bool = False) -> str:
        if self.random.random() < 0.04:
            return self.random.choice(ODD_PATHS)
        path = self.random.choice([self.top, *self.tree.walk(self.folder), *planned[-2:] * 4])
        if new and self.awaited and self.random.random() < 0.3:
            return self.random.choice(self.awaited[-5:])
        if new or self.random.random() < 0.1:
            path += f"/{self.random.choice('abcd')}"
        if self.random.random() < 0.03:
            path += self.random.choice(ODD_TAILS)
        return path

    def some_version(self, path: str) -> int:
        dice = self.random.random()
        stat = self.tree.exists(path) if "\x00" not in path else None
        if dice < 0.6:
            return -1
        return stat.version if stat is not None and dice < 0.8 else self.random.randrange(3)

    def predicted(self, path: str) -> str:
        parent = path.rpartition("/")[0]
        stat = self.tree.exists(parent) if "\x00" not in parent else None
        creates = 0 if stat is None else (stat.cversion + stat.num_children) // 2
        return f"{path}{creates:010d}"

    # Agreement.

    def agree(self, actual: Any, expected: Any) -> None:
        if isinstance(expected, Stat) and isinstance(actual, wire.ZnodeStat):
            self.agree_on_stat(actual, expected)
        elif isinstance(expected, tuple) and not isinstance(expected, (Refusal, Stat)):
            assert not isinstance(actual, Refusal), self.history[-3:]
            assert actual[0] == expected[0], self.history[-3:]
            self.agree_on_stat(actual[1], expected[1])
        else:
            assert actual == expected, self.history[-3:]

    def agree_on_stat(self, actual: Any, expected: Stat) -> None:
        for name in ("version", "cversion", "aversion"):
            assert getattr(actual, name) == getattr(expected, name), (name, self.history[-3:])
        assert actual.ephemeralOwner == expected.ephemeral_owner, self.history[-3:]
        assert actual.dataLength == expected.data_length, self.history[-3:]
        assert actual.numChildren == expected.num_children, self.history[-3:]
        # The server counts other sessions' transactions too: equal numbers must mean equal ones.
        for name in ("czxid", "mzxid", "pzxid"):
            zxid = self.zxids.setdefault(getattr(expected, name), getattr(actual, name))
            assert zxid == getattr(actual, name), (name, self.history[-3:])

    def agree_on_children(self, me: Connection, path: str, watcher: object = None) -> None:
        expected = answer_of(lambda: self.tree.children(path, watcher))
        actual = me.ask(wire.GetChildren2(path, None if watcher is None else ignore_event))
        # A server lists children in no given order.
        if not isinstance(expected, Refusal):
            expected = (sorted(expected[0]), expected[1])
        if not isinstance(actual, Refusal):
            actual = (sorted(actual[0]), actual[1])
        self.agree(actual, expected)

    def agree_on_events(self) -> None:
        """Both sides told the same since the last step; a sync flushes what a server owes."""
        told = self.tree.take_events()
        for connection in self.connections:
            connection.ask(wire.Sync("/"))
            actual, connection.events = connection.events, []
            expected = [(event.kind, event.path) for event in told if event.watcher is connection]
            if self.history[-1] == "reopen":  # A server deletes ephemerals in no given order.
                actual, expected = sorted(actual), sorted(expected)
            assert actual == expected, self.history[-3:]
            self.tally.update(kind for kind, _ in expected)

    def agree_on_everything(self) -> None:
        for path in [self.folder, *self.tree.walk(self.folder)]:
            self.agree(self.connections[0].ask(wire.GetData(path, None)), self.tree.get(path))
            self.agree_on_children(self.connections[0], path)
        reals = [real for _, real in sorted(self.zxids.items())]
        assert reals == sorted(set(reals))

    def close(self) -> None:
        for connection in self.connections[1:]:
            connection.close()
        self.connections[0].client.delete(self.folder, recursive=True)
        self.connections[0].close()


def ignore_event(_event: object) -> None:
    """Arms the watch; the event itself is read from the wire."""


@pytest.mark.integ
@pytest.mark.parametrize("seed", range(6))
def test_a_random_program_cannot_tell_the_tree_from_zookeeper(
    unswept_hosts: str, seed: int
) -> None:
    program = Comparison(unswept_hosts, seed)
    try:
        for number in range(1, STEPS + 1):
            program.step()
            if number % 50 == 0:
                program.agree_on_everything()
    finally:
        program.close()
    # A program that stays on easy ground proves nothing.
    assert program.tally.keys() >= REFUSALS | set(KINDS.values())
    assert program.tally.keys() >= {"refused at 0", "refused at 2", "applied 1", "applied 3"}
    assert program.tally["ephemerals gone"] > 0
