"""Everything that one without the login can try on a znode, with a client of another kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError, NotEmptyError
from kazoo.security import OPEN_ACL_UNSAFE

from .support import plain_client

Try = Callable[[KazooClient, str], Any]


def _in_a_transaction(client: KazooClient, path: str) -> None:
    transaction = client.transaction()
    transaction.set_data(path, b"other")
    for result in transaction.commit():
        if isinstance(result, NoAuthError | NoNodeError):
            raise result


#: What an access list refuses; the right to delete lies with the parent.
TRIES: dict[str, Try] = {
    "list": lambda client, path: client.get_children(path),
    "read": lambda client, path: client.get(path),
    "write": lambda client, path: client.set(path, b"other"),
    "create": lambda client, path: client.create(f"{path}/other-", sequence=True),
    "delete": lambda client, path: client.delete(path),
    "see the list": lambda client, path: client.get_acls(path),
    "change the list": lambda client, path: client.set_acls(path, OPEN_ACL_UNSAFE),
    "write in a transaction": _in_a_transaction,
}
#: What is refused besides where the server itself asks for a login.
TRIES_ON_A_CLOSED_SERVER: dict[str, Try] = TRIES | {
    "look for": lambda client, path: client.exists(path),
    "wait for": lambda client, path: client.exists(path, watch=print),
    "synchronise": lambda client, path: client.sync(path),
}


def allowed(client: KazooClient, paths: Iterable[str], tries: dict[str, Try]) -> list[str]:
    """What of all this was not refused; a znode that is gone by now tells nothing."""
    found = []
    for path in paths:
        for deed, attempt in tries.items():
            try:
                attempt(client, path)
            except (NoAuthError, NoNodeError):
                continue
            except NotEmptyError:
                continue  # the root, below a parent that is open: it is not deleted either
            found.append(f"{deed} {path}")
    return found


def kind_of(path: str) -> str:
    """The path of a znode without what differs from one znode of its kind to the next.

    >>> kind_of("/r/plan-0000000004/runnable/5000-0000000001.0.0")
    '/r/plan-N/runnable/ENTRY'
    """
    path = re.sub(r"/(claims|workers)/[^/]+", r"/\1/ID", path)
    path = re.sub(r"/[0-9]{4}-[0-9]{10}\.[0-9]+\.[0-9]+", "/ENTRY", path)
    path = re.sub(r"/(pending|prov)-[^/]+", r"/\1-UID", path)
    path = re.sub(r"[0-9]{10,13}(-[0-9]{10})*(-ENTRY|-[0-9.]+)*[^/]*", "N", path)
    return re.sub(r"/ID/N$", "/ID/CLAIM", path)


@contextmanager
def strangers(hosts: str) -> Iterator[list[KazooClient]]:
    """One without a login, and one with another login."""
    other = [("digest", "mallory:guess")]
    with plain_client(hosts) as nobody, plain_client(hosts, auth_data=other) as mallory:
        yield [nobody, mallory]
