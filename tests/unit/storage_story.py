"""A repeatable story of changes, and the paths of a tree, for the tests of trees and storage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from zkplan.embedded.folding import SessionChanges
from zkplan.embedded.operations import NO_DATA, Acl
from zkplan.embedded.sessions import SavedSession
from zkplan.embedded.storage import Changes, Saved, Storage
from zkplan.embedded.tree import Tree
from zkplan.embedded.znodes import Node

#: Everything loaded, in a form that can be compared.
Picture = tuple[object, ...]


class Group(NamedTuple):
    """One commit, and what a folder holds after it."""

    zxid: int
    last_session: int
    nodes: Changes
    sessions: SessionChanges
    after: Picture


def picture(saved: Saved) -> Picture:
    """All of `saved`."""
    nodes = {number: (path, fields(node)) for number, path, node in saved.nodes}
    return saved.zxid, saved.last_session, nodes, {each.id: each for each in saved.sessions}


def fields(node: Node) -> tuple[object, ...]:
    """Every field of a node but its children, which are not stored but follow from the paths."""
    null = node.data is NO_DATA  # equal to empty data, and not the same
    return (null, *(getattr(node, name) for name in Node.__slots__ if name != "children"))


def paths_of(tree: Tree) -> list[str]:
    """All paths of the tree, as its children lead to them."""
    found = ["/"]
    for path in found:
        found += [f"{path.rstrip('/')}/{name}" for name in tree.children(path)[0]]
    return sorted(found)


EMPTY: Picture = (0, 0, {}, {})


def story(
    groups: int, seed: int = 1, sizes: tuple[int, ...] = (1, 1, 2, 30, 200)
) -> Iterator[Group]:
    """So many groups, the same ones for the same seed; a group's nodes change with the next one."""
    chance = random.Random(seed)
    alive: dict[int, tuple[str, Node]] = {}
    sessions: dict[int, SavedSession] = {}
    zxid = number = 0
    shown: dict[int, tuple[str, tuple[object, ...]]] = {}
    for _ in range(groups):
        touched: dict[int, tuple[int, str, Node | None]] = {}
        for _ in range(chance.choice(sizes)):
            zxid += 1
            doing = chance.random()
            if doing < 0.6 or not alive:
                number += 1
                alive[number] = (f"/node-{number:010d}", new_node(chance, zxid, number))
            changed = number if doing < 0.6 else chance.choice(list(alive))
            path, node = alive[changed]
            if doing > 0.9:
                del alive[changed]
                touched[changed] = (changed, path, None)
                continue
            if doing > 0.75:
                node.data, node.mzxid = content(chance), zxid
                node.mtime = 1_700_000_000_000 + zxid
                node.version += 1
            elif doing > 0.6:
                node.creates += 1
                node.pzxid = zxid
            touched[changed] = (changed, path, node)
        session = SavedSession(-zxid, chance.randbytes(16), 4000 + zxid)
        changes: list[tuple[int, SavedSession | None]] = [(session.id, session)]
        if len(sessions) > 3:
            changes.append((next(iter(sessions)), None))
            del sessions[next(iter(sessions))]
        sessions[session.id] = session
        for each, _, left in touched.values():
            if left is None:
                shown.pop(each, None)
            else:
                shown[each] = (alive[each][0], fields(left))
        after = (zxid, zxid * 3, dict(shown), dict(sessions))
        yield Group(zxid, zxid * 3, list(touched.values()), changes, after)


def new_node(chance: random.Random, zxid: int, number: int) -> Node:
    """A node as a tree would make it."""
    acl = chance.choice((None, None, (Acl(1, "digest", "ann:hash"), Acl(31, "ip", "127.0.0.1"))))
    owner = chance.choice((0, 0, -(2**63), 0x100_0000_0000_0001))
    return Node(content(chance), owner, zxid, 1_700_000_000_000 + zxid, number, acl)


def content(chance: random.Random) -> bytes:
    """Data of many sizes, both that of the row and that with a row of its own."""
    return chance.randbytes(chance.choice((0, 10, 10, 100, 1000, 1024, 1025, 9000)))


def save(storage: Storage, group: Group) -> None:
    """Commit the group."""
    storage.commit(
        zxid=group.zxid, last_session=group.last_session, nodes=group.nodes, sessions=group.sessions
    )
