"""`zkplan demo`: see a plan run on real input, and survive the death of a worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from zkplan.demo.run import Settings, run
from zkplan.demo.story import Story
from zkplan.demo.workers import DemoFailed
from zkplan.errors import KeeperError, WaitTimeout, ZkplanError
from zkplan.testing.java import find_zookeeper
from zkplan.testing.loopback import server_version
from zkplan.testing.provide import HOSTS_VARIABLE, NoZooKeeper, Provided, provided_zookeeper
from zkplan.testing.servers import ServerDidNotStart, ZooKeeperServer

FAILED, UNREACHABLE, TIMED_OUT, INTERRUPTED = 1, 3, 4, 130
# A session ends at the first tick after its time-out: with ZooKeeper's 2 s a takeover looks slow.
_TICK_TIME_MS = 500
_NO_ZOOKEEPER = """\
There is no ZooKeeper to run on. Do one of these:
  - in a checkout of zkplan: python3 dev.py demo   installs what is missing (Debian, Ubuntu)
  - zkplan demo --hosts HOST:PORT                  runs on a ZooKeeper that you have
  - docker compose up -d zk1, and --hosts as above
  - install Java, and libzookeeper-java or an unpacked release that ZOOKEEPER_HOME names"""


@click.command(short_help="Analyse the standard library with a plan; a worker is killed midway.")
@click.option(
    "--hosts",
    envvar=["ZKPLAN_DEMO_HOSTS", "ZKPLAN_HOSTS"],
    show_envvar=True,
    help="ZooKeeper to use; without it one is started on loopback for the demonstration.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=3,
    show_default=True,
    envvar="ZKPLAN_DEMO_WORKERS",
    help="Worker processes; with one alone none is killed.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    envvar="ZKPLAN_DEMO_THREADS",
    help="Tasks that one worker runs at a time.",
)
@click.option(
    "--kill/--no-kill",
    default=True,
    show_default=True,
    envvar="ZKPLAN_DEMO_KILL",
    help="Whether to kill a worker midway.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    envvar="ZKPLAN_DEMO_TIMEOUT",
    help="Seconds that the plan may take.",
)
def demo(hosts: str | None, workers: int, threads: int, kill: bool, timeout: float) -> None:
    """Analyse the source of Python's standard library with a plan.

    Some worker processes share the work; one of them is killed while it holds tasks, and the others
    take these over. The result is compared with that of a single process. Nothing is left behind.
    Exit codes: 0 identical, 1 failed, 3 no ZooKeeper, 4 timed out.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    settings = Settings(workers, threads, kill and workers > 1, timeout)
    try:
        with _zookeeper(hosts) as provided, Story() as story:
            story.say(f"ZooKeeper {provided.version} at {provided.hosts} ({provided.how})")
            run(provided.hosts, settings, story)
    except KeyboardInterrupt:
        _end("interrupted: the workers are stopped, the plan is removed", INTERRUPTED)
    except NoZooKeeper:
        _end(_NO_ZOOKEEPER, UNREACHABLE)
    except (KeeperError, ServerDidNotStart) as error:
        _end(str(error), UNREACHABLE)
    except WaitTimeout as error:
        _end(str(error), TIMED_OUT)
    except (DemoFailed, ZkplanError) as error:
        _end(str(error), FAILED)


@contextmanager
def _zookeeper(hosts: str | None) -> Iterator[Provided]:
    """The one that is given, or one for the length of the block."""
    if hosts:
        yield Provided(hosts, server_version(hosts), "given")
    elif HOSTS_VARIABLE not in os.environ and _is_installed():
        with ZooKeeperServer(tick_time_ms=_TICK_TIME_MS) as server:
            yield Provided(server.hosts, server.version, "started for this demonstration")
    else:
        with provided_zookeeper() as provided:
            yield provided


def _is_installed() -> bool:
    try:
        return find_zookeeper() is not None
    except FileNotFoundError as error:  # ZOOKEEPER_HOME names no release.
        _end(str(error), UNREACHABLE)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends the demonstration as Ctrl-C does: it cleans up."""
    raise KeyboardInterrupt


def _end(message: str, code: int) -> NoReturn:
    click.echo(message, err=True)
    raise SystemExit(code)
