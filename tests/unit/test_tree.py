"""The znode tree in memory answers, refuses and notifies as a ZooKeeper server does."""

from __future__ import annotations

import pytest

from zkplan.embedded.nodes import INT_MAX
from zkplan.embedded.tree import (
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Delete,
    Event,
    MultiFailed,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    SetData,
    Stat,
    Tree,
    TreeError,
)


def tree_with(*paths: str) -> Tree:
    tree = Tree()
    for path in paths:
        tree.apply(Create(path))
    return tree


def everything(tree: Tree) -> dict[str, tuple[bytes, Stat, list[str]]]:
    return {path: (*tree.get(path), sorted(tree.children(path)[0])) for path in ("/", *tree.walk())}


def test_a_created_node_carries_its_data_time_and_zxid() -> None:
    tree = Tree()
    assert tree.apply(Create("/a", b"abc"), now_ms=77) == "/a"
    data, stat = tree.get("/a")
    assert data == b"abc"
    assert stat == Stat(1, 1, 77, 77, 0, 0, 0, 0, 3, 0, 1)
    assert tree.zxid == 1


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (Create("/a"), NodeExistsError),
        (Create("/"), NodeExistsError),
        (Create("/none/x"), NoNodeError),
        (Create("/mortal/x"), NoChildrenForEphemeralsError),
        (Create("/a", ephemeral=True), NodeExistsError),
        (Delete("/none"), NoNodeError),
        (Delete("/a"), NotEmptyError),
        (Delete("/a", version=9), BadVersionError),
        (Delete("/"), BadArgumentsError),
        (Delete("/zookeeper"), BadArgumentsError),
        (SetData("/none"), NoNodeError),
        (SetData("/a", version=1), BadVersionError),
        (Check("/none"), NoNodeError),
        (Check("/a", version=1), BadVersionError),
    ],
)
def test_a_refused_operation_writes_nothing_but_takes_a_zxid(
    op: Create | Delete | SetData | Check, error: type[TreeError]
) -> None:
    tree = tree_with("/a", "/a/b")
    tree.apply(Create("/mortal", ephemeral=True), session=7)
    tree.take_events()
    before, zxid = everything(tree), tree.zxid
    with pytest.raises(error) as caught:
        tree.apply(op, session=7)
    assert type(caught.value) is error
    assert everything(tree) == before
    assert tree.zxid == zxid + 1
    assert tree.ephemerals(7) == {"/mortal"}


IMPOSSIBLE = (
    "",
    "a",
    "/a/",
    "/a/.",
    "/a/..",
    "/a/\x00",
    "/a\x00/b",
    "/a/\n",
    "/a/\x7f",
    "/a/\ud7ff\uf8ff",
)


@pytest.mark.parametrize("path", [*IMPOSSIBLE, "/a/😀", "//x", "//"])
def test_an_impossible_path_can_be_neither_created_nor_written(path: str) -> None:
    tree = tree_with("/a", "/x")
    for op in (Create(path), SetData(path), Check(path)):
        with pytest.raises(BadArgumentsError):
            tree.apply(op)


@pytest.mark.parametrize("path", ["/a//b", "/a/./b", "a/b"])
def test_an_impossible_parent_of_a_new_node_is_a_missing_one(path: str) -> None:
    tree = tree_with("/a")
    with pytest.raises(NoNodeError):
        tree.apply(Create(path))
    with pytest.raises(BadArgumentsError):
        tree.apply(SetData(path))
    with pytest.raises(NoNodeError):
        tree.apply(Delete(f"/{path}"))


@pytest.mark.parametrize(
    "path", ["/a/...", "/a/..b", "/a/.b", "/a/b c", "/a/é", "/a/\u00a0", "/a/\uffef"]
)
def test_a_strange_but_legal_name_is_accepted(path: str) -> None:
    assert tree_with("/a").apply(Create(path)) == path


