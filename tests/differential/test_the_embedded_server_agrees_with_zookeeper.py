"""Random programs of several clients get the same bytes from the embedded server and ZooKeeper.

ZKPLAN_DIFFERENTIAL_PROGRAMS says how many (the closing proof: 2000). A report names the seed; play
it again with `python -m tests.differential SEED`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = int(os.environ.get("ZKPLAN_DIFFERENTIAL_PROGRAMS", "150"))
#: Each has two servers of its own and mostly waits for them.
PROCESSES = 3
_CHECKOUT = Path(__file__).parents[2]
_DONE = re.compile(r"^(\d+) programs, (\d+) answers", re.MULTILINE)


@pytest.mark.timeout(120 + PROGRAMS)
def test_random_programs_get_the_same_answers_and_events_from_both() -> None:
    command = [sys.executable, "-m", "tests.differential"]
    runs = [
        subprocess.Popen(
            [*command, str(first), str(PROGRAMS - 1), str(PROCESSES)],
            cwd=_CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for first in range(PROCESSES)
    ]
    said = [run.communicate()[0] for run in runs]
    sys.stdout.write("".join(said))
    assert [run.returncode for run in runs] == [0] * PROCESSES, "\n".join(said)
    assert sum(int(done[1]) for done in _DONE.finditer("".join(said))) == PROGRAMS
