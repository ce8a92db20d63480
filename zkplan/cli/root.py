"""`zkplan root`: create a root, close it, manage its keys, see what outsiders can do there."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import click

from ..basics.settings import Settings
from ..basics.text import count
from ..errors import InvalidSettings
from ..values.check_seals import reseal
from ..values.keyring import AES, SECRET, SIGNING, check_keys, new_key, public_key, read_keys
from ..views.root_access import (
    Open,
    RootAccess,
    close_root,
    require_login,
    root_access,
    workers_without_login,
)
from ..views.workers import living_workers
from . import EXIT_FAILED, EXIT_USAGE, end
from .common import connection_options, open_client, print_facts, result_options
from .retention import budget, retention

_PRIVATE = 0o600


@click.command("new-key")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--id", "identity", metavar="ID", help="The name of the key (default: random).")
@click.option(
    "--kind",
    type=click.Choice([SECRET, AES, SIGNING]),
    default=SECRET,
    show_default=True,
    help="secret: seals with a shared key. aes: also encrypts. ed25519: seals with a private key, "
    "and the public half is enough to read. The last two need `zkplan[crypto]`.",
)
@click.option(
    "--add",
    is_flag=True,
    help="Add the key to FILE as its last one, which only reads.",
)
@click.option(
    "--public",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the public half of an ed25519 key to this file. A client with it can only read.",
)
def new_key_command(
    file: Path, identity: str | None, kind: str, add: bool, public: Path | None
) -> None:
    """Make a key of 32 random bytes, and write it to FILE, which only its owner can read.

    The name of the key is printed, never the key. No file is overwritten.
    """
    if public is not None and kind != SIGNING:
        end("--public is for keys of the kind ed25519", EXIT_USAGE)
    key = new_key(identity or f"k{secrets.token_hex(3)}", kind)
    half = public_key(key) if kind == SIGNING else None
    if add:
        check_keys([*read_keys([str(file)]), key])
    try:
        _write(file, key.to_line(), add)
        if public is not None and half is not None:
            _write(public, half.to_line(), add=False)
    except OSError as error:
        end(f"{error.filename} cannot be written: {error.strerror}", EXIT_FAILED)
    click.echo(key.name)


def _write(file: Path, line: str, add: bool) -> None:
    opened = os.open(file, os.O_WRONLY | (os.O_APPEND if add else os.O_CREAT | os.O_EXCL), _PRIVATE)
    with open(opened, "w", encoding="ascii") as written:
        written.write(f"{line}\n")
        written.flush()
        os.fsync(opened)


@click.command("rotate-key")
@click.option("--anyway", is_flag=True, help="Go on even if workers still seal with another key.")
@result_options
def rotate_key(anyway: bool, output: str, settings: Settings) -> None:
    """Seal all data under the root again, with the first key of this client. Plans go on.

    Give the new key to all authors and workers first: as the last key, then, when all have it, as
    the first. `zkplan worker ls` shows the keys of a worker; a worker seals with its first key.
    After this command you may remove the old key. Exit codes: 0 all is sealed with the first key, 1
    something is not.
    """
    with open_client(settings) as client:
        if client.guard is None:
            end("no key is given (secret-files): there is nothing to seal with", EXIT_USAGE)
        first = client.keys[0]
        if not first.can_seal:
            raise InvalidSettings(f"the key {first.name} can only read: give the one that signs")
        others = [w.id for w in living_workers(client) if w.keys.split()[:1] != [first.name]]
        if others and not anyway:
            end(
                f"{count(len(others), 'worker')} would still seal with another key than "
                f"{first.name}: {', '.join(others[:5])}. Restart them with {first.name} as their "
                "first key, or seal now with --anyway, and once more later",
                EXIT_USAGE,
            )
        found = client.transport.run(reseal(client.guard, client.paths))
    refused = [str(error) for error in found.refused]
    facts = {"key": first.name, "sealed anew": found.resealed, "left": found.left}
    shown = refused if output == "json" else "\n".join(refused[:20])
    print_facts({**facts, "refused": shown}, output)
    if found.left or refused:
        raise SystemExit(EXIT_FAILED)


@click.group(short_help="Set a root up, close it, bound it, make and rotate its keys.")
def root() -> None:
    """Set a root up, close it, make and rotate its keys, and see what an outsider can do there.

    An outsider is anyone who reaches ZooKeeper without a login.
    """


for _command in (budget, retention, new_key_command, rotate_key):
    root.add_command(_command)


@root.command()
@connection_options
def init(settings: Settings) -> None:
    """Create the root, closed to all but this login.

    A root that exists stays as it is. A `zkplan server` without --open keeps others out by itself:
    then no login is needed. Exit codes: 0 it exists and is closed, 1 it is open, or not all of it
    may be read.
    """
    with open_client(settings, creates=True) as client:
        if not client.transport.server_is_closed:
            require_login(client)
        client.prepare()
        report = root_access(client)
    if report.is_open:
        end(f"{report.root} exists and is open: close it with `zkplan root lock`", EXIT_FAILED)
    _require_all_read(report.unreadable)
    click.echo(f"{report.root} is there, and {report.told}")


@root.command()
@result_options
def show(output: str, settings: Settings) -> None:
    """Show what an outsider can list, read, write and delete.

    The command looks at every znode of the root. Exit codes: 0 an outsider can do nothing, 1 an
    outsider can do something, or not all of the root may be read.
    """
    with open_client(settings, needs_root=False) as client:
        report = root_access(client)
    print_facts(_facts(report, output), output)
    _require_all_read(report.unreadable)
    if report.is_open:
        raise SystemExit(EXIT_FAILED)


@root.command()
@click.option(
    "--anyway", is_flag=True, help="Go on even if workers without a login run: they lose access."
)
@connection_options
def lock(anyway: bool, settings: Settings) -> None:
    """Close every znode of the root to all but this login, while plans run.

    Start the workers and authors with a login first: their new znodes are closed from the start,
    and they can go on. You may run the command again, also after it was interrupted. Access lists
    of other logins stay. If a `zkplan server` without --open keeps others out, and you give no
    login, nothing is changed. Exit codes: 0 nothing is open, 1 not all of the root may be read.
    """
    with open_client(settings, needs_root=False) as client:
        if client.transport.server_is_closed and not client.transport.logs_in:
            report = root_access(client)
            _require_all_read(report.unreadable)
            click.echo(f"{report.root} is {report.told}: nothing was changed")
            return
        require_login(client)
        without = workers_without_login(client)
        if without and not anyway:
            end(
                f"{count(len(without), 'worker')} without a login would lose access: "
                f"{', '.join(without[:5])}. The tasks claimed there would wait until these workers "
                "end. Restart them with a login first, or close the root with --anyway",
                EXIT_USAGE,
            )
        closed = close_root(client)
    _require_all_read(closed.unreadable, f"{count(closed.znodes, 'znode')} had been open; ")
    click.echo(f"{client.root} is closed: {count(closed.znodes, 'znode')} had been open")


def _require_all_read(unreadable: Open, before: str = "") -> None:
    """End with exit code 1 if some znodes cannot be read: they may be open."""
    if not unreadable.znodes:
        return
    more = ", …" if unreadable.znodes > len(unreadable.examples) else ""
    end(
        f"{before}{count(unreadable.znodes, 'znode')} may not be read with this login, and may be "
        f"open: {', '.join(unreadable.examples)}{more}. Run this with the login that made them",
        EXIT_FAILED,
    )


def _facts(report: RootAccess, output: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"root": report.root, "znodes": report.znodes, "open": report.is_open}
    if output == "json":
        return facts | {
            "closed_by_server": report.closed_by_server,
            "open_lists": vars(report.open_lists),
            "outsiders": {deed: vars(found) for deed, found in report.outsiders.items()},
            "logins": dict(report.logins),
            "unreadable": vars(report.unreadable),
        }
    known = "not known of all of it" if report.unreadable.znodes else f"no: {report.told}"
    facts["open"] = "yes: anyone who reaches ZooKeeper needs no login" if report.is_open else known
    for deed, found in report.outsiders.items():
        examples = "\n".join(found.examples + ["…"] * (found.znodes > len(found.examples)))
        facts[f"outsider can {deed}"] = f"{found.znodes:,}\n{examples}".rstrip()
    facts["logins"] = "\n".join(f"{name}: {times:,}" for name, times in report.logins.items())
    facts["unreadable"] = "\n".join([f"{report.unreadable.znodes:,}", *report.unreadable.examples])
    return facts
