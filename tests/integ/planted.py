"""A closed root in which a password, a key and an argument are planted, to be searched for."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.security import CREATOR_ALL_ACL

import zkplan
from tests.tools.support import plain_client, wait_until, working
from zkplan import Client, Plan
from zkplan.testing.servers import remove_tree

#: Put together here, so that no traceback that quotes a line of this file shows one.
PASSWORD, ARGUMENT = (f"canary-{name}-" + "5a" * 20 for name in ("word", "value"))
#: The bytes of a key, in which no word can be.
SECRET = f"mine:{bytes(range(0xC0, 0xE0)).hex()}"
CANARY = re.compile("canary-(word|value)-5a|c0c1c2c3")
#: The same without the argument, which is shown where a user asks for values.
SECRETS = re.compile("canary-word-5a|c0c1c2c3")
LOGIN = [("digest", f"owner:{PASSWORD}")]
#: How the owner connects.
OPTIONS: dict[str, Any] = {"secret": SECRET, "auth_data": LOGIN, "default_acl": CREATOR_ALL_ACL}


class Closed(NamedTuple):
    """A closed root with a secret, and plans whose tasks all have the canary as an argument."""

    hosts: str
    root: str
    client: Client
    plans: dict[str, Plan]


def fail(given: str) -> None:
    raise ValueError("as it was told")


@contextmanager
def everything_logged() -> Iterator[io.StringIO]:
    """All that is logged, down to what kazoo says of each request, with Python's own formatter."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    loggers = [logging.getLogger(name) for name in ("", "zkplan", "kazoo", "zkplan.kazoo")]
    levels = [logger.level for logger in loggers]
    loggers[0].addHandler(handler)
    for logger in loggers:
        logger.setLevel(1)
    try:
        yield written
    finally:
        loggers[0].removeHandler(handler)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def file_with(folder: Path, line: str, name: str = "ours.keys") -> str:
    """A file that only its owner can read."""
    file = folder / name
    file.touch(0o600)
    file.write_text(line)
    return str(file)


@contextmanager
def closed_root(hosts: str, root: str) -> Iterator[Closed]:
    """Plans in four states, each with the value as an argument of its tasks."""
    with zkplan.connect(hosts, root, **OPTIONS) as client:
        plans: dict[str, Plan] = {}
        for name in ("failed", "done", "cancelled", "defining"):
            plan = plans[name] = client.create_plan(name, attempts=2, retry_delay=0)
            first = plan.add_task(fail if name == "failed" else str, [ARGUMENT], name="first")
            plan.add_task(str.join, [ARGUMENT, [first]], name="second", keep=True)
        plans["cancelled"].cancel()
        for name in ("failed", "done"):
            plans[name].mark_ready()
        with working(hosts, root, **OPTIONS):
            wait_until(lambda: plans["failed"].status().state == "failed", "it has failed")
            plans["done"].wait(30)
        client.schedule("planted", "@yearly", str, [ARGUMENT])
        client.set_limit("planted", 2)
        yield Closed(hosts, root, client, plans)
    with plain_client(hosts, auth_data=LOGIN) as plain:
        remove_tree(plain, root)
