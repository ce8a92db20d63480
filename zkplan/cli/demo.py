"""`zkplan demo`: see a plan run on real input, and survive the death of a worker."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from zkplan.demo.run import run
from zkplan.demo.story import Story
from zkplan.demo.watch import Settings
from zkplan.demo.workers import DemoFailed
from zkplan.testing.java import find_zookeeper
from zkplan.testing.loopback import server_version
from zkplan.testing.provide import HOSTS_VARIABLE, NoZooKeeper, Provided, provided_zookeeper
from zkplan.testing.servers import ServerDidNotStart, ZooKeeperServer

from . import EXIT_FAILED, EXIT_UNREACHABLE
from .common import log_to_stderr

_EXIT_INTERRUPTED = 130  # What a shell reports for Ctrl-C.
# A session ends at the first tick after its time-out: with ZooKeeper's 2 s a takeover looks slow.
_TICK_TIME_MS = 500
_NO_ZOOKEEPER = """\
there is no ZooKeeper to run on. Do one of these:
  - in a checkout of zkplan: python3 dev.py demo   installs what is missing (Debian, Ubuntu)
  - zkplan demo --hosts HOST:PORT                  runs on a ZooKeeper that you have
  - docker compose up                              has a ZooKeeper and workers in containers
  - install Java, and libzookeeper-java or an unpacked release that ZOOKEEPER_HOME names"""


@click.command(context_settings={"show_default": True})
@click.option(
    "--hosts",
    envvar="ZKPLAN_HOSTS",
    show_envvar=True,
    help="ZooKeeper to use; without it one is started on loopback for the demonstration.",
)
@click.option("--workers", type=click.IntRange(1, 64), default=3, help="Worker processes.")
@click.option("--threads", type=click.IntRange(1, 64), default=2, help="Slots per process.")
@click.option("--kill/--no-kill", default=True, help="Kill one of several workers midway.")
@click.option("--timeout", type=click.FloatRange(1), default=120.0, help="Seconds for the plan.")
def demo(hosts: str | None, workers: int, threads: int, kill: bool, timeout: float) -> None:
    """See a plan run, and survive the death of a worker.

    The plan analyses the source of Python's standard library. One of its workers is killed while it
    runs tasks; the others take these over. The result is compared with that of a single process.
    Nothing is left behind. Exit codes: 0 identical, 1 failed, 3 no ZooKeeper, 4 timed out.
    """
    log_to_stderr(logging.WARNING)
    signal.signal(signal.SIGTERM, _interrupt)
    settings = Settings(workers, threads, kill and workers > 1, timeout)
    try:
        with _zookeeper(hosts) as provided, Story() as story:
            run(provided, settings, story)
    except KeyboardInterrupt:
        _end("interrupted; nothing of it is left behind", _EXIT_INTERRUPTED)
    except NoZooKeeper:
        _end(_NO_ZOOKEEPER, EXIT_UNREACHABLE)
    except ServerDidNotStart as error:
        _end(str(error), EXIT_UNREACHABLE)
    except DemoFailed as error:
        _end(str(error), EXIT_FAILED)


@contextmanager
def _zookeeper(hosts: str | None) -> Iterator[Provided]:
    """The one that is given, or one for the length of the block."""
    if hosts:
        yield Provided(hosts, server_version(hosts), "given")
    elif not os.environ.get(HOSTS_VARIABLE) and _is_installed():
        with ZooKeeperServer(tick_time_ms=_TICK_TIME_MS) as server:
            yield Provided(server.hosts, server.version, "started for this demonstration")
    else:
        with provided_zookeeper() as provided:
            yield provided


def _is_installed() -> bool:
    try:
        return find_zookeeper() is not None
    except FileNotFoundError as error:  # ZOOKEEPER_HOME names no release.
        _end(str(error), EXIT_UNREACHABLE)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends the demonstration as Ctrl-C does: it cleans up."""
    raise KeyboardInterrupt


def _end(message: str, code: int) -> NoReturn:
    click.echo(f"zkplan: {message}", err=True)
    raise SystemExit(code)
