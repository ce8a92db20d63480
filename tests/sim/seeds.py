"""Run many seeds, on all processors or on one.

On one: python -m tests.sim.seeds FIRST LAST [STEP] [--loops]
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
from pathlib import Path

from .loop_shares import loop_world
from .world import World

_CHECKOUT = Path(__file__).parents[2]


def failures(first: int, last: int, *options: str) -> list[str]:
    """Run the seeds from `first` up to `last`; a line for each that fails, with how to replay it.

    Processes of their own, started by name: nothing of a test run is inherited or pickled.
    """
    step, command = os.cpu_count() or 1, [sys.executable, "-m", "tests.sim.seeds"]
    runs = [
        subprocess.Popen(
            [*command, str(first + offset), str(last), str(step), *options],
            cwd=_CHECKOUT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for offset in range(step)
    ]
    said = [process.communicate()[0] for process in runs]
    # 1 says that seeds failed, and which; anything else is a run that broke down itself.
    broken = [process.returncode for process in runs if process.returncode not in (0, 1)]
    said += [f"a process ended with exit code {code}\n" for code in broken]
    return "".join(said).splitlines()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.seeds",
        description="Run the protocol with each of these seeds, in this process.",
    )
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, help="the first seed that is not run any more")
    parser.add_argument("--loops", action="store_true", help="worlds with the worker's real loop")
    parser.add_argument("step", type=int, nargs="?", default=1, help="each so many (default: 1)")
    options = parser.parse_args(arguments)
    if options.step < 1:
        parser.error("step must be 1 at least")
    seeds = range(options.first, options.last, options.step)
    found = 0
    if options.loops:
        logging.disable(logging.CRITICAL)  # each world says as much as its workers would
    for seed in seeds:
        try:
            (loop_world if options.loops else World)(seed).run()
        except Exception as error:
            found += 1
            why = f"{type(error).__name__}: {error}"
            which = f"{seed} --loops" if options.loops else f"{seed}"
            sys.stdout.write(f"python -m tests.sim.replay {which}  # {why}\n")
    # Where others read the failures from, this one is not among them.
    many = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    sys.stderr.write(f"{many} from {options.first}, violations: {found}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
