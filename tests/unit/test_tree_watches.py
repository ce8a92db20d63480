"""Watches that stay, that are removed, and that a reconnected client arms again."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from zkplan.embedded.records import BadArgumentsError, LimitError, NoWatcherError
from zkplan.embedded.requests import SetWatches
from zkplan.embedded.tree import Create, Delete, Op, SetData, Tree

CHILDREN, DATA, ANY = 1, 2, 3


def tree_with(*paths: str) -> Tree:
    tree = Tree()
    for path in paths:
        tree.apply(Create(path))
    return tree


def told(tree: Tree, watcher: Hashable = "w") -> list[tuple[str, str]]:
    return [(event.kind, event.path) for event in tree.take_events() if event.watcher == watcher]


A, AB, ABC = "/a", "/a/b", "/a/b/c"
#: What is there, the paths watched for good (and whether with all below), what is done, the events.
LASTING: dict[str, tuple[list[str], dict[str, bool], list[Op], str]] = {
    "every change of a node and of its list of children": (
        [],
        {A: False},
        [Create(A), SetData(A), SetData(A), Create(AB), SetData(AB), Delete(AB), Delete(A)],
        "created /a, changed /a, changed /a, child /a, child /a, deleted /a",
    ),
    "every node below once, and no lists of children": (
        [A, "/ab"],
        {A: True},
        [
            Create(AB),
            Create(ABC),
            SetData(ABC),
            SetData(A),
            SetData("/ab"),
            Delete(ABC),
            Delete(AB),
        ],
        "created /a/b, created /a/b/c, changed /a/b/c, changed /a, deleted /a/b/c, deleted /a/b",
    ),
    "everything below the root": (
        [],
        {"/": True},
        [Create(A), Create(AB), SetData("/"), Delete(AB)],
        "created /a, created /a/b, changed /, deleted /a/b",
    ),
    "once, though armed in several ways": (
        [A, AB],
        {"/": True, A: True},
        [SetData(AB), Delete(AB)],
        "changed /a/b, deleted /a/b",
    ),
}


@pytest.mark.parametrize("what", LASTING)
def test_a_watch_that_stays_hears(what: str) -> None:
    there, watched, ops, events = LASTING[what]
    tree = tree_with(*there)
    for path, recursive in watched.items():
        tree.add_watch(path, "w", recursive=recursive)
    for op in ops:
        tree.apply(op)
    assert ", ".join(f"{kind} {path}" for kind, path in told(tree)) == events


def test_a_read_with_a_watch_ends_a_watch_that_stays_as_in_version_3_8() -> None:
    tree = tree_with("/a")
    tree.add_watch("/a", "w", recursive=True)
    tree.get("/a", "w")
    tree.multi([SetData("/a"), SetData("/a"), Create("/a/b")])
    assert told(tree) == [("changed", "/a")]


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        (CHILDREN, [("changed", "/a"), ("changed", "/a")]),
        (DATA, [("child", "/a")]),
        (ANY, []),
    ],
)
def test_watches_are_removed_by_kind(kind: int, left: list[tuple[str, str]]) -> None:
    tree = tree_with("/a")
    tree.add_watch("/a", "w")
    tree.add_watch("/a", "other")
    tree.remove_watches("/a", "w", kind)
    with pytest.raises(NoWatcherError) as caught:
        tree.remove_watches("/a", "w", kind)
    assert caught.value.code == -121
    tree.multi([SetData("/a"), Create("/a/b"), SetData("/a")])
    events = tree.take_events()
    assert [(event.kind, event.path) for event in events if event.watcher == "w"] == left
    assert sum(event.watcher == "other" for event in events) == 3


def test_removing_a_watch_tells_nobody_and_needs_the_very_path() -> None:
    tree = tree_with("/a", "/a/b")
    tree.add_watch("/a", "w", recursive=True)
    for path, watcher in (("/a/b", "w"), ("/a", "other"), ("/none", "w")):
        with pytest.raises(NoWatcherError):
            tree.remove_watches(path, watcher, ANY)
    tree.remove_watches("/a", "w", ANY)
    tree.apply(SetData("/a/b"))
    assert tree.take_events() == []
    assert tree.watch_counts() == (0, 0, 0)


def test_a_watch_can_be_looked_for_without_being_removed() -> None:
    tree = tree_with("/a")
    tree.get("/a", "w")
    tree.remove_watches("/a", "w", DATA, only_check=True)
    # Version 3.8 looks for a watch of the path, whosever it is.
    tree.remove_watches("/a", "other", DATA, only_check=True)
    for kind, path in ((CHILDREN, "/a"), (DATA, "/b")):
        with pytest.raises(NoWatcherError):
            tree.remove_watches(path, "w", kind, only_check=True)
    assert tree.watch_counts() == (1, 1, 1)


@pytest.mark.parametrize("kind", [0, 4, -1])
def test_there_is_no_other_kind_of_watches(kind: int) -> None:
    with pytest.raises(BadArgumentsError):
        Tree().remove_watches("/a", "w", kind)


def test_a_reconnected_client_is_told_what_it_missed_and_armed_for_the_rest() -> None:
    # The write of /seen is the last one that the client has seen.
    tree = tree_with("/a", "/b", "/gone", "/p", "/q", "/seen")
    seen = tree.zxid
    tree.multi([SetData("/b"), Delete("/gone"), Create("/q/x"), Create("/came")])
    data, child = ("/a", "/b", "/gone", "/seen"), ("/p", "/q", "/gone", "/seen")
    again = SetWatches(seen, data, ("/came", "/never"), child)
    tree.set_watches(again, "w")
    assert told(tree) == [
        ("changed", "/b"),
        ("deleted", "/gone"),
        ("created", "/came"),
        ("child", "/q"),
        ("deleted", "/gone"),
    ]
    tree.multi([SetData("/a"), SetData("/b"), Create("/never"), Create("/p/x"), Create("/q/y")])
    assert told(tree) == [("changed", "/a"), ("created", "/never"), ("child", "/p")]


def test_a_reconnected_client_gets_its_lasting_watches_back() -> None:
    tree = tree_with("/a", "/b")
    tree.set_watches(SetWatches(0, (), (), (), ("/a",), ("/b",)), "w")
    tree.multi([Create("/a/x"), SetData("/a/x"), Create("/b/x"), SetData("/b/x")])
    assert told(tree) == [("child", "/a"), ("created", "/b/x"), ("changed", "/b/x")]


def test_watches_are_counted_by_watcher_path_and_all_together() -> None:
    tree = tree_with("/a", "/b")
    tree.get("/a", "v")
    tree.get("/a", "w")
    tree.children("/a", "w")
    tree.add_watch("/b", "w", recursive=True)
    assert tree.watch_counts() == (2, 2, 5)
    tree.apply(SetData("/a"))
    assert tree.watch_counts() == (1, 2, 3)
    tree.drop_watches("w")
    tree.drop_watches("w")
    assert tree.watch_counts() == (0, 0, 0)


def test_a_watcher_with_too_many_watches_gets_no_more_until_some_are_spent() -> None:
    tree = Tree(max_watches=3)
    tree.multi([Create("/a"), Create("/b")])
    tree.get("/a", "w")
    tree.add_watch("/b", "w")
    for arm in (tree.get, tree.exists, tree.children, tree.add_watch):
        with pytest.raises(LimitError):
            arm("/a", "w")
    tree.get("/a", "other")
    tree.get("/a")
    tree.apply(SetData("/a"))
    tree.children("/a", "w")
    assert tree.watch_counts() == (1, 2, 3)


def test_a_dropped_recursive_watch_leaves_the_others_armed() -> None:
    tree = tree_with("/a", "/a/b")
    for watcher in ("gone", "stays"):
        tree.add_watch("/a", watcher, recursive=True)
    tree.drop_watches("gone")
    tree.apply(SetData("/a/b"))
    assert told(tree, "stays") == [("changed", "/a/b")]
    tree.drop_watches("stays")
    tree.apply(SetData("/a/b"))
    assert tree.take_events() == []
    # With nobody listening recursively, no event looks at the paths above.
    assert tree._watches._data.recursive == tree._watches._child.recursive == 0


def test_dropping_a_watcher_costs_its_own_watches_and_not_those_of_all() -> None:
    tree = Tree()
    for number in range(20_000):
        tree.exists(f"/{number}", "many")
    looks: list[str] = []

    class Counting(dict[str, dict[Hashable, int]]):
        def __getitem__(self, path: str) -> dict[Hashable, int]:
            looks.append(path)
            return super().__getitem__(path)

        items = keys = values = __iter__ = None  # type: ignore[assignment]

    tree._watches._data.by_path = Counting(tree._watches._data.by_path)
    tree.exists("/one", "few")
    tree.drop_watches("few")
    assert len(looks) < 10
