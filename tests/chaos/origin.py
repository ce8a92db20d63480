"""Where a report comes from: when, of which commit, with which versions, by which command."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import zkplan
from zkplan.testing.java import find_java
from zkplan.testing.loopback import server_version

from .world.servers import Kind

_TOP = Path(__file__).parents[2]
#: Pages that runs have written change nothing of what the next one runs.
_CHECKED = (".", ":(exclude)docs/evidence")


def origin_of(kind: Kind, hosts: str) -> dict[str, object]:
    """Asked at the beginning: while a long run goes on, the checkout may change."""
    facts = {
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "commit": commit_of(_TOP) or "unknown: no checkout",
        "zkplan": zkplan.__version__,
        "kazoo": version("kazoo"),
        "Python": platform.python_version(),
    }
    if kind != "embedded":
        facts |= {"ZooKeeper": server_version(hosts), "Java": _java() or "unknown"}
    return {**facts, "processors": len(os.sched_getaffinity(0))}


def command_of(arguments: Sequence[str], seed: int, program: str = "tests.chaos") -> str:
    """What makes a run like it; where things were put is no part of that."""
    rest = iter(arguments)
    words = []
    for word in rest:
        name, given, _ = word.partition("=")
        if name in ("--report", "--keep"):
            if not given:
                next(rest)
        else:
            words.append(word)
    if not any(word.partition("=")[0] == "--seed" for word in words):
        words += ["--seed", str(seed)]
    return shlex.join(["python", "-m", program, *words])


def commit_of(checkout: Path) -> str:
    """The commit that ran; `+` says that the checkout differs from it. Empty without one."""
    # Without the locks: a report must not get in the way of somebody who is committing.
    git = ("git", "--no-optional-locks", "-C", str(checkout))
    commit = _output(*git, "describe", "--always", "--tags").strip()
    changed = commit and _output(*git, "status", "--porcelain", "--", *_CHECKED)
    return commit + "+" if changed else commit


def _java() -> str:
    """What it calls itself: `openjdk version "17.0.9" 2023-10-17` is 17.0.9."""
    java = find_java()
    said = _output(java, "-version").partition("\n")[0] if java else ""
    return said.split('"')[1] if said.count('"') == 2 else said


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except FileNotFoundError:
        return ""  # this machine has no such program
    return done.stdout if done.returncode == 0 else ""
