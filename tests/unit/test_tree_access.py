"""Who may do what in the tree, and which error comes first where several are due."""

from __future__ import annotations

from typing import Any

import pytest

from zkplan.embedded.acl import digest_identity
from zkplan.embedded.records import (
    ADMIN,
    CREATE,
    DELETE,
    OPEN_ACL,
    READ,
    WRITE,
    Acl,
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Delete,
    Identity,
    InvalidAclError,
    MultiFailed,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    Op,
    SetAcl,
    SetData,
    TreeError,
)
from zkplan.embedded.tree import Event, Tree

ANN = (digest_identity("ann:secret"),)
BOB = (Identity("ip", "127.0.0.1"), digest_identity("bob:secret"))
SASL = (Acl(31, "sasl", "somebody"),)


def only(perms: int) -> tuple[Acl, ...]:
    """Everybody may do so much, and Ann everything."""
    return (Acl(perms, "world", "anyone"), Acl(31, *ANN[0]))


def tree_of(**lists: tuple[Acl, ...]) -> Tree:
    tree = Tree()
    for name, acl in lists.items():
        tree.apply(Create(f"/{name}", acl=acl), who=ANN)
    return tree


@pytest.mark.parametrize(
    ("needed", "op"),
    [
        (CREATE, Create("/p/new")),
        (CREATE, Create("/p/new-", sequence=True)),
        (DELETE, Delete("/p/child")),
        (WRITE, SetData("/p")),
        (READ, Check("/p")),
        (ADMIN, SetAcl("/p", OPEN_ACL)),
    ],
)
def test_each_write_needs_one_permission_and_no_other(needed: int, op: Any) -> None:
    for perms in (needed, 31 - needed):
        tree = tree_of(p=only(perms))
        tree.apply(Create("/p/child"))
        if perms == needed:
            tree.apply(op, who=BOB)
        else:
            with pytest.raises(NoAuthError) as caught:
                tree.apply(op, who=BOB)
            assert caught.value.code == -102
            tree.apply(op, who=ANN)


def test_a_read_needs_read_and_arms_nothing_where_it_is_refused() -> None:
    tree = tree_of(p=only(31 - READ))
    for read in (tree.get, tree.children):
        with pytest.raises(NoAuthError):
            read("/p", "watcher", BOB)
        read("/p", None, ANN)
    with pytest.raises(NoAuthError):
        tree.count_descendants("/p", BOB)
    assert tree.watch_counts() == (0, 0, 0)
    # Everybody may ask whether a node exists.
    assert tree.exists("/p", "watcher") is not None


def test_a_list_is_read_with_read_or_admin_and_hides_hashes_without_admin() -> None:
    tree = tree_of(r=only(READ), a=only(ADMIN), w=only(WRITE), o=OPEN_ACL)
    assert tree.get_acl("/r", BOB)[0][1] == Acl(31, "digest", "ann:x")
    assert tree.get_acl("/a", BOB)[0][1] == Acl(31, *ANN[0])
    assert tree.get_acl("/r", ANN)[0][1] == Acl(31, *ANN[0])
    with pytest.raises(NoAuthError):
        tree.get_acl("/w", BOB)
    assert tree.get_acl("/o", BOB)[0] == OPEN_ACL
    with pytest.raises(NoNodeError):
        tree.get_acl("/none", BOB)


