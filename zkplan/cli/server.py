"""`zkplan server`: a ZooKeeper for one machine, in this process, until it is told to stop."""

from __future__ import annotations

import errno
import ipaddress
import shlex
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import EXIT_FAILED, end
from .common import log_to_stderr

if TYPE_CHECKING:
    from ..embedded import EmbeddedServer

#: Start of the line that is printed once clients can connect. Programs read the address after it.
READY = "zkplan server at "
_WARNING = """\
warning: it listens on {host}, without TLS and without a password: anyone who can reach it can read
and change every plan, and so run code on the workers. Listen on 127.0.0.1, or let a firewall or an
SSH tunnel decide who reaches it."""

_SIGNED = """\
note: {data} has a secret of its own. Clients that use the folder as embedded:FOLDER sign with it.
Clients that work on their plans through the port need it, too: ZKPLAN_SECRET=$(cat {file}),
and for large values on this machine ZKPLAN_STORE={store}"""


def _address(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(
            f"{value!r} is not HOST:PORT, such as 127.0.0.1:2181 (port 0 takes a free one)"
        )
    # Without a host the server would listen everywhere. A user must ask for that with 0.0.0.0.
    return host.strip("[]") or "127.0.0.1", int(port)


def _folder(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    if value is not None and not value.strip():
        raise click.BadParameter("the name is empty: give a folder (`.` is the current one)")
    return None if value is None else Path(value).expanduser()


@click.command(short_help="Run a ZooKeeper for one machine; needs Python only.")
@click.option(
    "--listen",
    callback=_address,
    metavar="HOST:PORT",
    default="127.0.0.1:2181",
    help="Address that clients connect to. Port 0 takes a free port.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False),
    callback=_folder,
    help="Folder that keeps the data. Without it, the data is lost when the server ends.",
)
@click.option(
    "--durability",
    type=click.Choice(["durable", "fast"]),
    default="durable",
    help="What an answered write survives. durable: a power cut. fast: only kill -9.",
)
@click.option(
    "--tick-time",
    "tick_time_ms",
    type=click.IntRange(10, 60_000),
    default=500,
    metavar="MS",
    help="A dead session ends at most this many milliseconds after its time-out.",
)
@click.option(
    "--max-connections", type=click.IntRange(1), help="Allow at most this many open connections."
)
@click.option("--max-znodes", type=click.IntRange(1), help="Allow at most this many znodes.")
@click.option(
    "--max-bytes", type=click.IntRange(1), help="Allow at most this many bytes of data in memory."
)
def server(
    listen: tuple[str, int],
    data: Path | None,
    durability: str,
    tick_time_ms: int,
    max_connections: int | None,
    max_znodes: int | None,
    max_bytes: int | None,
) -> None:
    """Run a ZooKeeper for one machine until Ctrl-C or SIGTERM. It needs Python only.

    When clients can connect, the command prints one line with the address. The server is one
    process on one disk, without replication. To move to an ensemble, change only the --hosts of
    clients and workers. Exit codes: 0 stopped, 1 the disk failed, the port is taken, or the folder
    is damaged or in use.
    """
    # Imported here: no other command needs a server to be loaded.
    from ..embedded import EmbeddedServer, Limits
    from ..embedded.secret import SECRET

    log_to_stderr()
    chosen = {"connections": max_connections, "znodes": max_znodes, "tree_bytes": max_bytes}
    limits = Limits()._replace(**{name: most for name, most in chosen.items() if most is not None})
    host, port = listen
    # Before a folder is made and before the warning: a mistyped address leaves nothing behind.
    try:
        _try_address(host, port)
    except OSError as error:
        end(_told(host, port, error), EXIT_FAILED)
    made = EmbeddedServer(
        data,
        host=host,
        port=port,
        durability=durability,
        tick_time_ms=tick_time_ms,
        limits=limits,
    )
    if data is not None and (data / SECRET).exists():
        click.echo(
            _SIGNED.format(
                data=data,
                file=shlex.quote(str(data / SECRET)),
                store=shlex.quote(f"file://{data.resolve()}/store"),
            ),
            err=True,
        )
    if not _is_loopback(host):
        click.echo(_WARNING.format(host=host), err=True)
    try:
        code = made.run(lambda ready: click.echo(_ready_line(ready, data, durability)))
    except OSError as error:
        end(_told(host, port, error), EXIT_FAILED)
    if made.fatal is not None:
        end(str(made.fatal) or type(made.fatal).__name__, EXIT_FAILED)
    sys.exit(code)


def _try_address(host: str, port: int) -> None:
    """Raises OSError if no server could listen there now."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    socket.create_server(address[:2], family=family).close()


def _told(host: str, port: int, error: OSError) -> str:
    """What happened and what to do; the text of the system alone says neither."""
    from ..embedded import StorageError

    if isinstance(error, StorageError):
        return str(error)
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    known = {
        errno.EADDRINUSE: "the port is taken, perhaps by a server that runs already. Connect to "
        f"it, or choose another port; a free one is found with --listen "
        f"{place.removesuffix(str(port))}0",
        errno.EADDRNOTAVAIL: f"this machine has no address {host}; --listen 127.0.0.1:{port} "
        f"serves this machine alone, 0.0.0.0:{port} everyone who can reach it",
        errno.EACCES: "this user may not listen there; choose a port above 1023",
    }
    why = known.get(error.errno or 0, str(error))
    if isinstance(error, socket.gaierror):
        why = f"no host {host!r} is known here; --listen 127.0.0.1:{port} serves this machine"
    return f"cannot serve at {place}: {why}"


def _ready_line(server: EmbeddedServer, data: Path | None, durability: str) -> str:
    if data is None:
        return f"{READY}{server.hosts}, in memory only: its data is lost when it ends"
    means = "survives kill -9, not a power cut" if durability == "fast" else "durable"
    return f"{READY}{server.hosts}, data in {data.resolve()} ({means})"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
