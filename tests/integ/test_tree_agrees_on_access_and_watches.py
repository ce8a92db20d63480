"""Access control and watches that stay: the tree and ZooKeeper answer, refuse and tell alike.

Two connections, each with a password of its own, read and write the same few nodes under random
access control lists, so that what one may do the other often may not.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kazoo import exceptions as kazoo_errors
from kazoo.protocol import serialization as wire
from kazoo.security import ACL, Id

from zkplan.embedded.acl import authenticate
from zkplan.embedded.records import OPEN_ACL, Acl, Identity
from zkplan.embedded.requests import SetWatches
from zkplan.embedded.tree import Check, Create, Delete, SetAcl, SetData, Tree

from .test_tree_agrees_with_zookeeper import (
    Comparison,
    Connection,
    Refusal,
    answer_of,
    ignore_event,
)

STEPS = 700


def long(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def integer(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def texts(values: tuple[str, ...]) -> bytes:
    return integer(len(values)) + b"".join(wire.write_string(value) for value in values)


class Raw(NamedTuple):
    """A request that kazoo does not know; `read` makes its answer of bytes."""

    type: int
    body: bytes
    read: Callable[[bytes], Any] = lambda body: True

    def serialize(self) -> bytes:
        return self.body

    def deserialize(self, buffer: bytes, offset: int) -> Any:
        return self.read(bytes(buffer[offset:]))


class Known(Connection):
    """A connection that has proven to be `user`; its address is the one that the server sees."""

    def __init__(self, hosts: str, user: str) -> None:
        super().__init__(hosts)
        self.user = user
        self.client.add_auth("digest", f"{user}:secret")
        address = self.client._connection._socket.getsockname()[0]
        proven = authenticate("digest", f"{user}:secret".encode(), address)
        assert proven is not None
        self.identities = (Identity("ip", address), proven)

    def encode(self, op: Create | Delete | SetData | Check) -> Any:
        return encoded(op)


def kazoo_list(entries: tuple[Acl, ...]) -> list[ACL]:
    return [ACL(entry.perms, Id(entry.scheme, entry.id)) for entry in entries]


def encoded(op: Create | SetAcl | SetData | Delete | Check) -> Any:
    if isinstance(op, Create):
        flags = (1 if op.ephemeral else 0) | (2 if op.sequence else 0)
        create = wire.Create2 if op.with_stat else wire.Create
        request = create(op.path, op.data, kazoo_list(op.acl), 4 if op.container else flags)
        return Raw(19, bytes(request.serialize()), created) if op.container else request
    if isinstance(op, SetAcl):
        return wire.SetACL(op.path, kazoo_list(op.acl), op.version)
    if isinstance(op, SetData):
        return wire.SetData(op.path, op.data, op.version)
    if isinstance(op, Delete):
        return wire.Delete(op.path, op.version)
    return wire.CheckVersion(op.path, op.version)


def created(body: bytes) -> Any:
    return wire.Create2.deserialize(body, 0)


class Access(Comparison):
    """The program; what the other comparison knows of Stats, zxids and events holds here too."""

    def __init__(self, hosts: str, seed: int) -> None:
        self.hosts = hosts
        self.random = random.Random(seed)
        self.folder = f"/access-{uuid.uuid4().hex}"
        self.top = self.folder
        self.known = [Known(hosts, "ann"), Known(hosts, "bob")]
        self.connections = list(self.known)
        self.tree = Tree(
            system_nodes=True, identities=lambda watcher: getattr(watcher, "identities", None)
        )
        self.zxids = {}
        self.tally: Counter[str] = Counter()
        self.history: list[object] = []
        self.awaited = []
        ann = self.known[0].identities[1].id
        world, ip = ("world", "anyone"), ("ip", "127.0.0.1")
        self.lists: list[tuple[Acl, ...]] = [
            OPEN_ACL,
            OPEN_ACL,
            OPEN_ACL * 2,
            (Acl(1, *world),),
            (Acl(5, *world), Acl(31, "auth", "")),
            (Acl(30, *world), Acl(1, "digest", ann)),
            (Acl(15, *world),),
            (Acl(16, *world),),
            (Acl(31, "digest", ann), Acl(7, *ip)),
            (Acl(31, "auth", ""), Acl(31, "auth", "ignored"), Acl(1, "digest", "x:y")),
            (Acl(31, "ip", "127.0.0.0/8"),),
            (Acl(31, "ip", "127.0.0.1/33"),),
            (Acl(31, "ip", "10.1.2.3/0"),),
            (Acl(31, "ip", "10.0.0.1"), Acl(2, *world)),
            (),
            (Acl(31, "world", "somebody"),),
            (Acl(31, "sasl", "somebody"),),
            (Acl(31, "digest", "nobody"),),
            (Acl(31, "digest", "nobody:"),),
            (Acl(31, "digest", ":x:"),),
        ]
        self.write(self.known[0], Create(self.folder))

    def step(self) -> None:
        me = self.random.choice(self.known)
        dice = self.random.random()
        if dice < 0.4:
            self.write(me, self.some_write())
        elif dice < 0.5:
            self.multi(me)
        elif dice < 0.75:
            self.look(me)
        else:
            self.watch(me)
        self.agree_on_events()

    def write(self, me: Known, op: Create | SetAcl | SetData | Delete) -> None:
        self.history.append((me.user, op))
        expected = answer_of(lambda: self.tree.apply(op, session=me.session, who=me.identities))
        actual = me.ask(encoded(op))
        if isinstance(actual, tuple) and not isinstance(actual, (Refusal, wire.ZnodeStat)):
            actual = tuple(actual)
        self.agree(actual, expected)
        self.tally[expected.error if isinstance(expected, Refusal) else type(op).__name__] += 1

    def multi(self, me: Known) -> None:  # type: ignore[override]
        ops: list[Any] = [Check(self.node(), self.random.choice((-1, -1, 0, 1)))]
        for _ in range(self.random.randrange(4)):
            op = self.some_write()
            if isinstance(op, Create):
                op = op._replace(container=False, with_stat=False)
            if not isinstance(op, SetAcl):  # A multi knows no such operation.
                ops.insert(self.random.randrange(len(ops) + 1), op)
        self.history.append((me.user, ops))
        expected = answer_of(lambda: self.tree.multi(ops, session=me.session, who=me.identities))
        actual = me.multi(ops)
        if isinstance(expected, Refusal) or isinstance(actual, Refusal):
            self.agree(actual, expected)
            self.tally["multi refused"] += 1
        else:
            for one_actual, one_expected in zip(actual, expected, strict=True):
                self.agree(one_actual, one_expected)
            self.tally["multi applied" if len(ops) > 1 else "check"] += 1

    def some_write(self) -> Create | SetAcl | SetData | Delete:
        path = self.node()
        version = self.random.choice((-1, -1, 0, 1))
        kind = self.random.random()
        if kind < 0.5:
            return Create(
                f"{path}/{self.random.choice('abc')}",
                b"d",
                ephemeral=(flags := self.random.random()) < 0.1,
                sequence=0.1 < flags < 0.2,
                acl=self.random.choice(self.lists),
                container=(container := flags > 0.85),
                with_stat=container or flags < 0.5,
            )
        if kind < 0.7:
            return Delete(path if path != self.folder else f"{path}/a", version)
        if kind < 0.85 or path == self.folder:
            return SetData(path, b"x" * self.random.randrange(3), version)
        return SetAcl(path, self.random.choice(self.lists), version)

    def node(self) -> str:
        path = self.random.choice([self.folder, *self.tree.walk(self.folder)])
        return path + self.random.choice(("", "", "", "", "", "/a", "/b", "/c//"))[: len(path)]

    def look(self, me: Known) -> None:
        path, who = self.node(), me.identities
        watcher = me if self.random.random() < 0.5 else None
        armed = ignore_event if watcher else None
        kind = self.random.choice(("get", "exists", "children", "acl", "count"))
        self.history.append((me.user, kind, path, watcher is not None))
        if kind == "get":
            expected = answer_of(lambda: self.tree.get(path, watcher, who))
            self.agree(me.ask(wire.GetData(path, armed)), expected)
        elif kind == "exists":
            expected = answer_of(lambda: self.tree.exists(path, watcher))
            self.agree(me.ask(wire.Exists(path, armed)), expected)
        elif kind == "children":
            expected = answer_of(lambda: self.tree.children(path, watcher, who))
            actual = me.ask(wire.GetChildren2(path, armed))
            if not isinstance(expected, Refusal):
                expected, actual = (
                    (sorted(expected[0]), expected[1]),
                    (sorted(actual[0]), actual[1]),
                )
            self.agree(actual, expected)
        elif kind == "acl":
            expected = answer_of(lambda: self.tree.get_acl(path, who))
            actual = me.ask(wire.GetACL(path))
            if not isinstance(actual, Refusal):
                actual = (
                    tuple(Acl(a.perms, a.id.scheme, a.id.id or "") for a in actual[0]),
                    actual[1],
                )
            self.agree(actual, expected)
        else:
            expected = answer_of(lambda: self.tree.count_descendants(path, who))
            read = Raw(104, wire.write_string(path), lambda body: int.from_bytes(body[:4], "big"))
            self.agree(me.ask(read), expected)
        self.tally[expected.error if isinstance(expected, Refusal) else kind] += 1

    def watch(self, me: Known) -> None:
        path = self.node()
        what = self.random.choice(("add", "add", "remove", "check", "again"))
        kind = self.random.choice((1, 2, 3))
        expected: Any
        if what == "add":
            mode = self.random.choice((0, 1))
            self.history.append((me.user, "add watch", path, mode))
            self.tree.add_watch(path, me, recursive=mode == 1)
            expected, request = True, Raw(106, wire.write_string(path) + integer(mode))
        elif what == "again":
            again = self.some_watches()
            self.history.append((me.user, again))
            self.tree.set_watches(again, me)
            body = long(self.zxids.get(again.relative_zxid, 0)) + b"".join(map(texts, again[1:]))
            expected, request = True, Raw(105, body)
        else:
            only_check = what == "check"
            self.history.append((me.user, what, path, kind))
            expected = answer_of(lambda: self.removed(path, me, kind, only_check))
            opcode = 17 if only_check else 18
            request = Raw(opcode, wire.write_string(path) + integer(kind))
        actual = me.ask(request)
        self.agree(actual, expected)
        self.tally[f"watch {what} {isinstance(expected, Refusal)}"] += 1

    def removed(self, path: str, me: Known, kind: int, only_check: bool) -> bool:
        self.tree.remove_watches(path, me, kind, only_check)
        return True

    def some_watches(self) -> SetWatches:
        zxid = self.random.choice(sorted(self.zxids) or [0])
        some = [tuple(self.node() for _ in range(self.random.randrange(2))) for _ in range(5)]
        return SetWatches(zxid, *some)

    def agree(self, actual: Any, expected: Any) -> None:
        """As in the other comparison, but the two may name the same error code differently."""
        if isinstance(expected, Refusal) and isinstance(actual, Refusal):
            actual = actual._replace(error=expected.error)
        super().agree(actual, expected)

    def close(self) -> None:
        # What a list protects from both stays: nobody else uses this folder.
        for connection in reversed(self.known):
            try:
                connection.client.delete(self.folder, recursive=True)
            except kazoo_errors.KazooException:
                pass
            connection.close()


@pytest.mark.integ
@pytest.mark.parametrize("seed", range(6))
def test_a_random_program_with_access_control_cannot_tell_the_tree_from_zookeeper(
    unswept_hosts: str, seed: int
) -> None:
    program = Access(unswept_hosts, seed)
    try:
        for _ in range(STEPS):
            program.step()
    finally:
        program.close()
    # A program that is never refused, or refused for one reason only, proves nothing.
    assert program.tally.keys() >= {"NoAuthError", "InvalidAclError", "SetAcl", "acl", "count"}
    assert program.tally.keys() >= {"changed", "child", "created", "deleted"}
    assert program.tally.keys() >= {"multi refused", "multi applied"}
    assert program.tally.keys() >= {"watch remove True", "watch remove False", "watch check True"}
