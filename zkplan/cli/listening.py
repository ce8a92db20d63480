"""The addresses that commands listen on: read them, and refuse to open what was not asked for."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from ..basics.loopback import is_loopback
from . import EXIT_FAILED, end

_OPEN = """\
{host} can be reached from other machines, and whoever reaches it may read all metrics: nobody logs
in. Listen on 127.0.0.1, or say that this is meant with {option}"""


def read_address(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    """HOST:PORT, as an option gives it."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(
            f"{value!r} is not HOST:PORT, such as 127.0.0.1:2181 (port 0 takes a free one)"
        )
    # Without a host the server would listen everywhere. A user must ask for that with 0.0.0.0.
    return host.strip("[]") or "127.0.0.1", int(port)


def why_not(option: str, host: str, port: int, error: OSError) -> str:
    """What happened and what to do; the text of the system alone says neither."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    known = {
        errno.EADDRINUSE: "the port is taken, perhaps by a server that runs already. Connect to "
        f"it, or choose another port; a free one is found with {option} "
        f"{place.removesuffix(str(port))}0",
        errno.EADDRNOTAVAIL: f"this machine has no address {host}; {option} 127.0.0.1:{port} "
        f"serves this machine alone, 0.0.0.0:{port} everyone who can reach it",
        errno.EACCES: "this user may not listen there; choose a port above 1023",
    }
    why = known.get(error.errno or 0, str(error))
    if isinstance(error, socket.gaierror):
        why = f"no host {host!r} is known here; {option} 127.0.0.1:{port} serves this machine"
    return f"cannot serve at {place}: {why}"


def check_reach(host: str, is_meant: bool, option: str) -> None:
    """Refuse an address that others reach, unless the user says that it is meant."""
    if not is_meant and not is_loopback(host):
        raise click.UsageError(_OPEN.format(host=host, option=option))


F = TypeVar("F", bound=Callable[..., Any])
#: Where a command serves its metrics: host and port, or a folder for a socket of each process.
Place = tuple[str, int] | Path
_FOLDER = "unix:"


def _read_place(ctx: click.Context, param: click.Parameter, value: str | None) -> Place | None:
    if value is not None and value.startswith(_FOLDER):
        return Path(value.removeprefix(_FOLDER))  # a supervisor collects what is served there
    return None if value is None else read_address(ctx, param, value)


def metrics_options(function: F) -> F:
    """The options that serve metrics and health; the function gets `metrics`, a Place or None."""

    @wraps(function)
    def checked(*args: Any, metrics: Place | None, metrics_open: bool, **given: Any) -> Any:
        if isinstance(metrics, tuple):
            check_reach(metrics[0], metrics_open, "--metrics-open")
        elif metrics is None and metrics_open:
            raise click.UsageError("--metrics-open is of no use without --metrics")
        return function(*args, metrics=metrics, **given)

    is_open = click.option(
        "--metrics-open",
        is_flag=True,
        help="Allow an address that other machines can reach. There is no login: whoever reaches "
        "it can read the metrics.",
    )
    place = click.option(
        "--metrics",
        callback=_read_place,
        metavar="HOST:PORT",
        help="Serve /metrics for Prometheus, /healthz and /readyz there. Needs zkplan[metrics].",
    )
    made: Any = place(is_open(checked))
    given: F = made
    return given


def end_unserved(option: str, place: Place, error: OSError) -> NoReturn:
    """End the command: it cannot listen there."""
    told = why_not(option, *place, error) if isinstance(place, tuple) else f"{place}: {error}"
    end(told, EXIT_FAILED)
