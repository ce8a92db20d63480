"""What demo and stress share: a ZooKeeper, given or started for them, and a clean end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

from ..errors import KeeperUnavailable, WaitTimeout, ZkplanError
from ..testing.java import find_zookeeper
from ..testing.loopback import server_version
from ..testing.provide import HOSTS_VARIABLE, NoZooKeeper, Provided, provided_zookeeper
from ..testing.servers import ServerDidNotStart, ZooKeeperServer
from . import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TIMED_OUT, EXIT_UNREACHABLE

# A session ends at the first tick after its time-out: with ZooKeeper's 2 s a takeover takes longer.
_TICK_TIME_MS = 500
_NO_ZOOKEEPER = """\
there is no ZooKeeper to run on. Do one of these:
  - in a checkout of zkplan: python3 dev.py {command}   installs what is missing (Debian, Ubuntu)
  - zkplan {command} --hosts HOST:PORT   runs on a ZooKeeper that you have
  - docker compose up   has a ZooKeeper and workers in containers
  - install Java, and libzookeeper-java or an unpacked release that ZOOKEEPER_HOME names"""


@contextmanager
def zookeeper_for(command: str, hosts: str | None) -> Iterator[Provided]:
    """The ZooKeeper at `hosts`, or one for the length of the block.

    However the block ends, the command ends with one line on stderr and its exit code; SIGTERM ends
    it as Ctrl-C does, so that it cleans up.
    """
    # SIGINT too: a shell without job control starts what runs in its background with it ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        if hosts:
            yield Provided(hosts, server_version(hosts), "given")
        elif not os.environ.get(HOSTS_VARIABLE) and find_zookeeper() is not None:
            with ZooKeeperServer(tick_time_ms=_TICK_TIME_MS) as server:
                yield Provided(server.hosts, server.version, f"started for zkplan {command}")
        else:
            with provided_zookeeper() as provided:
                yield provided
    except KeyboardInterrupt:
        _end("interrupted; nothing of it is left behind", EXIT_INTERRUPTED)
    except NoZooKeeper:
        _end(_NO_ZOOKEEPER.format(command=command), EXIT_UNREACHABLE)
    except (KeeperUnavailable, ServerDidNotStart, FileNotFoundError) as error:
        _end(str(error), EXIT_UNREACHABLE)
    except WaitTimeout as error:
        _end(str(error), EXIT_TIMED_OUT)
    except ZkplanError as error:
        _end(str(error), EXIT_FAILED)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _end(message: str, code: int) -> NoReturn:
    click.echo(f"zkplan: {message}", err=True)
    raise SystemExit(code)