@pytest.mark.parametrize(
    ("op", "error"),
    [
        # A malformed path, then a malformed list, then the node, then the permission, ...
        (Create("relative", acl=SASL), BadArgumentsError),
        (Create("/none/x", acl=SASL), InvalidAclError),
        (Create("/p/\x01", acl=SASL), InvalidAclError),
        (Create("/none/x"), NoNodeError),
        (Create("/p/\x01"), NoAuthError),
        (Create("/p/child"), NoAuthError),
        (Create("/o/child"), NodeExistsError),
        (Delete("/p/none"), NoAuthError),
        (Delete("/o/none"), NoNodeError),
        (Delete("/p/child", 9), NoAuthError),
        (Delete("/zookeeper", 9), BadArgumentsError),
        (SetData("/p//", b"", 9), BadArgumentsError),
        (SetData("/p", b"", 9), NoAuthError),
        (SetAcl("/p//", SASL, 9), BadArgumentsError),
        (SetAcl("/none", SASL, 9), InvalidAclError),
        (SetAcl("/none", OPEN_ACL, 9), NoNodeError),
        (SetAcl("/p", OPEN_ACL, 9), NoAuthError),
        (SetAcl("/o", OPEN_ACL, 9), BadVersionError),
        (Check("/p", 9), NoAuthError),
    ],
)
def test_the_first_error_of_several_is_the_one_of_a_server(op: Any, error: type[TreeError]) -> None:
    tree = tree_of(p=only(0), o=OPEN_ACL)
    tree.apply(Create("/p/child"))
    tree.apply(Create("/o/child"))
    with pytest.raises(error) as caught:
        tree.apply(op, who=BOB)
    assert type(caught.value) is error


def test_equal_lists_are_stored_once_and_an_open_one_not_at_all() -> None:
    tree = Tree()
    for name in "abc":
        acl = OPEN_ACL if name == "c" else (Acl(31, *ANN[0]),)
        tree.apply(Create(f"/{name}", acl=acl), who=ANN)
    assert tree._nodes["/a"].acl is tree._nodes["/b"].acl
    assert tree._nodes["/c"].acl is None


def test_a_multi_without_permission_names_the_culprit_and_undoes_its_lists() -> None:
    tree = tree_of(p=only(0), o=OPEN_ACL)
    used = tree.data_bytes
    ops: list[Op] = [
        SetAcl("/o", only(CREATE)),
        Create("/o/x", acl=only(READ)),
        SetData("/p"),
    ]
    with pytest.raises(MultiFailed) as caught:
        tree.multi(ops, who=BOB)
    assert caught.value.index == 2
    assert type(caught.value.error) is NoAuthError
    acl, stat = tree.get_acl("/o")
    assert (acl, stat.aversion, stat.num_children) == (OPEN_ACL, 0, 0)
    assert tree.data_bytes == used


def test_without_identities_nothing_is_checked() -> None:
    tree = tree_of(p=only(0))
    tree.multi([Create("/p/x", acl=SASL), SetData("/p"), Check("/p"), SetAcl("/p", OPEN_ACL)])
    assert tree.get_acl("/p/x")[0] == SASL


def test_the_configuration_of_the_server_can_be_read_and_not_written() -> None:
    tree = Tree(system_nodes=True)
    acl, stat = tree.get_acl("/zookeeper/config", BOB)
    assert (acl, stat.aversion) == ((Acl(READ, "world", "anyone"),), -1)
    with pytest.raises(NoAuthError):
        tree.apply(SetData("/zookeeper/config"), who=BOB)


def test_an_event_is_told_only_to_a_watcher_that_may_read_the_node() -> None:
    proven = {"ann": ANN, "bob": BOB, "trusted": None}
    tree = Tree(identities=lambda watcher: proven[str(watcher)])
    tree.apply(Create("/p"))
    for watcher in proven:
        tree.exists("/p/x", watcher)
        tree.children("/p", watcher)
    tree.apply(Create("/p/x", acl=only(31 - READ)), who=ANN)
    assert tree.take_events() == [
        Event("ann", "created", "/p/x"),
        Event("trusted", "created", "/p/x"),
        Event("ann", "child", "/p"),
        Event("bob", "child", "/p"),
        Event("trusted", "child", "/p"),
    ]
    # The watch is spent all the same: nobody is told twice that something happened unseen.
    tree.apply(SetAcl("/p/x", OPEN_ACL))
    tree.apply(SetData("/p/x"))
    assert tree.take_events() == []
