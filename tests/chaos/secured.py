"""Workers with kazoo's security options, for the tests of access lists and TLS.

Run as `python -m tests.chaos.secured HOSTS ROOT` it is such a worker (docs/operate/operating.md).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from kazoo.security import make_acl

import zkplan
from tests.tools.support import IN_CHECKOUT, WorkerProcess
from zkplan.cli.common import log_to_stderr
from zkplan.processes import WatchedProcess

from .recorded import Recorded

#: The options as JSON, for passwords must not show in the list of processes.
OPTIONS = "ZKPLAN_CHAOS_CONNECT"
#: Who may delete a znode is said at its parent, so the parent of the root has the list too.
PARENT, ROOT = "/secured", "/secured/zkplan"
GOOD = "good:secret"
WIDTH = 600
WAIT_S = 60.0
SESSION_S, TICK_MS = 3.0, 500
_GRACE_S = 5.0


def options_of(user: str, **more: object) -> dict[str, Any]:
    """Options of a client that is `user` (name:password), and gives access to that user alone."""
    return {
        "auth_data": [("digest", user)],
        "default_acl": [make_acl("auth", "", all=True)],
        **more,
    }


class SecuredWorker(WorkerProcess):
    """A worker process of that user; without one, of whom the options tell.

    `variables` add to the environment.
    """

    def __init__(
        self,
        hosts: str,
        folder: Path,
        name: str,
        user: str,
        *,
        root: str = ROOT,
        variables: Mapping[str, str] | None = None,
        **options: object,
    ) -> None:
        self.log = folder / f"{name}.log"
        command = [*IN_CHECKOUT, sys.executable, "-m", "tests.chaos.secured", hosts, root]
        given = {OPTIONS: json.dumps({"user": user, **options}), **(variables or {})}
        environment = {**os.environ, **given}
        self.process = WatchedProcess(command, self.log, environment)


def recorded(folder: Path) -> Recorded:
    """For plans of WIDTH tasks between two others."""
    return Recorded(folder, f"fan {WIDTH}", SESSION_S)


def main(arguments: list[str]) -> int:
    hosts, root = arguments
    given = json.loads(os.environ[OPTIONS])
    user = given.pop("user")
    options = {"connect_timeout": 60.0, **(options_of(user, **given) if user else given)}
    log_to_stderr()
    with zkplan.connect(hosts, root, session_timeout=SESSION_S, **options) as client:
        worker = zkplan.Worker(client, threads=2)
        worker.on_ready(lambda name: click.echo(f"worker {name} ready", err=True))
        signal.signal(signal.SIGTERM, lambda *_: worker.stop(_GRACE_S))
        worker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
