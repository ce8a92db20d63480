"""Everything that one without the login can try on a znode, with a client of another kind."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError, NotEmptyError
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

import zkplan

from .support import plain_client, started, wait_until

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
    """What of all this was not refused. Fails where hardly anything was there to be refused."""
    paths = list(paths)
    found, refused = tried(client, paths, tries)
    assert refused >= len(paths), f"of {paths} only {refused} attempts were refused by a list"
    return found


def tried(
    client: KazooClient, paths: Iterable[str], tries: dict[str, Try]
) -> tuple[list[str], int]:
    """What of all this was not refused, and how much was. A znode that is gone tells nothing."""
    found, refused = [], 0
    again = KazooRetry(max_tries=20, delay=0.1, max_delay=1.0)
    for path in paths:
        for deed, attempt in tries.items():
            try:
                again(attempt, client, path)
            except NoAuthError:
                refused += 1
            except (NoNodeError, NotEmptyError):
                continue  # the latter: the root, below a parent that is open, is not deleted either
            else:
                found.append(f"{deed} {path}")
    return found, refused


@contextmanager
def strangers(hosts: str) -> Iterator[list[KazooClient]]:
    """One without a login, and one with another login."""
    other = [("digest", "mallory:guess")]
    with plain_client(hosts) as nobody, plain_client(hosts, auth_data=other) as mallory:
        yield [nobody, mallory]


@contextmanager
def run_of_a_command(*words: str) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """`zkplan demo`, or stress, once it is ready: hosts and root of its own server, and itself."""
    command = (sys.executable, "-m", "zkplan", *words)
    with started(*command, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        told = iter(process.stdout)
        hosts = next(match[1] for line in told if (match := re.search(r" at ([\d.:]+)", line)))
        with zkplan.connect(hosts) as client:
            znodes = client.transport.client
            (name,) = wait_until(
                lambda: [each for each in znodes.get_children("/") if each.startswith("zkplan-")],
                "its root is there",
            )
            wait_until(lambda: znodes.exists(f"/{name}/workers"), "it is ready")
        yield hosts, f"/{name}", process