def test_sequence_numbers_count_creates_and_never_come_back() -> None:
    tree = tree_with("/q")
    assert tree.apply(Create("/q/t-", sequence=True)) == "/q/t-0000000000"
    tree.apply(Create("/q/plain"))
    tree.apply(Delete("/q/t-0000000000"))
    assert tree.apply(Create("/q/t-", sequence=True)) == "/q/t-0000000002"
    assert tree.apply(Create("/q/", sequence=True)) == "/q/0000000003"


def test_a_version_wraps_and_a_used_up_counter_refuses_as_in_32_bits() -> None:
    tree = tree_with("/p")
    node = tree._nodes["/p"]
    node.version = node.creates = INT_MAX
    assert tree.apply(SetData("/p")).version == -(2**31)
    last = tree.apply(Create("/p/", sequence=True))
    assert last == "/p/2147483647"
    with pytest.raises(NodeExistsError):
        tree.apply(Create("/p/", sequence=True))
    assert tree.get("/p")[1].cversion == 2 * INT_MAX - 1 - 2**32


def test_children_come_in_order_of_creation_and_walk_lists_every_path_below_sorted() -> None:
    tree = tree_with("/b", "/a", "/a/z", "/a/y", "/a/y/x")
    assert tree.children("/")[0] == ["b", "a"]
    assert list(tree.walk()) == ["/a", "/a/y", "/a/y/x", "/a/z", "/b"]
    assert list(tree.walk("/a")) == ["/a/y", "/a/y/x", "/a/z"]


def test_a_multi_answers_each_operation_and_later_ones_see_earlier_ones() -> None:
    tree = tree_with("/p")
    answers = tree.multi(
        [
            Create("/p/t-", sequence=True),
            Create("/p/t-0000000000/ready", b"2"),
            SetData("/p/t-0000000000/ready", b"3"),
            Check("/p/t-0000000000/ready", 1),
            Delete("/p/t-0000000000/ready", 1),
            Delete("/p/t-0000000000"),
        ]
    )
    created, ready, written, *rest = answers
    assert (created, ready) == ("/p/t-0000000000", "/p/t-0000000000/ready")
    assert isinstance(written, Stat)
    assert (written.version, written.mzxid) == (1, 2)
    assert rest == [True, True, True]
    assert tree.children("/p")[0] == []


@pytest.mark.parametrize("position", range(7))
def test_a_multi_refused_at_any_position_leaves_no_trace(position: int) -> None:
    tree = tree_with("/p", "/p/a", "/p/b")
    tree.apply(Create("/p/mine", ephemeral=True), session=7)
    for path in ("/p", "/p/a", "/p/b", "/p/new", "/p/mine"):
        tree.exists(path, "w")
    for path in ("/p", "/p/a"):
        tree.children(path, "w")
    tree.take_events()
    before = everything(tree)
    ops: list[Create | Delete | SetData | Check] = [
        SetData("/p/a", b"new"),
        Create("/p/new", ephemeral=True),
        Delete("/p/a"),
        Create("/p/a", b"again"),
        Delete("/p/mine"),
        Create("/p/s-", sequence=True),
    ]
    ops.insert(position, Check("/p/b", version=9))
    with pytest.raises(MultiFailed) as caught:
        tree.multi(ops, session=7)
    assert caught.value.index == position
    assert type(caught.value.error) is BadVersionError
    assert everything(tree) == before
    assert tree.ephemerals(7) == {"/p/mine"}
    assert tree.take_events() == []
    # The watches of before are still armed, and the next number is the one it would have been.
    assert tree.apply(Create("/p/s-", sequence=True)) == "/p/s-0000000003"
    assert tree.take_events() == [Event("w", "child", "/p")]


