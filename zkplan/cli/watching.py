"""Serve the metrics and the health of what a command runs, and trace it, where that was asked for.

Whoever has not asked loads neither prometheus_client nor OpenTelemetry: so they are imported here,
in the functions.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..worker import Worker
from .listening import Place, end_unserved


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
    from ..metrics.worker import Health, WorkerCollector

    health = Health(worker)
    with _served(place, WorkerCollector(worker), health.alive, health.ready):
        yield


@contextmanager
def watched_server(statistics: Callable[[], Any], place: Place | None) -> Iterator[None]:
    """Serve the metrics of a server, which has not begun to serve: see ServerCollector."""
    if place is None:
        yield
        return
    from ..metrics.server import ServerCollector

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
    from ..metrics.merged import Merged, make_folder

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
    from ..metrics.endpoint import Endpoint
    from ..metrics.prometheus import CollectorRegistry, ProcessCollector

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
