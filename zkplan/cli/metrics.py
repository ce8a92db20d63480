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


# ---- Serve the metrics and the health of what a command runs, and trace it, where that was asked
# for.
#
# Whoever has not asked loads neither prometheus_client nor OpenTelemetry: so they are imported
# here, in the functions.


def trace_tasks() -> None:
    """Trace the tasks that this process runs, by a provider that the environment describes."""
    from ..integrations.opentelemetry import instrument, set_up

    instrument()
    if not set_up():
        click.echo(
            "--traces: there is no provider, so spans go nowhere. Install opentelemetry-distro and "
            "an exporter, and set OTEL_EXPORTER_OTLP_ENDPOINT",
            err=True,
        )


@contextmanager
def watched_worker(worker: Worker, place: Place | None) -> Iterator[None]:
    """Serve the metrics of this worker, which has not begun to run."""
    if place is None:
        yield
        return
    from ..integrations.prometheus_process import Health, WorkerCollector

    health = Health(worker)
    with _served(place, WorkerCollector(worker), health.alive, health.ready):
        yield


@contextmanager
def watched_server(statistics: Callable[[], Any], place: Place | None) -> Iterator[None]:
    """Serve the metrics of a server, which has not begun to serve: see ServerCollector."""
    if place is None:
        yield
        return
    from ..integrations.prometheus_process import ServerCollector

    collector = ServerCollector(statistics)
    with _served(place, collector, collector.wrong, collector.wrong):
        yield


@contextmanager
def watched_processes(
    place: Place | None, pids: Callable[[], Iterable[int]]
) -> Iterator[list[str]]:
    """Serve the metrics of several processes at one place; what their commands need for that."""
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
    place: Place,
    collector: Any,
    healthy: Callable[[], str],
    ready: Callable[[], str],
    *,
    is_process: bool = True,
) -> Iterator[None]:
    """Serve the families of the collector, and (`is_process`) those of this very process."""
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


@click.command(short_help="The metrics of a root, for Prometheus.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    callback=lambda *given: None if given[2] is None else read_address(*given),
    help="Serve /metrics, /healthz and /readyz there until told to stop, instead of printing the "
    "metrics once. Port 0 takes a free port.",
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Allow an address that other machines can reach. There is no login: whoever reaches it "
    "can read the metrics.",
)
@log_options
@connection_options_of_roots
def metrics(listen: tuple[str, int] | None, is_open: bool, settings: list[Settings]) -> None:
    """Print the metrics of a root in Prometheus' format, or serve them with --listen.

    Plans, tasks, queues, workers and schedules are counted anew for each scrape, with few requests:
    some of the metrics say what a scrape costs. One such command is enough for a root, or for
    several: give --root for each. It needs zkplan[metrics]. With --listen, /healthz says whether
    the command answers, and /readyz whether it can read its roots.
    """
    # Loaded here, for whoever runs another command has no use for it.
    from ..integrations.prometheus import RootCollector

    if listen is not None:
        check_reach(listen[0], is_open, "--open")
    elif is_open:
        raise click.UsageError("--open is of no use without --listen")
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
        pass  # it was told to stop
    finally:
        endpoint.close()
