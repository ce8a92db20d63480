"""The words of the znode tree: operations, their answers, and the errors of a refusal.

TreeError                       one operation was refused, nothing was written
  NoNodeError                   the node, or the parent of the node to be, does not exist
  NodeExistsError               the node to create exists
  BadVersionError               the node has another version than the operation named
  NotEmptyError                 the node to delete has children
  NoChildrenForEphemeralsError  an ephemeral node cannot be a parent
  BadArgumentsError             the server could never accept this path (or this operation)
MultiFailed                     a multi was refused whole; carries the culprit and its TreeError
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple


class Stat(NamedTuple):
    """What ZooKeeper tells about a node; times in milliseconds, `data_length` in bytes.

    `cversion` is what a server reports, 2 * creates - children, and not the sequence counter.
    `aversion` is always 0: the tree knows no access control lists.
    """

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class Create(NamedTuple):
    """Create a node; with `sequence` its parent's counter is appended to the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Delete(NamedTuple):
    """Delete a node without children; version -1 matches any version."""

    path: str
    version: int = -1


class SetData(NamedTuple):
    """Replace the data of a node and raise its version by one; version -1 matches any version."""

    path: str
    data: bytes = b""
    version: int = -1


class Check(NamedTuple):
    """Refuse unless the node exists at this version; version -1 matches any version."""

    path: str
    version: int = -1


Op = Create | Delete | SetData | Check
Answer = str | bool | Stat


class TreeError(Exception):
    """One operation on `path` was refused and nothing was written; `code` is ZooKeeper's number."""

    code: ClassVar[int] = -1

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class NoNodeError(TreeError):
    """The node, or the parent of the node to create or delete, does not exist."""

    code = -101


class BadVersionError(TreeError):
    """The node has another version than the operation named: someone else wrote it."""

    code = -103


class NoChildrenForEphemeralsError(TreeError):
    """The parent of the node to create is ephemeral."""

    code = -108


class NodeExistsError(TreeError):
    """The node to create exists already."""

    code = -110


class NotEmptyError(TreeError):
    """The node to delete has children."""

    code = -111


class BadArgumentsError(TreeError):
    """No server would ever accept this: an impossible path, or the deletion of a system node."""

    code = -8


class MultiFailed(Exception):
    """A multi was refused and nothing of it was written.

    `index` counts from 0 and names the first operation that was refused; `error` says why.
    """

    def __init__(self, index: int, error: TreeError) -> None:
        super().__init__(f"operation {index} refused, so nothing of the multi was written: {error}")
        self.index = index
        self.error = error
