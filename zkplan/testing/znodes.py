"""Remove a whole tree of znodes, pipelined, because a test of many tasks leaves many znodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError

_IN_FLIGHT_MAX = 500
_ANSWER_TIMEOUT_S = 30.0
# A worker that a test left running may create znodes meanwhile; each pass takes what came since.
_PASSES_MAX = 5


def remove_tree(client: KazooClient, root: str) -> None:
    """Delete `root` and all below it. Does nothing if it does not exist.

    Raises kazoo's NotEmptyError where others keep creating znodes, and its connection errors.
    """
    for _ in range(_PASSES_MAX):
        if client.exists(root) is None:
            return
        tree = level = [root]
        while level:
            listed = _ask_each(client.get_children_async, level)
            level = [f"{parent}/{name}" for parent, names in listed for name in names]
            tree = tree + level
        # One client's writes are applied in the order they were sent, so children go first.
        list(_ask_each(client.delete_async, tree[::-1]))
    if client.exists(root) is not None:
        client.delete(root)


def _ask_each(ask: Callable[[str], Any], paths: list[str]) -> Iterator[tuple[str, Any]]:
    """Each path with its answer, many under way at a time; none for one that was refused."""
    for start in range(0, len(paths), _IN_FLIGHT_MAX):
        asked = [(path, ask(path)) for path in paths[start : start + _IN_FLIGHT_MAX]]
        for path, answer in asked:
            with suppress(NoNodeError, NotEmptyError):
                yield path, answer.get(timeout=_ANSWER_TIMEOUT_S)
