"""`zkplan metrics`, and the endpoints where commands serve metrics and health."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from ..basics.private import is_loopback
from ..basics.settings import Settings
from ..views.root_access import hint_at_root
from ..worker import Worker
from . import EXIT_FAILED, end
from .common import connection_options_of_roots, log_options, open_client

if TYPE_CHECKING:
    from ..integrations.prometheus import RootCollector

_OPEN = """\
{host} can be reached from other machines, and the metrics need no login. Listen on 127.0.0.1, or
allow this address with {option}"""
_OPEN_HELP = """\
Allow an address that other machines can reach. There is no login: anyone who reaches it can read
the metrics."""


def read_address(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    """Read the HOST:PORT of an option. Raises BadParameter."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(
            f"{value!r} is not HOST:PORT, such as 127.0.0.1:2181 (port 0 takes a free one)"
        )
    # Without a host the server would listen everywhere. A user must ask for that with 0.0.0.0.
    return host.strip("[]") or "127.0.0.1", int(port)


def _check_reach(place: ListenAddress | None, is_open: bool, option: str, needed: str) -> None:
    """Raises UsageError for an address that other machines reach, unless `option` allows it."""
    if isinstance(place, tuple) and not is_open and not is_loopback(place[0]):
        raise click.UsageError(_OPEN.format(host=place[0], option=option))
    if place is None and is_open:
        raise click.UsageError(f"{option} has no effect without {needed}")


F = TypeVar("F", bound=Callable[..., Any])
#: Where a command serves its metrics: host and port, or a folder for a socket of each process.
ListenAddress = tuple[str, int] | Path
_FOLDER = "unix:"


