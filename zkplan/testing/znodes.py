"""Remove a whole tree of znodes, pipelined, because a test of many tasks leaves many znodes."""

from __future__ import annotations

from collections.abc import Iterator

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
        _delete_all(client, _tree(client, root)[::-1])
    if client.exists(root) is not None:
        client.delete(root)


def _tree(client: KazooClient, root: str) -> list[str]:
    """`root` and all below it, parents before children."""
    found = level = [root]
    while level:
        level = [child for chunk in _chunks(level) for child in _children(client, chunk)]
        found = found + level
    return found


def _children(client: KazooClient, parents: list[str]) -> Iterator[str]:
    answers = [(parent, client.get_children_async(parent)) for parent in parents]
    for parent, answer in answers:
        try:
            names = answer.get(timeout=_ANSWER_TIMEOUT_S)
        except NoNodeError:
            continue
        yield from (f"{parent}/{name}" for name in names)


def _delete_all(client: KazooClient, paths: list[str]) -> None:
    # One client's writes are applied in the order they were sent, so children before parents holds.
    for chunk in _chunks(paths):
        many = client.transaction()
        for path in chunk:
            many.delete(path)
        if all(done is True for done in many.commit()):
            continue
        for answer in [client.delete_async(path) for path in chunk]:
            try:
                answer.get(timeout=_ANSWER_TIMEOUT_S)
            except (NoNodeError, NotEmptyError):
                continue


def _chunks(paths: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(paths), _IN_FLIGHT_MAX):
        yield paths[start : start + _IN_FLIGHT_MAX]
