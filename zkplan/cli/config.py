"""`zkplan config show|check`: show the settings and their origins, and check the connection."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import click

from ..basics.settings import Settings, with_password
from ..basics.settings_fields import FIELDS, JSON, SASL_GSSAPI, Field
from ..basics.text import printable, without_login
from ..client import connect_with
from ..errors import InvalidSettings, ZkplanError
from ..transport.access import unstarted_client
from ..transport.addresses import ServerAddress, is_embedded, server_at
from ..transport.probes import Reached, reach
from ..values.keyring import keys_of
from . import EXIT_FAILED, doctor
from .common import (
    all_connection_options,
    log_to_stderr,
    output_option,
    print_rows,
    result_options,
)
from .doctor import Finding, note, ok, problem

#: The `check` of the finding that no server can be used.
NONE = "servers"
_EACH_S = 5.0
#: The first version that reads several znodes in one request, and the first whose members stay
#: alike (see docs/operate/operating.md).
_BATCHES, _SOUND = (3, 6), (3, 9, 4)


def look_at_servers(settings: Settings) -> Iterator[Finding]:
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
            f"{server.address} does not report its version",
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
            f"{server.address} is read-only: it has lost the other members of its ensemble",
            "start the other members, or let it reach them; name all of them in `hosts`",
        )
    elif mode == "not serving":
        yield problem(
            "server",
            f"{server.address} serves no client: its ensemble has no majority",
            "start the other members, or let it reach them",
        )
    else:
        znodes = server.facts.get("Node count", "")
        facts = [f"{server.address} is reached", mode, f"{znodes} znodes" if znodes else ""]
        yield ok("server", ", ".join(filter(None, facts)))


def why_no_session(settings: Settings, error: ZkplanError) -> Finding:
    """The finding for servers that can be reached, but open no session."""
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


# ---- Check a connection from the settings on: each step needs the one before it.


def findings_of(settings: Settings) -> Iterator[Finding]:
    """Yield the findings, up to the first one that makes the next steps impossible.

    The check creates one znode that ends with its session, and changes nothing else.
    """
    try:
        settings = with_password(settings)
    except InvalidSettings as error:
        yield problem("login", str(error), "correct it; `zkplan config show` shows where it is set")
        return
    yield from _settings(settings)
    if not is_embedded(settings.hosts):
        for finding in look_at_servers(settings):
            yield finding
            if finding.check == NONE:
                return
    try:
        client = connect_with(settings)
    except ZkplanError as error:
        yield why_no_session(settings, error)
        return
    with client:
        yield from doctor.look(client, settings)


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
            "none: anyone who reaches the servers may read and change every plan",
            "set login.user and login.file or login.command, or tls.certificate",
        )
    if settings.login_type == "digest" and not (
        settings.uses_tls or is_embedded(settings.hosts) or _is_local(settings.hosts)
    ):
        yield note(
            "login",
            "the password of a digest login crosses the network in clear text",
            "speak TLS: set tls.ca, and the port for TLS in `hosts`",
        )
    if settings.uses_tls and not settings.tls_check_host_name:
        yield note(
            "tls",
            "host names are not checked: any server with a certificate of the authority will do",
            "set tls.check-host-name to true, and tls.server-name if the names differ",
        )
    yield from _keys(settings, has_own=server is not None and bool(server.secret))


def _found(settings: Settings) -> ServerAddress | None:
    """Return your own server at this address, if one is known. Starts none."""
    if is_embedded(settings.hosts):
        return None
    try:
        return server_at(settings.hosts)
    except ZkplanError:
        return None  # connecting says why


def _keys(settings: Settings, has_own: bool) -> Iterator[Finding]:
    yield ok("serializer", settings.serializer)
    try:
        keys_of(settings)
    except InvalidSettings as error:
        yield problem("keys", str(error), "see docs/operate/security.md#keys")
    has_own = has_own or is_embedded(settings.hosts)
    if not (settings.secret or settings.secret_files or has_own):
        runs = "code in workers, and in authors that read results"
        if settings.serializer == JSON:
            runs = "any function that a worker allows"
        found = f"payloads are not signed: anyone who may write the tree can run {runs}"
        yield note("keys", found, "set secret-files")


def _is_local(hosts: str) -> bool:
    addresses = hosts.partition("/")[0].split(",")
    return all(each.strip().startswith(("127.", "localhost", "[::1]")) for each in addresses)


# ---- The commands.


@click.group()
def config() -> None:
    """Look at how zkplan connects: profiles, the environment and options, merged."""


@config.command()
@output_option
@all_connection_options
def show(output: str, settings: Settings) -> None:
    """Show each setting with its origin. Secrets are masked.

    Profiles are in ~/.config/zkplan.toml and ./zkplan.toml, or in the file that ZKPLAN_CONFIG
    names. ./zkplan.toml may set only harmless fields: its folder may come from anyone. The
    variables ZKPLAN_… override a profile, and options override both.
    """
    rows = [
        _row(field, settings, output)
        for field in FIELDS
        if field.attribute in settings.origins or getattr(settings, field.attribute)
    ]
    if output == "table":
        click.echo(f"profile: {settings.profile or 'none'}", err=True)
    print_rows(rows, output, ("field", "value", "origin"))


def _row(field: Field, settings: Settings, output: str) -> dict[str, Any]:
    value = getattr(settings, field.attribute)
    if field.is_secret and value:
        value = "***"
    elif field.name in ("store", "hosts"):
        value = without_login(value)
    elif isinstance(value, tuple):
        value = list(value) if output == "json" else ", ".join(value)
    elif isinstance(value, bool) and output != "json":
        value = "true" if value else "false"
    origin = settings.origins.get(field.attribute, "default")
    return {"field": field.name, "value": value, "origin": origin}


@config.command()
@result_options
def check(output: str, settings: Settings) -> None:
    """Check the connection: servers, TLS, login, rights, others' rights, clock, latency, limits.

    Each problem and note says what to do. The command creates one znode, which ends with the
    command, and changes nothing else. The exit code is 1 if there is a problem, 0 otherwise.
    """
    log_to_stderr(logging.ERROR)
    has_problem = False

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal has_problem
        for finding in findings_of(settings):
            has_problem = has_problem or finding.state == "problem"
            yield finding._asdict()

    if output == "json":
        print_rows(rows(), output, ())
    else:
        for row in rows():
            click.echo(printable(f"{row['state']:<7}  {row['check']}: {row['told']}"))
            if row["todo"]:
                click.echo(printable(f"         {row['todo']}"))
    if has_problem:
        raise SystemExit(EXIT_FAILED)
