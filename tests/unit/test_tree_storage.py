"""The changes that the tree records for storage are enough to rebuild it, and no more."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from zkplan.embedded.limits import Limits
from zkplan.embedded.operations import (
    Acl,
    Create,
    Delete,
    LimitError,
    MultiFailed,
    NotEmptyError,
    SetAcl,
    SetData,
    TreeError,
)
from zkplan.embedded.tree import Tree
from zkplan.embedded.znodes import CONTAINER_OWNER, TTL_OWNER, Node

from .storage_story import paths_of

Rows = dict[int, tuple[int, str, Node]]
SECRET = (Acl(31, "digest", "ann:hash"),)


def store(rows: Rows, tree: Tree) -> None:
    """What a storage does with the changes: a copy of each node, by number."""
    for number, path, node in tree.znodes.take_changes():
        if node is None:
            rows.pop(number, None)
        else:
            rows[number] = (number, path, copy.copy(node))


def restored(rows: Rows, zxid: int) -> Tree:
    tree = Tree(track_changes=True)
    tree.restore(zxid, copy.deepcopy([rows[number] for number in sorted(rows)]))
    return tree


def everything(tree: Tree) -> object:
    paths = paths_of(tree)
    nodes = {
        path: (*tree.get(path), tree.get_acl(path)[0], tree._nodes[path].owner) for path in paths
    }
    children = {path: sorted(tree.children(path)[0]) for path in paths}
    owners = {owner: sorted(paths) for owner, paths in tree.znodes.owned.items()}
    return nodes, children, owners, tree.zxid, tree.node_count, tree.znodes.bytes


def some_op(rng: random.Random, tree: Tree) -> Any:
    path = rng.choice(paths_of(tree))
    dice = rng.random()
    if dice < 0.5:
        mode = rng.choice(({}, {}, {"ephemeral": True}, {"container": True}, {"ttl_ms": 50}))
        name = f"{path.rstrip('/')}/{rng.choice('abc')}"
        return Create(name, rng.randbytes(3), sequence=rng.random() < 0.2, acl=SECRET, **mode)
    if dice < 0.75:
        return Delete(path)
    return SetData(path, rng.randbytes(4)) if dice < 0.9 else SetAcl(path, SECRET)


@pytest.mark.parametrize("seed", range(20))
def test_recorded_changes_rebuild_the_same_tree(seed: int) -> None:
    rng = random.Random(seed)
    tree = Tree(system_nodes=True, track_changes=True)
    rows: Rows = {}
    for step in range(150):
        session = rng.randrange(1, 4)
        try:
            if rng.random() < 0.9:
                tree.multi(
                    [some_op(rng, tree) for _ in range(rng.randrange(1, 5))],
                    session=session,
                    now_ms=step,
                )
            else:
                tree.close_session(session)
                tree.sweep(step)
        except (TreeError, MultiFailed):
            pass
        if rng.random() < 0.3:
            store(rows, tree)
    store(rows, tree)
    again = restored(rows, tree.zxid)
    # The bytes are equal, too: one tree counted them with every change, the other at its restore.
    assert everything(again) == everything(tree)
    assert again.znodes.take_changes() == []
    assert rows.keys() == {node.number for node in tree._nodes.values()}
    # It goes on as the other does.
    assert again.apply(Create("/z-", sequence=True)) == tree.apply(Create("/z-", sequence=True))
    assert [number for number, _, _ in again.znodes.take_changes()] == [max(rows) + 1, 0]


def test_a_changed_node_is_listed_once_and_a_transient_node_as_deleted() -> None:
    tree = Tree(track_changes=True)
    assert [(number, path) for number, path, _ in tree.znodes.take_changes()] == [(0, "/")]
    tree.multi([Create("/a"), SetData("/a", b"1"), SetData("/a", b"2"), Create("/b"), Delete("/b")])
    changes = {path: node for _, path, node in tree.znodes.take_changes()}
    assert changes.keys() == {"/", "/a", "/b"}
    assert changes["/b"] is None
    assert changes["/a"] is tree._nodes["/a"]
    assert tree.znodes.take_changes() == []


def test_a_reused_path_is_listed_with_its_old_node_first() -> None:
    tree = Tree(track_changes=True)
    tree.apply(Create("/a"))
    tree.znodes.take_changes()
    tree.multi([Delete("/a"), Create("/a", b"new")])
    changes = [
        (number, path, node and node.data) for number, path, node in tree.znodes.take_changes()
    ]
    assert changes == [(1, "/a", None), (0, "/", b""), (2, "/a", b"new")]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "the root '/' is not"),
        ([(0, "/", Node()), (2, "/a/b", Node()), (1, "/c", Node())], "'/a/b' has no parent"),
        ([(0, "/", Node()), (1, "/a/b", Node()), (2, "/a", Node())], "'/a/b' has no parent"),
        ([(0, "/", Node()), (1, "/a", Node()), (2, "/a", Node())], "'/a' is stored twice"),
        ([(0, "/", Node()), (1, "/a", Node()), (1, "/b", Node())], "'/b' has number 1 out"),
        ([(0, "/", Node()), (-1, "/b", Node())], "'/b' has number -1 out"),
        ([(0, "/", Node()), (1, "/b", Node(zxid=8))], "'/b' is newer"),
        ([(0, "/", Node()), (1, "b", Node())], "'b' has no parent"),
        ([(0, "/", Node()), (1, "/b/", Node())], "'/b/' has no parent"),
    ],
)
def test_rows_that_do_not_form_a_tree_are_refused_with_a_reason(rows: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Tree().restore(7, copy.deepcopy(rows))


def test_only_a_new_tree_can_be_restored() -> None:
    tree = Tree()
    tree.apply(Create("/a"))
    with pytest.raises(ValueError, match="only a new tree"):
        tree.restore(7, [(0, "/", Node())])


def test_a_full_server_refuses_writes_that_add_znodes_and_serves_the_rest() -> None:
    tree = Tree(Limits(znodes=3))
    tree.multi([Create("/a"), Create("/b")])
    assert tree.node_count == 3
    with pytest.raises(LimitError) as caught:
        tree.apply(Create("/c"))
    assert caught.value.code == -125
    with pytest.raises(MultiFailed) as failed:
        tree.multi([Delete("/a"), Create("/c"), Create("/d")])
    assert failed.value.index == 1
    assert tree.children("/")[0] == ["b", "a"]
    tree.apply(SetData("/a", b"x" * 1000))
    tree.multi([Delete("/a"), Create("/c")])
    tree.multi([Create("/d"), Delete("/c")])  # as a whole it does not grow
    assert tree.node_count == 3


def test_adds_are_refused_before_the_work_that_shortens_the_queue() -> None:
    tree = Tree(Limits(znodes=100, tree_bytes=10_000))
    tree.multi([Create(f"/{number}") for number in range(94)])
    assert tree.node_count == 95
    queued = [Create("/task-", sequence=True), Create("/ready")]
    with pytest.raises(MultiFailed) as failed:
        tree.multi(queued)
    assert failed.value.error.code == -125
    # Work in progress: a claim with its mark, and a log entry.
    tree.multi([Delete("/0"), Create("/claim"), Create("/owner")])
    tree.apply(Create("/log-", sequence=True))
    assert tree.node_count == 97
    tree.multi([Delete("/1"), Delete("/2"), Delete("/3"), Delete("/4"), *queued])


def test_a_server_full_of_bytes_refuses_writes_that_grow_and_serves_the_rest() -> None:
    tree = Tree(Limits(tree_bytes=100))
    tree.apply(Create("/a", b"x" * 90))
    used = tree.znodes.bytes
    for op in (Create("/b/"), Create("/bbbbbbb"), SetData("/a", b"x" * 98), SetAcl("/a", SECRET)):
        with pytest.raises(TreeError):
            tree.apply(op)
    with pytest.raises(MultiFailed):
        tree.multi([Create("/b"), SetData("/a", b"x" * 96)])
    assert tree.znodes.bytes == used
    tree.apply(SetData("/a", b"y" * 90))
    tree.multi([SetData("/a", b""), Create("/b", b"x" * 50)])
    tree.apply(Delete("/b"))
    tree.apply(Delete("/a"))
    assert tree.znodes.bytes == 1


def test_a_container_is_deleted_some_time_after_its_last_child() -> None:
    tree = Tree(track_changes=True)
    tree.multi([Create("/box", container=True), Create("/box/in", container=True)])
    assert tree.get("/box")[1].ephemeral_owner == 0
    assert tree._nodes["/box"].owner == CONTAINER_OWNER
    assert tree.sweep(0) == []
    tree.apply(Create("/box/in/x"))
    assert tree.sweep(0) == []
    tree.apply(Delete("/box/in/x"))
    zxid = tree.zxid
    # The outer one has lost its last child only now: the next time.
    assert tree.sweep(0) == ["/box/in"]
    assert tree.sweep(0) == ["/box"]
    assert tree.sweep(0) == []
    assert tree.zxid == zxid + 2
    assert tree.ephemerals(CONTAINER_OWNER) == frozenset()


def test_a_ttl_node_is_deleted_when_its_ttl_has_passed_without_a_write() -> None:
    tree = Tree()
    tree.apply(Create("/t", ttl_ms=100), now_ms=1000)
    tree.apply(Create("/t/x"), now_ms=1000)
    assert tree._nodes["/t"].owner == TTL_OWNER + 100
    assert tree.sweep(5000) == []
    tree.apply(SetData("/t"), now_ms=5000)
    with pytest.raises(NotEmptyError):
        tree.apply(Delete("/t"))
    tree.apply(Delete("/t/x"), now_ms=5000)
    assert tree.sweep(5100) == []
    tree.exists("/t", "w")
    assert tree.sweep(5101) == ["/t"]
    assert [event.kind for event in tree.watches.take_events()] == ["deleted"]


def test_a_sweep_in_several_calls_deletes_only_nodes_that_are_still_due() -> None:
    tree = Tree()
    tree.multi([Create(f"/{name}", ttl_ms=1) for name in "abcdef"])
    assert tree.sweep(9, at_most=1) == ["/a"]
    tree.apply(Delete("/b"), now_ms=9)
    tree.apply(SetData("/c"), now_ms=9)
    tree.apply(Create("/d/child"), now_ms=9)
    tree.apply(Delete("/e"), now_ms=9)
    tree.apply(Create("/e"), now_ms=9)  # another node, without a time to live
    tree.apply(Create("/late", ttl_ms=1), now_ms=0)
    assert tree.sweep(9, at_most=1) == ["/f"]
    assert tree.sweep(9, at_most=1) == ["/late"]
    assert tree.sweep(99, at_most=5) == ["/c"]


def test_containers_and_ttl_nodes_belong_to_no_session() -> None:
    tree = Tree()
    tree.multi([Create("/c", container=True), Create("/t", ttl_ms=5), Create("/t/x")])
    tree.apply(Create("/e", ephemeral=True), session=-5_000_000_000_000_000_000)
    assert tree.ephemeral_count == 1
    for owner in (CONTAINER_OWNER, TTL_OWNER, TTL_OWNER + 5):
        assert tree.close_session(owner) == []
    assert tree.close_session(-5_000_000_000_000_000_000) == ["/e"]
    assert tree.ephemeral_count == 0


def test_a_node_is_not_counted_among_the_nodes_below_it() -> None:
    tree = Tree(system_nodes=True)
    tree.multi([Create("/a"), Create("/a/b"), Create("/a/b/c"), Create("/ab"), Create("/a/d")])
    assert tree.count_descendants("/a") == 3
    assert tree.count_descendants("/ab") == 0
    assert tree.count_descendants("/") == tree.node_count - 1 == 8
    with pytest.raises(TreeError):
        tree.count_descendants("/none")


def test_a_very_deep_tree_is_counted() -> None:
    tree = Tree()
    paths = ["/x" * depth for depth in range(1, 3000)]
    tree.multi([Create(path) for path in paths])
    assert sorted(paths_of(tree), key=len) == ["/", *paths]
    assert tree.count_descendants("/x") == 2998
