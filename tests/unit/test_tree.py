"""The znode tree in memory: properties that a comparison with ZooKeeper cannot show."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from zkplan.embedded.acl import authenticate, digest_identity, mended, permits, size_of
from zkplan.embedded.limits import Limits
from zkplan.embedded.operations import (
    OPEN_ACL,
    READ,
    Acl,
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Delete,
    Identity,
    LimitError,
    MultiFailed,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetAcl,
    SetData,
    Stat,
    TreeError,
)
from zkplan.embedded.tree import Tree
from zkplan.embedded.watches import Event
from zkplan.embedded.znodes import INT_MAX

from .storage_story import paths_of


def tree_with(*paths: str) -> Tree:
    tree = Tree()
    for path in paths:
        tree.apply(Create(path))
    return tree


def everything(tree: Tree) -> dict[str, tuple[bytes, Stat, list[str]]]:
    return {path: (*tree.get(path), sorted(tree.children(path)[0])) for path in paths_of(tree)}


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
    tree.watches.take_events()
    before, zxid = everything(tree), tree.zxid
    with pytest.raises(error) as caught:
        tree.apply(op, session=7)
    assert type(caught.value) is error
    assert everything(tree) == before
    assert tree.zxid == zxid + 1
    assert tree.ephemerals(7) == {"/mortal"}


def test_sequence_numbers_count_creates_and_are_never_reused() -> None:
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


def test_children_come_in_order_of_creation() -> None:
    tree = tree_with("/b", "/a", "/a/z", "/a/y", "/a/y/x")
    assert tree.children("/")[0] == ["b", "a"]
    assert tree.children("/a")[0] == ["z", "y"]


@pytest.mark.parametrize("position", range(7))
def test_a_multi_refused_at_any_position_leaves_no_trace(position: int) -> None:
    tree = tree_with("/p", "/p/a", "/p/b")
    tree.apply(Create("/p/mine", ephemeral=True), session=7)
    for path in ("/p", "/p/a", "/p/b", "/p/new", "/p/mine"):
        tree.exists(path, "w")
    for path in ("/p", "/p/a"):
        tree.children(path, "w")
    tree.watches.take_events()
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
    assert tree.watches.take_events() == []
    # The watches of before are still armed, and the next number is the one it would have been.
    assert tree.apply(Create("/p/s-", sequence=True)) == "/p/s-0000000003"
    assert tree.watches.take_events() == [Event("w", "child", "/p")]


def test_an_ephemeral_without_a_session_is_refused() -> None:
    with pytest.raises(BadArgumentsError):
        Tree().apply(Create("/a", ephemeral=True))


def test_a_deletion_notifies_each_watcher_once_and_then_the_parent() -> None:
    tree = tree_with("/p", "/p/a")
    tree.get("/p/a", "both")
    tree.children("/p/a", "both")
    tree.children("/p/a", "lister")
    tree.children("/p", "parent")
    tree.apply(Delete("/p/a"))
    assert tree.watches.take_events() == [
        Event("both", "deleted", "/p/a"),
        Event("lister", "deleted", "/p/a"),
        Event("parent", "child", "/p"),
    ]
    tree.apply(Create("/p/a"))
    assert tree.watches.take_events() == []


def test_system_nodes_exist_on_request_and_are_not_counted() -> None:
    assert paths_of(Tree()) == ["/"]
    tree = Tree(system_nodes=True)
    assert paths_of(tree) == ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"]
    assert tree.get("/")[1].cversion == -1
    assert tree.get("/zookeeper")[1].cversion == -2
    assert tree.apply(Create("/x-", sequence=True)) == "/x-0000000000"


def told(tree: Tree, watcher: Hashable = "w") -> list[tuple[str, str]]:
    return [
        (event.kind, event.path) for event in tree.watches.take_events() if event.watcher == watcher
    ]


def test_watches_are_counted_by_watcher_by_path_and_in_total() -> None:
    tree = tree_with("/a", "/b")
    tree.get("/a", "v")
    tree.get("/a", "w")
    tree.children("/a", "w")
    tree.watches.arm_for_good("/b", "w", recursive=True)
    assert tree.watches.counts() == (2, 2, 5)
    tree.apply(SetData("/a"))
    assert tree.watches.counts() == (1, 2, 3)
    tree.watches.drop("w")
    tree.watches.drop("w")
    assert tree.watches.counts() == (0, 0, 0)


def test_a_watcher_with_too_many_watches_gets_no_more_until_some_have_fired() -> None:
    tree = Tree(Limits(watches=3))
    tree.multi([Create("/a"), Create("/b")])
    tree.get("/a", "w")
    tree.watches.arm_for_good("/b", "w")
    for arm in (tree.get, tree.exists, tree.children, tree.watches.arm_for_good):
        with pytest.raises(LimitError):
            arm("/a", "w")
    tree.get("/a", "other")
    tree.get("/a")
    tree.apply(SetData("/a"))
    tree.children("/a", "w")
    assert tree.watches.counts() == (1, 2, 3)


def test_a_dropped_recursive_watch_leaves_the_others_armed() -> None:
    tree = tree_with("/a", "/a/b")
    for watcher in ("gone", "stays"):
        tree.watches.arm_for_good("/a", watcher, recursive=True)
    tree.watches.drop("gone")
    tree.apply(SetData("/a/b"))
    assert told(tree, "stays") == [("changed", "/a/b")]
    tree.watches.drop("stays")
    tree.apply(SetData("/a/b"))
    assert tree.watches.take_events() == []
    # Without a recursive watch no event looks at the paths above.
    assert tree.watches._data.recursive == tree.watches._child.recursive == 0


def test_the_cost_of_dropping_a_watcher_depends_only_on_its_own_watches() -> None:
    tree = Tree()
    for number in range(20_000):
        tree.exists(f"/{number}", "many")
    looks: list[str] = []

    class Counting(dict[str, dict[Hashable, int]]):
        def __getitem__(self, path: str) -> dict[Hashable, int]:
            looks.append(path)
            return super().__getitem__(path)

        items = keys = values = __iter__ = None  # type: ignore[assignment]

    tree.watches._data.by_path = Counting(tree.watches._data.by_path)
    tree.exists("/one", "few")
    tree.watches.drop("few")
    assert len(looks) < 10


ANN = (digest_identity("ann:secret"),)

SASL = (Acl(31, "sasl", "somebody"),)


def only(perms: int) -> tuple[Acl, ...]:
    """Everybody may do so much, and Ann everything."""
    return (Acl(perms, "world", "anyone"), Acl(31, *ANN[0]))


def tree_of(**lists: tuple[Acl, ...]) -> Tree:
    tree = Tree()
    for name, acl in lists.items():
        tree.apply(Create(f"/{name}", acl=acl), who=ANN)
    return tree


def test_equal_access_lists_are_stored_once_and_an_open_list_not_at_all() -> None:
    tree = Tree()
    for name in "abc":
        acl = OPEN_ACL if name == "c" else (Acl(31, *ANN[0]),)
        tree.apply(Create(f"/{name}", acl=acl), who=ANN)
    assert tree._nodes["/a"].acl is tree._nodes["/b"].acl
    assert tree._nodes["/c"].acl is None


def test_no_access_is_checked_for_a_request_without_identities() -> None:
    tree = tree_of(p=only(0))
    tree.multi([Create("/p/x", acl=SASL), SetData("/p"), Check("/p"), SetAcl("/p", OPEN_ACL)])
    assert tree.get_acl("/p/x")[0] == SASL


HERE = Identity("ip", "127.0.0.1")

NOBODY: tuple[Identity, ...] = ()


def of_ip(text: str, perms: int = 31) -> tuple[Acl, ...]:
    return (Acl(perms, "ip", text),)


def test_a_digest_equals_the_one_in_the_zookeeper_documentation() -> None:
    # The example of ZooKeeper's own programmer's guide and of every client library.
    assert digest_identity("super:test") == ("digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=")
    assert authenticate("digest", b"super:test", "::1") == digest_identity("super:test")


def test_an_access_list_without_a_restriction_is_stored_as_none() -> None:
    assert mended("/a", OPEN_ACL, NOBODY) is None
    assert mended("/a", OPEN_ACL * 3, NOBODY) is None
    assert mended("/a", (Acl(31, "world", "anyone"),), None) is None


@pytest.mark.parametrize(
    ("text", "address", "matches"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.0/8", "127.9.9.9", True),
        ("127.0.0.0/9", "127.128.0.0", False),
        ("10.1.2.3/0", "192.168.0.1", True),
        ("10.1.2.128/25", "10.1.2.200", True),
        ("10.1.2.128/25", "10.1.2.100", False),
        ("10.1.2.3/32", "10.1.2.3", True),
        ("::1", "::1", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("fe80::/10", "2001:db8::1", False),
        ("0.0.0.0/0", "::1", False),
        ("::/0", "127.0.0.1", False),
        ("127.0.0.0/8", "unknown", False),
    ],
)
def test_an_address_matches_if_its_first_bits_agree(text: str, address: str, matches: bool) -> None:
    acl = mended("/a", of_ip(text), NOBODY)
    assert acl is not None
    assert permits(acl, READ, (Identity("ip", address),)) is matches


def test_the_server_itself_is_permitted_everything() -> None:
    acl = (Acl(0, "world", "anyone"),)
    assert not permits(acl, READ, (HERE,))
    assert permits(acl, READ, None)
    assert permits(None, READ, NOBODY)


def test_an_open_access_list_takes_no_bytes() -> None:
    assert size_of(None) == 0
    assert size_of((Acl(1, "world", "anyone"),)) > 11
