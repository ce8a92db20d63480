"""`zkplan metrics`: the metrics of a root, printed once or served to Prometheus."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from ..inspection.roots import hint_at_root
from ..settings import Settings
from .common import connection_options_of_roots, log_options, open_client
from .listening import check_reach, end_unserved, read_address

if TYPE_CHECKING:
    from ..metrics import RootCollector


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
    from ..metrics import RootCollector

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
    from ..metrics import Endpoint

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
