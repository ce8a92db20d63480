"""Run many seeds, on all processors: python -m tests.sim.seeds FIRST LAST [STEP]."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .world import run

_CHECKOUT = Path(__file__).parents[2]


def failures(first: int, last: int) -> list[str]:
    """Run the seeds from `first` up to `last`; a line for each that fails, with how to replay it.

    Processes of their own, started by name: nothing of a test run is inherited or pickled.
    """
    step = os.cpu_count() or 1
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.sim.seeds", str(first + offset), str(last), str(step)],
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
    failed = 0
    for seed in range(*map(int, arguments)):
        try:
            run(seed)
        except Exception as error:
            failed = 1
            why = f"{type(error).__name__}: {error}"
            sys.stdout.write(f"python -m tests.sim.replay {seed}  # {why}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
