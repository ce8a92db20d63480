"""Reads: each answered from the tree, and refused where its answer would be too large.

A small request may ask for any multiple of the tree: children with long names, one large node a
thousand times. So an answer is measured before it becomes bytes, by a bound that costs little; and
before a watch is armed, since whoever is refused does not expect its event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from zkplan.embedded import requests as ask
from zkplan.embedded.peer import Peer
from zkplan.embedded.records import Acl, LimitError, TreeError
from zkplan.embedded.tree import Tree

# At most what stands around the content of an answer: headers, counts, a Stat.
_AROUND_BYTES = 128
_ERROR_BYTES = 13
# A character has up to four bytes, a text its length before it.
_CHARACTER_BYTES, _LENGTH_BYTES = 4, 4

_Read = ask.GetData | ask.GetChildren


class Reads:
    """The reads of one server; an answer above `answer_bytes` is refused with LimitError."""

    def __init__(self, tree: Tree, answer_bytes: int) -> None:
        self._tree = tree
        self._answer_bytes = answer_bytes
        #: One for each kind of request: its answer is given, or a TreeError raised.
        self.handlers: dict[type, Callable[[Peer, Any], Any]] = {
            ask.GetData: self.get_data,
            ask.Exists: self.exists,
            ask.GetChildren: self.get_children,
            ask.GetAcl: self.get_acl,
            ask.MultiRead: self.multi_read,
            ask.Sync: lambda _, request: request.path,
            ask.GetEphemerals: self.get_ephemerals,
            ask.CountDescendants: lambda peer, request: tree.count_descendants(
                request.path, peer.identities
            ),
            ask.WhoAmI: lambda peer, _: peer.identities,
        }

    def get_data(self, peer: Peer, request: ask.GetData) -> Any:
        return self._tree.get(request.path, peer if request.watch else None, peer.identities)

    def exists(self, peer: Peer, request: ask.Exists) -> Any:
        return self._tree.exists(request.path, peer if request.watch else None)

    def get_children(self, peer: Peer, request: ask.GetChildren) -> Any:
        path, watcher = request.path, peer if request.watch else None
        if self._is_tree_small():
            return self._tree.children(path, watcher, peer.identities)
        answer = self._tree.children(path, None, peer.identities)
        self._judge_texts(path, answer[0])
        if watcher is not None:
            self._tree.watches.arm_child(path, watcher)
        return answer

    def get_acl(self, peer: Peer, request: ask.GetAcl) -> Any:
        answer = self._tree.get_acl(request.path, peer.identities)
        self._judge(request.path, _size_of_acl(answer[0]))
        return answer

    def multi_read(self, peer: Peer, request: ask.MultiRead) -> Any:
        answers: list[Any] = []
        size = 0
        # Each is done and measured once: a list of networks or of children is long, a request to
        # read it short.
        known: dict[_Read, tuple[Any, int]] = {}
        for read in request.reads:
            found = known.get(read)
            if found is None:
                found = known[read] = self._read(peer, read)
            answers.append(found[0])
            size += found[1]
            self._judge(read.path, size)
        return answers

    def _read(self, peer: Peer, read: _Read) -> tuple[Any, int]:
        """Its answer or refusal, and how many bytes that has at most."""
        try:
            if isinstance(read, ask.GetData):
                found = self._tree.get(read.path, None, peer.identities)
                return found, len(found[0]) + _AROUND_BYTES
            listed = self._tree.children(read.path, None, peer.identities)
            return listed, _size_of_texts(listed[0]) + _AROUND_BYTES
        except TreeError as error:
            return error, _ERROR_BYTES

    def get_ephemerals(self, peer: Peer, request: ask.GetEphemerals) -> Any:
        prefix = "" if request.prefix.strip() in {"", "/"} else request.prefix
        owned = self._tree.ephemerals(peer.session_id)
        paths = sorted(path for path in owned if path.startswith(prefix))
        self._judge_texts(request.prefix, paths)
        return paths

    def _is_tree_small(self) -> bool:
        # To measure ten thousand names takes a good part of the time of the whole answer. All paths
        # of a tree like this fit into one: each has a character at least, and a length before it.
        bytes_at_most = (_CHARACTER_BYTES + _LENGTH_BYTES) * self._tree.znodes.bytes
        return bytes_at_most + _AROUND_BYTES <= self._answer_bytes

    def _judge_texts(self, path: str, texts: Sequence[str]) -> None:
        # First by a bound: each look at all of a huge list costs as much as half of the answer.
        at_most = _CHARACTER_BYTES * sum(map(len, texts)) + _LENGTH_BYTES * len(texts)
        if at_most + _AROUND_BYTES > self._answer_bytes:
            self._judge(path, _size_of_texts(texts))

    def _judge(self, path: str, size: int) -> None:
        if size + _AROUND_BYTES > self._answer_bytes:
            raise LimitError(path)


def _size_of_texts(texts: Sequence[str]) -> int:
    if all(map(str.isascii, texts)):
        return sum(map(len, texts)) + _LENGTH_BYTES * len(texts)
    return sum(_size_of_text(text) for text in texts)


def _size_of_text(text: str) -> int:
    return _LENGTH_BYTES + len(text) * (1 if text.isascii() else _CHARACTER_BYTES)


def _size_of_acl(entries: Iterable[Acl]) -> int:
    return sum(4 + _size_of_text(entry.scheme) + _size_of_text(entry.id) for entry in entries)
