"""What runs of the faults with every change is there: a name that is gone would be no failure."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.conftest import SAMPLE

_TOP = Path(__file__).parents[2]


def test_every_name_of_the_sample_is_a_test() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "sample"]
    collected = subprocess.run(
        [*command, "-p", "no:cacheprovider", "tests/chaos", "--zookeeper-kind=embedded"],
        cwd=_TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    found: Counter[tuple[str, str]] = Counter()
    for line in collected.stdout.splitlines():
        path, given, test = line.partition("::")
        if given:
            found[path.rpartition("/")[2], test.partition("[")[2].removesuffix("]")] += 1
    # Of a broken protocol there are two: it is caught, and the real one is not blamed.
    assert found == Counter({name: 2 if "mutants" in name[0] else 1 for name in SAMPLE})
