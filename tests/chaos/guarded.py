"""A worker with kazoo's options, as docs/operating.md has it: python -m tests.chaos.guarded …."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import click
from kazoo.security import make_acl

import zkplan
from zkplan.cli.common import log_to_stderr

#: The options, as JSON: passwords do not belong where the list of processes shows them.
OPTIONS = "ZKPLAN_CHAOS_CONNECT"
_GRACE_S = 5.0


def options_of(user: str, **more: object) -> dict[str, Any]:
    """For somebody who proves to be `user` (a name and a password), and lets in nobody else."""
    return {
        "auth_data": [("digest", user)],
        "default_acl": [make_acl("auth", "", all=True)],
        **more,
    }


def environment(user: str, **more: object) -> Mapping[str, str]:
    return {**os.environ, OPTIONS: json.dumps({"user": user, **more})}


def main(arguments: list[str]) -> int:
    hosts, root = arguments
    given = json.loads(os.environ[OPTIONS])
    user = given.pop("user")
    options = {"connect_timeout": 60.0, **(options_of(user, **given) if user else given)}
    log_to_stderr()
    with zkplan.connect(hosts, root, session_timeout=3.0, **options) as client:
        worker = zkplan.Worker(client, threads=2)
        worker.on_ready(lambda name: click.echo(f"worker {name} ready", err=True))
        signal.signal(signal.SIGTERM, lambda *_: worker.stop(_GRACE_S))
        worker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
