"""`zkplan root new-key|rotate-key`: make a key, and seal anew what stands with the newest one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click

from ..basics.text import count
from ..errors import InvalidSettings
from ..inspection.workers import living_workers
from ..protection.keys import AES, SECRET, SIGNING, check_keys, new_key, public_key, read_keys
from ..protection.reseal import reseal
from ..settings import Settings
from . import EXIT_FAILED, EXIT_USAGE, end
from .common import connection_options, open_client, output_option, print_facts

_PRIVATE = 0o600


@click.command("new-key")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--id", "identity", metavar="ID", help="What the key is called (default: random).")
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
    help="Add it to the file as its last key, which reads and does not seal yet.",
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
@click.option("--anyway", is_flag=True, help="Also where workers still seal with another key.")
@output_option
@connection_options
def rotate_key(anyway: bool, output: str, settings: Settings) -> None:
    """Seal all data under the root anew with the first key of this client. Plans go on.

    Give the new key to all authors and workers first: as the last key, then, when all have it, as
    the first. `zkplan worker ls` shows which keys a worker has, the one that it seals with first.
    After this command the old key may go. Exit codes: 0 all is sealed with the first key, 1
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
                f"{count(len(others), 'worker')} would go on to seal with another key than "
                f"{first.name}: {', '.join(others[:5])}. Restart them with it as the first key, or "
                "seal anew all the same with --anyway, and once more later",
                EXIT_USAGE,
            )
        found = client.transport.run(reseal(client.guard, client.paths))
    refused = [str(error) for error in found.refused]
    facts = {"key": first.name, "sealed anew": found.resealed, "left": found.left}
    shown = refused if output == "json" else "\n".join(refused[:20])
    print_facts({**facts, "refused": shown}, output)
    if found.left or refused:
        raise SystemExit(EXIT_FAILED)