def test_a_closed_session_loses_its_ephemerals_and_no_others_in_one_zxid() -> None:
    tree = tree_with("/p", "/p/stays")
    tree.apply(Create("/p/b", ephemeral=True), session=1)
    tree.apply(Create("/p/a", ephemeral=True), session=1)
    tree.apply(Create("/p/theirs", ephemeral=True), session=2)
    assert tree.get("/p/a")[1].ephemeral_owner == 1
    zxid = tree.zxid
    assert tree.close_session(1) == ["/p/a", "/p/b"]
    assert tree.zxid == tree.get("/p")[1].pzxid == zxid + 1
    assert tree.children("/p")[0] == ["stays", "theirs"]
    assert tree.ephemerals(1) == frozenset()
    assert tree.close_session(1) == []


def test_an_ephemeral_without_a_session_is_refused() -> None:
    with pytest.raises(BadArgumentsError):
        Tree().apply(Create("/a", ephemeral=True))


Call = tuple[str, str, str]
#: What is there, which watches are armed, what is done, and who is told what.
WATCHED: list[tuple[list[str], list[Call], list[Op], list[Call]]] = [
    # A change of data, once.
    (
        ["/a"],
        [("get", "/a", "w"), ("exists", "/a", "w")],
        [SetData("/a"), SetData("/a")],
        [("w", "changed", "/a")],
    ),
    # The creation of what was missing.
    ([], [("exists", "/a", "w")], [Create("/a")], [("w", "created", "/a")]),
    # A child gained or lost, but no data.
    (
        ["/p"],
        [("children", "/p", "w")],
        [SetData("/p"), Create("/p/a"), SetData("/p/a")],
        [("w", "child", "/p")],
    ),
    (["/p", "/p/a"], [("children", "/p", "w")], [Delete("/p/a")], [("w", "child", "/p")]),
    # The end of a session.
    (["/e"], [("exists", "/e", "w")], [], [("w", "deleted", "/e")]),
]


@pytest.mark.parametrize(("there", "armed", "ops", "told"), WATCHED)
def test_a_watch_fires_once_for_what_it_watches(
    there: list[str], armed: list[Call], ops: list[Op], told: list[Call]
) -> None:
    tree = Tree()
    for path in there:
        tree.apply(Create(path, ephemeral=path == "/e"), session=1)
    for read, path, watcher in armed:
        getattr(tree, read)(path, watcher)
    for op in ops:
        tree.apply(op)
    tree.close_session(1)
    assert tree.take_events() == told
    assert tree.take_events() == []


def test_a_read_of_a_missing_node_says_so_and_arms_nothing() -> None:
    tree = Tree()
    for read in (tree.get, tree.children):
        with pytest.raises(NoNodeError) as caught:
            read("/a", "w")
        assert (caught.value.path, caught.value.code) == ("/a", -101)
    tree.multi([Create("/a"), Delete("/a")])
    assert tree.take_events() == []


def test_a_deletion_tells_each_watcher_of_the_node_once_and_then_the_parent() -> None:
    tree = tree_with("/p", "/p/a")
    tree.get("/p/a", "both")
    tree.children("/p/a", "both")
    tree.children("/p/a", "lister")
    tree.children("/p", "parent")
    tree.apply(Delete("/p/a"))
    assert tree.take_events() == [
        Event("both", "deleted", "/p/a"),
        Event("lister", "deleted", "/p/a"),
        Event("parent", "child", "/p"),
    ]
    tree.apply(Create("/p/a"))
    assert tree.take_events() == []


def test_dropped_watches_are_silent_and_those_of_others_are_not() -> None:
    tree = tree_with("/a")
    for watcher in ("gone", "stays"):
        tree.get("/a", watcher)
        tree.children("/a", watcher)
    tree.drop_watches("gone")
    tree.multi([SetData("/a"), Create("/a/b")])
    assert tree.take_events() == [Event("stays", "changed", "/a"), Event("stays", "child", "/a")]


def test_system_nodes_are_there_on_request_and_do_not_count() -> None:
    assert list(Tree().walk()) == []
    tree = Tree(system_nodes=True)
    assert list(tree.walk()) == ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"]
    assert tree.get("/")[1].cversion == -1
    assert tree.get("/zookeeper")[1].cversion == -2
    assert tree.apply(Create("/x-", sequence=True)) == "/x-0000000000"
