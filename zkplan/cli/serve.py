"""`zkplan serve`: run the HTTP service of a root, and create tokens for it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..basics.private import is_loopback
from ..basics.settings import Settings, take_secrets_away, with_password
from ..basics.settings_fields import JSON
from ..client import Client, connect_with
from ..errors import ZkplanError
from .common import connection_options, log_options, open_client, seconds
from .metrics import end_unserved, read_address

#: Seconds that a request to ZooKeeper may stay without an answer, before the caller gets an error.
PATIENCE_S = 5.0
_ROLES = ("read", "operate", "author", "work")
_EXISTS = click.Path(exists=True, path_type=Path)
_CLOSED = """\
{host} can be reached from other machines: give --tokens FILE, in which `zkplan serve new-token`
puts tokens. Without tokens the service listens on 127.0.0.1 alone"""

_PLAIN = """\
{host} can be reached from other machines, so it needs TLS: otherwise tokens can be read on the
network. Give --tls-cert and --tls-cert-key; or name the proxy with TLS before the service with
--proxy ADDRESS; or listen on 127.0.0.1"""


def _networks(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    for each in value:
        try:
            ipaddress.ip_network(each, strict=False)
        except ValueError:
            message = f"{each!r} is not an address or network such as 10.0.0.7 or 10.0.0.0/8"
            raise click.BadParameter(message, ctx, param) from None
    return value


def _loaded() -> Any:
    """Import the service only here: other commands need neither it nor FastAPI."""
    try:
        from .. import service
        from ..service import run
    except ImportError as missing:
        raise ZkplanError(
            f"the service needs packages that are not installed here ({missing}): "
            "pip install 'zkplan[service]'"
        ) from missing
    return service, run


@click.group(invoke_without_command=True)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8470",
    callback=read_address,
    help="Where to listen. Port 0 takes a free port.",
)
@click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file with the valid tokens. It is read again when it changes.",
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Ask for no token, for example on a laptop. Not allowed where other machines can reach "
    "the service.",
)
@click.option(
    "--host-name",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="A host name that clients use for the service, such as that of a proxy before it. Repeat "
    "the option for others. By default any name, but on a loopback address only loopback names.",
)
@click.option("--tls-cert", type=_EXISTS, help="Serve over TLS with this certificate.")
@click.option("--tls-cert-key", type=_EXISTS, help="The key of the certificate.")
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    callback=_networks,
    help="The address, or network, of a proxy with TLS before the service. The service takes the "
    "address of a client from this proxy (X-Forwarded-For), and needs no TLS of its own. Repeat "
    "the option for others.",
)
@click.option(
    "--body-max",
    type=click.IntRange(1024),
    default=16 * 1024 * 1024,
    help="Maximum bytes of the body of a request.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0),
    default=100.0,
    help="Maximum requests a second of each token; 0 means no limit. A burst may have four "
    "seconds' worth.",
)
@log_options
@connection_options
def serve(
    listen: tuple[str, int],
    tokens: Path | None,
    is_open: bool,
    host_names: tuple[str, ...],
    tls_cert: Path | None,
    tls_cert_key: Path | None,
    proxies: tuple[str, ...],
    body_max: int,
    rate: float,
    settings: Settings,
) -> None:
    """Serve the plans of a root over HTTP, with a page. It needs zkplan[service].

    The service keeps nothing: several may serve one root. Its plans and values are JSON, and it
    never unpickles anything. Without --tokens it listens on this machine alone, and prints a token
    for this run.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    host = listen[0]
    if not is_loopback(host) and (is_open or tokens is None):
        raise click.UsageError(_CLOSED.format(host=host))
    if is_open and tokens is not None:
        raise click.UsageError("--open asks for no token, so --tokens has no effect")
    if (tls_cert is None) is not (tls_cert_key is None):
        raise click.UsageError("--tls-cert and --tls-cert-key belong together")
    if not (is_loopback(host) or tls_cert or proxies):
        raise click.UsageError(_PLAIN.format(host=host))
    take_secrets_away()  # the settings have them
    settings = with_password(settings)
    service, run = _loaded()
    known = None if is_open else service.Tokens(tokens)
    token = known.add_one_time() if known is not None and tokens is None else ""
    names = frozenset(host_names) | frozenset(("127.0.0.1", "::1", "localhost", host))
    options = service.Options(
        body_max=body_max,
        rate=rate,
        burst=4 * rate,
        proxies=proxies,
        host_names=names if host_names or is_loopback(host) else frozenset(),
    )
    link = service.Link(_connecting(settings))
    try:
        try:
            opened = run.listening(*listen, proxies)
        except OSError as error:
            end_unserved("--listen", listen, error)
        app = service.create_app(link, known, options)
        _print_address(opened, tls_cert is not None, token)
        run.serve(app, opened, tls_cert, tls_cert_key)
    finally:
        link.close()


def _connecting(settings: Settings) -> Callable[[], Client]:
    wanted = replace(settings, serializer=JSON)
    first = [open_client(wanted, creates=True, patience=PATIENCE_S)]
    first[0].prepare()
    return lambda: first.pop() if first else connect_with(wanted, patience=PATIENCE_S)


def _print_address(opened: socket.socket, is_tls: bool, token: str) -> None:
    host, port = opened.getsockname()[:2]
    place = f"http{'s' if is_tls else ''}://{f'[{host}]' if ':' in host else host}:{port}/"
    # Browsers do not send the part after `#`.
    click.echo(f"serving at {place}{f'#token={token}' if token else ''}")
    if token:
        click.echo(f"token for this run: {token}")


@serve.command("new-token")
@click.option(
    "--tokens",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to add the token to. A missing file is created.",
)
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    type=click.Choice(_ROLES),
    help="What the token allows. read: look. operate: pause, retry and the like. author: create "
    "plans and tasks. work: claim tasks. operate and author include read. Repeat the option for "
    "others.",
)
@click.option(
    "--name",
    default="",
    help="The owner of the token, for the log of the service. Tokens with one name share their "
    "claims.",
)
@click.option(
    "--lasts",
    callback=seconds,
    metavar="TIME",
    help="The token expires after this time, such as 12h or 90d. By default never.",
)
def new_token(tokens: Path, roles: tuple[str, ...], name: str, lasts: float | None) -> None:
    """Make a token, and print it once. The file holds only its digest."""
    service, _ = _loaded()
    click.echo(service.new_token(tokens, name, roles, lasts))
