"""Replay one seed with every event printed: python -m tests.sim.replay SEED [--loops]."""

from __future__ import annotations

import re
import sys
import traceback

from .loop_shares import loop_world
from .world import World

_SHORTER = (
    (re.compile(r"/z/plan-0{0,9}"), "P"),
    (re.compile(r"0000000(\d\d\d)"), r"\1"),
    (re.compile(r", version=-1|, ephemeral=False|, sequence=False|, watch=False"), ""),
    (re.compile(r", (cversion|created_ms|modified_ms|pzxid)=\d+"), ""),
    (re.compile(r"(path|ops|reads|data|results)="), ""),
)


def show(line: str) -> None:
    """Print an event with the noise left out."""
    for pattern, instead in _SHORTER:
        line = pattern.sub(instead, line)
    sys.stdout.write(f"{line}\n")


def main(arguments: list[str]) -> int:
    try:
        make = loop_world if "--loops" in arguments[1:] else World
        make(int(arguments[0]), show).run()
    except Exception:
        traceback.print_exc(file=sys.stdout)
        return 1
    show("every invariant held")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
