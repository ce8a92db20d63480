"""Access lists of znodes: what whoever has not logged in may do, and closing what is open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoAuthError, NoNodeError
from kazoo.security import CREATOR_ALL_ACL, Permissions

from .transport import Transport

#: The rights of ZooKeeper, each with its bit.
RIGHTS = {
    "read": Permissions.READ,
    "write": Permissions.WRITE,
    "create": Permissions.CREATE,
    "delete": Permissions.DELETE,
    "admin": Permissions.ADMIN,
}
#: Schemes that ask for no login: anybody, and anybody at an address.
_OF_OUTSIDERS = ("world", "ip")
_IN_FLIGHT = 500
_ANSWER_S = 30.0


class AccessList(NamedTuple):
    """The list of one znode. `open_to` are the bits of who has not logged in."""

    path: str
    #: Each login as `scheme:id`, without what proves it, and its bits.
    logins: tuple[tuple[str, int], ...]
    open_to: int
    version: int


def access_lists(transport: Transport, root: str) -> Iterator[tuple[str, AccessList | None]]:
    """The list of each znode at and below `root`, parents first; None where it may not be read.

    Znodes that come or go meanwhile may be missing.
    """
    client, waiting = transport.client, [root]
    while waiting:
        paths = [waiting.pop() for _ in range(min(_IN_FLIGHT, len(waiting)))]
        lists = [client.get_acls_async(path) for path in paths]
        children = [client.get_children_async(path) for path in paths]
        for path, found, names in zip(paths, lists, children, strict=True):
            try:
                yield path, _read(path, found)
                waiting += [f"{path}/{name}" for name in names.get(timeout=_ANSWER_S)]
            except NoNodeError:
                pass
            except NoAuthError:
                yield path, None


def open_rights(transport: Transport, path: str) -> int | None:
    """What whoever has not logged in may do with that znode; None where nobody says."""
    try:
        return _read(path, transport.client.get_acls_async(path)).open_to
    except (KazooException, transport.client.handler.timeout_exception):
        return None


def close_each(transport: Transport, found: Iterable[AccessList]) -> tuple[int, list[str]]:
    """Give these znodes the list of what this client creates; how many, and those it may not.

    A list that somebody changes meanwhile is left alone: the next pass meets it again.
    """
    client: KazooClient = transport.client
    wanted = client.default_acl or CREATOR_ALL_ACL
    closed, refused = 0, []
    sent = [(one.path, client.set_acls_async(one.path, wanted, one.version)) for one in found]
    for path, answer in sent:
        try:
            answer.get(timeout=_ANSWER_S)
            closed += 1
        except (NoNodeError, BadVersionError):
            pass
        except NoAuthError:
            refused.append(path)
    return closed, refused


def granted_to_outsiders(transport: Transport) -> int:
    """What this client itself gives whoever has not logged in, by its explicit list."""
    return _open_to(transport.client.default_acl or ())


def _read(path: str, answer: Any) -> AccessList:
    entries, stat = answer.get(timeout=_ANSWER_S)
    logins: dict[str, int] = {}
    for entry in entries:
        if entry.id.scheme not in _OF_OUTSIDERS:
            # What follows a digest's colon is a hash of the password.
            name = f"{entry.id.scheme}:{entry.id.id.partition(':')[0]}"
            logins[name] = logins.get(name, 0) | entry.perms
    return AccessList(path, tuple(logins.items()), _open_to(entries), stat.aversion)


def _open_to(entries: Iterable[Any]) -> int:
    bits = 0
    for entry in entries:
        if entry.id.scheme in _OF_OUTSIDERS:
            bits |= entry.perms
    return bits
