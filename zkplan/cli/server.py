"""`zkplan server`: run a ZooKeeper for one machine in this process."""

from __future__ import annotations

import socket
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from ..basics.private import ProcessFolder, is_loopback
from . import EXIT_FAILED, end
from .common import log_options
from .metrics import (
    ListenAddress,
    end_unserved,
    metrics_options,
    read_address,
    watched_server,
)

if TYPE_CHECKING:
    from ..embedded import EmbeddedServer

_GIVEN = click.core.ParameterSource.COMMANDLINE
_HOST = "127.0.0.1"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
#: Start of the line that is printed once clients can connect. Programs read the address after it.
READY = "zkplan server at "
_OPEN = """\
warning: this server is open: anyone who can reach {host} can read, change and delete every plan,
and run code in workers, and in authors that read results, where they have no key."""

_CLOSED = """\
note: this server asks for a login. Your own zkplan programs on this machine log in by themselves,
by the address or by embedded:FOLDER. Other clients need a digest login: {login}"""

_REFUSED = """\
{host} can be reached from other machines, so it needs {lacks}. Give --tls-cert and --tls-key, and a
login by --data FOLDER (which keeps one in FOLDER/login) or --login-file FILE; or listen on
127.0.0.1; or let everybody in with --open"""


def _folder(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    if value is not None and not value.strip():
        raise click.BadParameter("the name is empty: give a folder (`.` is the current one)")
    return None if value is None else Path(value).expanduser()


@click.command(short_help="Run a ZooKeeper for one machine; needs Python only.")
@click.option(
    "--listen",
    callback=read_address,
    metavar="HOST:PORT",
    default=f"{_HOST}:2181",
    help="Address that clients connect to. Port 0 takes a free port.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    # Kubernetes sets ZKPLAN_SERVER_PORT to a URL where a service is called zkplan-server.
    allow_from_autoenv=False,
    help=f"The same as --listen {_HOST}:PORT.",
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
    "--open",
    "is_open",
    is_flag=True,
    help="Let in everyone who can reach the server. Without --open clients have to log in, and a "
    "server that other machines can reach needs TLS.",
)
@click.option(
    "--login-file",
    type=_FILE,
    help="Also let in the logins in this file: one user:password on each line.",
)
@click.option("--tls-cert", type=_FILE, help="Serve over TLS with this certificate (PEM).")
@click.option("--tls-key", type=_FILE, help="The key of the certificate (PEM).")
@click.option(
    "--tls-client-ca",
    type=_FILE,
    help="Accept only clients with a certificate of this authority (PEM). They must also log in.",
)
@click.option(
    "--max-connections", type=click.IntRange(1), help="Maximum number of open connections."
)
@log_options
@metrics_options
@click.option("--max-znodes", type=click.IntRange(1), help="Maximum number of znodes.")
@click.option("--max-bytes", type=click.IntRange(1), help="Maximum size of the data in memory.")
def server(
    listen: tuple[str, int],
    port: int | None,
    data: Path | None,
    durability: str,
    tick_time_ms: int,
    is_open: bool,
    login_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    metrics: ListenAddress | None,
    max_connections: int | None,
    max_znodes: int | None,
    max_bytes: int | None,
) -> None:
    """Run a ZooKeeper for one machine until Ctrl-C or SIGTERM. It needs Python only.

    When clients can connect, the command prints one line with the address. The server is one
    process on one disk, without replication. To move to an ensemble, change only the --hosts of
    clients and workers. Your own zkplan programs on this machine log in by themselves; others need
    a login. Exit codes: 0 stopped, 1 the disk failed, the port is taken, or the folder is damaged
    or in use.
    """
    # Imported here: no other command needs the server.
    from ..embedded import EmbeddedServer, Limits

    logins = _logins(login_file)
    if is_open and logins:
        raise click.UsageError("--open lets everybody in: give no --login-file with it")
    tls = _tls(tls_cert, tls_key, tls_client_ca)
    limits = {"connections": max_connections, "znodes": max_znodes, "tree_bytes": max_bytes}
    host, port = _address(listen, port)
    # Before a folder is made and a warning printed: a mistyped address leaves nothing behind.
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(address[:2], family=family).close()
    except OSError as error:
        _end((host, port), error)
    if not (is_open or is_loopback(host)):
        lacks = ["TLS"] * (tls is None) + ["a login"] * (not logins and data is None)
        if lacks:
            raise click.UsageError(_REFUSED.format(host=host, lacks=" and ".join(lacks)))
    made = EmbeddedServer(
        data,
        host=host,
        port=port,
        durability=durability,
        tick_time_ms=tick_time_ms,
        limits=Limits()._replace(**{name: most for name, most in limits.items() if most}),
        is_open=is_open,
        logins=logins,
        tls=tls,
        store=_store_of(data),
    )
    note = _OPEN.format(host=host) if is_open else _CLOSED.format(login=_where(data, login_file))
    click.echo(note, err=True)
    try:
        with watched_server(made.statistics, metrics):
            code = made.run(lambda ready: click.echo(_ready_line(ready, data, durability)))
    except OSError as error:
        _end((host, port), error)
    if made.fatal is not None:
        end(str(made.fatal) or type(made.fatal).__name__, EXIT_FAILED)
    sys.exit(code)


def _address(listen: tuple[str, int], port: int | None) -> tuple[str, int]:
    """Return where to listen: the value of --listen, or --port."""
    if port is None:
        return listen
    if click.get_current_context().get_parameter_source("listen") is _GIVEN:
        raise click.UsageError(
            f"--port {port} and --listen both name the port: give one of them. --port serves this "
            "machine alone"
        )
    return _HOST, port


def _store_of(data: Path | None) -> str:
    """Return where large values lie: beside the data, or in a folder that ends with the process."""
    try:
        folder = ProcessFolder().path if data is None else data.resolve()
    except OSError as error:
        end(f"no folder for large values can be made: {error}. Name another in TMPDIR", EXIT_FAILED)
    return f"file://{folder}/store"


def _end(place: tuple[str, int], error: OSError) -> NoReturn:
    from ..embedded import StorageError

    if isinstance(error, StorageError):
        end(str(error), EXIT_FAILED)
    end_unserved("--listen", place, error)


def _ready_line(server: EmbeddedServer, data: Path | None, durability: str) -> str:
    if data is None:
        return f"{READY}{server.hosts}, in memory only: its data is lost when it ends"
    means = "survives kill -9, not a power cut" if durability == "fast" else "durable"
    return f"{READY}{server.hosts}, data in {data.resolve()} ({means})"


def _logins(file: Path | None) -> list[str]:
    """Return the lines of a file of logins."""
    if file is None:
        return []
    found = [line.strip() for line in file.read_text().splitlines() if line.strip()]
    for number, login in enumerate(found, 1):
        user, colon, password = login.partition(":")
        if not (user and colon and password):
            raise click.UsageError(f"{file}: entry {number} is not user:password")
    if not found:
        raise click.UsageError(f"{file}: there is no login in it: write user:password")
    return found


def _tls(
    certificate: Path | None, key: Path | None, client_ca: Path | None
) -> ssl.SSLContext | None:
    from ..embedded import server_tls

    files = [str(file) for file in (certificate, key, client_ca) if file]
    if not files:
        return None
    if certificate is None or key is None:
        raise click.UsageError("TLS needs both --tls-cert and --tls-key")
    try:
        return server_tls(certificate, key, client_ca)
    except OSError as error:
        raise click.UsageError(
            f"{', '.join(files)}: not a certificate, key or CA: {error}"
        ) from None


def _where(data: Path | None, login_file: Path | None) -> str:
    """Return the files with the logins that clients other than zkplan may use."""
    from ..embedded.login import LOGIN

    files = [str(data / LOGIN)] if data else []
    files += [str(login_file)] if login_file else []
    return " or ".join(files) or "start it with --login-file FILE"