def _read_place(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> ListenAddress | None:
    if value is not None and value.startswith(_FOLDER):
        return Path(value.removeprefix(_FOLDER))  # a supervisor collects the metrics there
    return None if value is None else read_address(ctx, param, value)


def metrics_options(function: F) -> F:
    """Add the options that serve metrics and health; `metrics` is a ListenAddress or None."""

    @wraps(function)
    def checked(*args: Any, metrics: ListenAddress | None, metrics_open: bool, **given: Any) -> Any:
        _check_reach(metrics, metrics_open, "--metrics-open", "--metrics")
        return function(*args, metrics=metrics, **given)

    is_open = click.option("--metrics-open", is_flag=True, help=_OPEN_HELP)
    place = click.option(
        "--metrics",
        callback=_read_place,
        metavar="HOST:PORT",
        help="Serve /metrics for Prometheus, /healthz and /readyz at this address. Needs "
        "zkplan[metrics].",
    )
    made: Any = place(is_open(checked))
    given: F = made
    return given


def end_unserved(option: str, place: ListenAddress, error: OSError) -> NoReturn:
    """End a command that cannot listen at `place`. Unlike the system's text, say what to do."""
    if isinstance(place, Path):
        end(f"{place}: {error}", EXIT_FAILED)
    host, port = place
    at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    known = {
        errno.EADDRINUSE: "the port is taken, perhaps by a server that runs already. Connect to "
        f"it, or choose another port; {option} {at.removesuffix(str(port))}0 finds a free one",
        errno.EADDRNOTAVAIL: f"this machine has no address {host}; {option} 127.0.0.1:{port} "
        f"serves this machine alone, 0.0.0.0:{port} everyone who can reach it",
        errno.EACCES: "this user may not listen there; choose a port above 1023",
    }
    why = known.get(error.errno or 0, str(error))
    if isinstance(error, socket.gaierror):
        why = f"no host {host!r} is known here; {option} 127.0.0.1:{port} serves this machine"
    end(f"cannot serve at {at}: {why}", EXIT_FAILED)


# ---- Serve the metrics and the health of a command, and trace it.
#
# The functions import prometheus_client and OpenTelemetry: only commands that use them load them.


def trace_tasks() -> None:
    """Trace the tasks that this process runs, with the provider that the environment describes."""
    from ..integrations.opentelemetry import instrument, set_up

    instrument()
    if not set_up():
        click.echo(
            "--traces: there is no provider, so spans go nowhere. Install opentelemetry-distro and "
            "an exporter, and set OTEL_EXPORTER_OTLP_ENDPOINT",
            err=True,
        )


@contextmanager
def watched_worker(worker: Worker, place: ListenAddress | None) -> Iterator[None]:
    """Serve the metrics of a worker. Enter the block before the worker runs."""
    if place is None:
        yield
        return
    from ..integrations.prometheus_process import Health, WorkerCollector

    health = Health(worker)
    with _served(place, WorkerCollector(worker), health.alive, health.ready):
        yield


@contextmanager
def watched_server(statistics: Callable[[], Any], place: ListenAddress | None) -> Iterator[None]:
    """Serve the metrics of a server (see ServerCollector). Enter the block before it serves."""
    if place is None:
        yield
        return
    from ..integrations.prometheus_process import ServerCollector

    collector = ServerCollector(statistics)
    with _served(place, collector, collector.wrong, collector.wrong):
        yield


@contextmanager
def watched_processes(
    place: ListenAddress | None, pids: Callable[[], Iterable[int]]
) -> Iterator[list[str]]:
    """Serve the metrics of several processes at one place. Yields arguments for their commands."""
    if place is None:
        yield []
        return
    from ..integrations.prometheus_endpoint import Merged, make_folder

    folder = make_folder()
    try:
        merged = Merged(folder, pids)
        with _served(place, merged, merged.alive, merged.ready, is_process=False):
            yield ["--metrics", f"unix:{folder}"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _served(
    place: ListenAddress,
    collector: Any,
    healthy: Callable[[], str],
    ready: Callable[[], str],
    *,
    is_process: bool = True,
) -> Iterator[None]:
    """Serve the families of the collector, and (`is_process`) those of this process."""
    from ..integrations.prometheus_endpoint import CollectorRegistry, Endpoint, ProcessCollector

    registry = CollectorRegistry()
    if is_process:
        ProcessCollector(registry=registry)
    registry.register(collector)
    is_folder = isinstance(place, Path)
    try:
        at = place / f"{os.getpid()}.sock" if isinstance(place, Path) else place
        endpoint = Endpoint(at, registry, healthy, ready).start()
    except OSError as error:
        end_unserved("--metrics", place, error)
    if not is_folder:
        click.echo(f"metrics at http://{endpoint.address}/metrics", err=True)
    try:
        yield
    finally:
        endpoint.close()


# ---- `zkplan metrics`: the metrics of a root, printed once or served to Prometheus.


@click.command(short_help="Print or serve the metrics of a root, for Prometheus.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    callback=lambda *given: None if given[2] is None else read_address(*given),
    help="Serve /metrics, /healthz and /readyz at this address until a signal arrives, instead of "
    "printing the metrics once. Port 0 takes a free port.",
)
@click.option("--open", "is_open", is_flag=True, help=_OPEN_HELP)
@log_options
@connection_options_of_roots
def metrics(listen: tuple[str, int] | None, is_open: bool, settings: list[Settings]) -> None:
    """Print the metrics of a root in Prometheus' format, or serve them with --listen.

    Plans, tasks, queues, workers and schedules are counted for each scrape, with few requests: some
    of the metrics say what a scrape costs. One such command is enough for one root or for several:
    repeat --root. It needs zkplan[metrics]. With --listen, /healthz says whether the command
    answers, and /readyz whether it can read its roots.
    """
    # Imported here: no other command needs it.
    from ..integrations.prometheus import RootCollector

    _check_reach(listen, is_open, "--open", "--listen")
    with ExitStack() as stack:
        clients = []
        for each in settings:
            client = stack.enter_context(open_client(each, needs_root=listen is None))
            clients.append(client)
            if hint := hint_at_root(client):
                click.echo(f"warning: {client.root} of {each.hosts}{hint}", err=True)
        collector = RootCollector(*clients)
        if listen is None:
            click.echo(collector.text(), nl=False)
        else:
            _serve(collector, listen)


def _serve(collector: RootCollector, listen: tuple[str, int]) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    from ..integrations.prometheus import Endpoint

    # SIGTERM ends it as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        endpoint = Endpoint(listen, collector, ready=collector.wrong).start()
    except OSError as error:
        end_unserved("--listen", listen, error)
    try:
        click.echo(f"metrics at http://{endpoint.address}/metrics")
        while True:
            signal.pause()
    except KeyboardInterrupt:
        pass  # the signal that stops it
    finally:
        endpoint.close()
