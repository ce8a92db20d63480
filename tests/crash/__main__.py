"""Kill the server under load: python -m tests.crash --kills 200 --seed N."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from .load import Load
from .server import CrashServer


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--durability", choices=["durable", "fast"], default="durable")
    options = parser.parse_args(arguments)
    if shutil.which("strace") is None:
        parser.error("strace is missing (Debian, Ubuntu: apt-get install strace)")
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    sys.stdout.write(f"seed {seed}\n")
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zkplan-crash-") as folder:
        server = CrashServer(Path(folder), durability=options.durability)
        load = Load(Path(folder), seed, server)
        shown = 0
        try:
            while load.kills.total() < options.kills and not load.faults:
                load.crash_at_random()
                if load.kills.total() >= shown + 20:
                    shown = load.kills.total()
                    sys.stdout.write(f"{shown} kills, {load.acknowledged} writes acknowledged\n")
                    sys.stdout.flush()
            load.finish()
        finally:
            load.end()
    for fault in load.faults:
        sys.stdout.write(f"violation: {fault}\n")
    sys.stdout.write(f"{summary(load)}, {time.monotonic() - begun_s:.0f} s\n")
    return 1 if load.faults else 0


def summary(load: Load) -> str:
    """One line of numbers."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(load.kills.items()))
    return (
        f"{load.kills.total()} kills ({kinds}), {load.acknowledged} writes acknowledged, "
        f"{load.unknown} without an answer ({load.found_applied} of them applied), "
        f"{len(load.short_sessions)} sessions that ended, {len(load.faults)} violations"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
