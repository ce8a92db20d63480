"""The servers of a connection: whether each is reached, its version, whether it writes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import InvalidSettings, ZkplanError
from ..settings import Settings
from ..settings.settings import SASL_GSSAPI
from ..transport.access import unstarted_client
from ..transport.reach import Reached, reach
from .findings import Finding, note, ok, problem

#: The check of the finding that no server can be used.
NONE = "servers"
_EACH_S = 5.0
#: Older ones answer one read at a time; and the first that keeps its members alike (see
#: docs/operate/operating.md).
_BATCHES, _SOUND = (3, 6), (3, 9, 4)


def look(settings: Settings) -> Iterator[Finding]:
    """Look at each server. The last finding is NONE if no server can be used."""
    try:
        client, context = unstarted_client(settings)
    except InvalidSettings as error:
        yield problem(NONE, str(error), "correct the file, or the field that names it")
        return
    except ValueError as error:
        yield problem(
            NONE, f"`hosts` cannot be read: {error}", "write host:port, with commas between"
        )
        return
    within_s = min(_EACH_S, settings.connect_timeout)
    found = [
        reach(host, port, context, settings.tls_server_name, within_s)
        for host, port in client.hosts
    ]
    yield from (finding for each in found for finding in _about(each))
    if all(each.problem for each in found):
        yield problem(NONE, "no server can be used", "see above")


def _about(server: Reached) -> Iterator[Finding]:
    if server.problem:
        yield problem("server", f"{server.address}: {server.problem}", server.todo)
        return
    yield from _mode(server)
    banner = server.facts.get("Zookeeper version", "")
    version = tuple(map(int, re.findall(r"\d+", banner.partition(",")[0])[:3]))
    if not version:
        yield note(
            "version",
            f"{server.address} does not tell its version",
            "to see it here, add srvr to 4lw.commands.whitelist in zoo.cfg",
        )
        return
    shown = ".".join(map(str, version))
    if version < _BATCHES:
        yield problem(
            "version",
            f"{server.address} is an old ZooKeeper {shown}: it reads one znode at a time",
            "upgrade it to 3.9.4 or newer",
        )
    elif version < _SOUND and "zkplan" not in banner and server.facts.get("Mode") != "standalone":
        yield note(
            "version",
            f"{server.address} is ZooKeeper {shown}, whose members may come to differ",
            "upgrade it to 3.9.4 or newer",
        )
    else:
        yield ok("version", f"{server.address} is ZooKeeper {shown}")


def _mode(server: Reached) -> Iterator[Finding]:
    mode = server.facts.get("Mode", "")
    if mode == "read-only":
        yield problem(
            "server",
            f"{server.address} only reads: it has lost the other members of its ensemble",
            "start the other members, or let it reach them; name all of them in `hosts`",
        )
    elif mode == "not serving":
        yield problem(
            "server",
            f"{server.address} serves nobody: its ensemble has no majority",
            "start the other members, or let it reach them",
        )
    else:
        count = server.facts.get("Node count", "")
        told = [f"{server.address} is reached", mode, f"{count} znodes" if count else ""]
        yield ok("server", ", ".join(filter(None, told)))


def why_no_session(settings: Settings, error: ZkplanError) -> Finding:
    """Servers are reached, but there is no session."""
    todo = "look into the log of the server"
    if settings.login_type.startswith("sasl"):
        what = "the ticket of kinit" if settings.login_type == SASL_GSSAPI else "user and password"
        todo = f"check {what}; the log of the server says why it refuses a login"
    elif settings.uses_tls:
        todo = (
            "the server may ask for the certificate of the client: set tls.certificate to one that "
            "an authority of its trust store has signed"
        )
    return problem("session", f"no session begins: {error}", todo)
