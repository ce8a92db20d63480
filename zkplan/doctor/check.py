"""Check a connection from the settings on: each step needs the one before it."""

from __future__ import annotations

from collections.abc import Iterator

from ..client import connect_with
from ..errors import InvalidSettings, ZkplanError
from ..protection.keys import keys_of
from ..settings import Settings
from ..settings.login import with_password
from ..settings.settings import JSON
from ..transport.addresses import is_embedded, lease
from ..transport.leases import Lease
from . import servers, tree
from .findings import Finding, note, ok, problem


def check(settings: Settings) -> Iterator[Finding]:
    """The findings, as they are made. The first one that leaves nothing to go on with is the last.

    It creates one znode that ends with its session, and changes nothing else.
    """
    try:
        settings = with_password(settings)
    except InvalidSettings as error:
        yield problem("login", str(error), "correct it; `zkplan config show` tells where it stands")
        return
    yield from _settings(settings)
    hosts_answer = True
    if not is_embedded(settings.hosts):
        for finding in servers.look(settings):
            yield finding
            hosts_answer = hosts_answer and finding.check != servers.NONE
    if not hosts_answer:
        return
    try:
        client = connect_with(settings)
    except ZkplanError as error:
        yield servers.why_no_session(settings, error)
        return
    with client:
        yield from tree.look(client, settings)


def _settings(settings: Settings) -> Iterator[Finding]:
    if settings.profile:
        yield ok("profile", settings.profile)
    server = _found(settings)
    if settings.has_login:
        yield ok("login", settings.login_type or "by the certificate of this client")
    elif server is not None and server.is_closed():
        yield ok("login", "that of a closed server of yours on this machine, which was found")
    elif not is_embedded(settings.hosts):
        yield note(
            "login",
            "none: whoever reaches the servers may read and change every plan",
            "set login.user and login.file or login.command, or tls.certificate",
        )
    if settings.login_type == "digest" and not (
        settings.uses_tls or is_embedded(settings.hosts) or _is_local(settings.hosts)
    ):
        yield note(
            "login",
            "the password of a digest login crosses the network as it is",
            "speak TLS: set tls.ca, and the port for TLS in `hosts`",
        )
    if settings.uses_tls and not settings.tls_check_host_name:
        yield note(
            "tls",
            "host names are not checked: any server with a certificate of the authority will do",
            "set tls.check-host-name to true, and tls.server-name if the names differ",
        )
    yield from _keys(settings, has_own=server is not None and bool(server.secret))


def _found(settings: Settings) -> Lease | None:
    """What is known of the server at an address of this machine. It starts none."""
    if is_embedded(settings.hosts):
        return None
    try:
        return lease(settings.hosts)
    except ZkplanError:
        return None  # connecting says why


def _keys(settings: Settings, has_own: bool) -> Iterator[Finding]:
    yield ok("serializer", settings.serializer)
    try:
        keys_of(settings)
    except InvalidSettings as error:
        yield problem("keys", str(error), "see docs/operate/security.md#keys")
    is_json = settings.serializer == JSON
    has_own = has_own or is_embedded(settings.hosts)
    if not (settings.secret or settings.secret_files or has_own):
        yield note(
            "keys",
            "payloads are not signed: whoever may write the tree runs "
            + (
                "any function that a worker allows"
                if is_json
                else "code in workers, and in authors that read results"
            ),
            "set secret-files",
        )


def _is_local(hosts: str) -> bool:
    addresses = hosts.partition("/")[0].split(",")
    return all(each.strip().startswith(("127.", "localhost", "[::1]")) for each in addresses)
