"""Logging in to a closed server of this user on this machine, and to no other program.

Whoever listens at the port when the server has ended would be told the login, if he only answered
the handshake. So before the login is sent, the system is asked whose the other end is. Linux tells;
elsewhere that is not known, and the login goes to whoever listens there.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.serialization import Auth

from .kazoo_private import LoopStep, wrap

_TABLES = {socket.AF_INET: "/proc/net/tcp", socket.AF_INET6: "/proc/net/tcp6"}
_LISTENS = "0A"


def log_in(client: KazooClient, login: Callable[[], str]) -> None:
    """Have the client log in with each connection; `login()` is `user:password` as it is by then,
    or empty. What the client proves besides stays."""
    create = client.handler.create_connection
    own: set[tuple[str, str]] = set()
    connection: list[Any] = [None]

    def create_to_owner(*arguments: Any, **options: Any) -> Any:
        connection[0] = made = create(*arguments, **options)
        given = set(client.auth_data) - own
        own.clear()
        if found := login():
            own.add(("digest", found))
            # Before the handshake, which tells a stranger the password of the session.
            _check_owner(made, listens=True)
        client.auth_data = given | own
        return made

    def around_invoke(invoke: Callable[..., Any]) -> Callable[..., Any]:
        def invoke_with_owner(timeout: float, request: Any, *rest: Any, **more: Any) -> Any:
            if type(request) is Auth and (request.scheme, request.auth) in own:
                # The handshake was answered: the other end is taken, and known for certain.
                _check_owner(connection[0], listens=False)
            return invoke(timeout, request, *rest, **more)

        return invoke_with_owner

    client.handler.create_connection = create_to_owner
    wrap(client, LoopStep.INVOKE, around_invoke)


def _check_owner(connection: Any, *, listens: bool) -> None:
    owner = owner_of_peer(connection, listens=listens)
    if owner is not None and owner not in (0, os.geteuid()):
        host, port = connection.getpeername()[:2]
        connection.close()
        raise ConnectionDropped(
            f"user {owner} of this machine listens at {host}:{port}, where a server of yours was: "
            "nothing is sent there; start your server at another port"
        )


def owner_of_peer(connection: Any, *, listens: bool) -> int | None:
    """The user of the other end of a connection within this machine; None where it is not known.

    `listens`: of the socket that listens there, which is known before it takes the connection.
    """
    table = _TABLES.get(connection.family)
    if table is None or not os.path.exists(table):
        return None
    theirs, ours = _entry(connection.getpeername()), _entry(connection.getsockname())
    _, _, port = theirs.partition(":")
    everywhere = f"{'0' * (len(theirs) - len(port) - 1)}:{port}"
    with open(table, "rb") as lines:
        next(lines)
        for line in lines:
            fields = line.decode("ascii").split()
            local, remote, state, user = fields[1], fields[2], fields[3], int(fields[7])
            if listens:
                if state == _LISTENS and local in (theirs, everywhere):
                    return user
            elif (local, remote) == (theirs, ours):
                return user
    return None


def _entry(address: tuple[Any, ...]) -> str:
    """As the tables of Linux write it: words of four bytes in the order of the machine."""
    host, port = address[:2]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host.partition("%")[0])
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    hexed = (f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{''.join(hexed)}:{port:04X}"
