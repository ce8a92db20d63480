"""A value of 2 GB, and a million small values: they arrive, in bounded memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.support import run_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

#: Of each process, the author and the workers.
_BOUND = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (GIB * 2**30, GIB * 2**30))
"""
_LARGE = """
import numpy, zkplan

def make(size):
    return numpy.random.default_rng(7).integers(0, 256, size, numpy.uint8)

def add_up(array):
    array[0] += 0  # it is the task's own
    return int(array.sum(dtype=numpy.int64)), array.nbytes

if __name__ == "__main__":
    with zkplan.local(workers=1, threads=1) as client:
        with client.create_plan() as plan:
            large = plan.add_task(make, [2 * 10**9], keep=True)
            sums = plan.add_task(add_up, [large])
        total, size = sums.result(300)
        reference, _ = client.transport.client.get(f"{plan.path}/results/{large.number}")
        assert len(reference) < 200, len(reference)
        assert add_up(large.result(300)) == (total, size)
        print(size)
"""
_MANY = """
import zkplan

def square(number):
    return number * number

if __name__ == "__main__":
    with zkplan.local(workers=2) as client:
        with client.create_plan() as plan:
            found = plan.map(square, range(10**6))
        wrong = sum(value != at * at for at, value in enumerate(found))
        print(len(found), wrong)
"""


def run_bounded(code: str, gib: int, folder: Path) -> str:
    """What the script prints; the store of its server is below `folder`."""
    script = folder / "script.py"
    script.write_text(_BOUND.replace("GIB", str(gib)) + code)
    ended = run_python(str(script), timeout=380, env={"TMPDIR": str(folder)})
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_a_value_of_two_gigabytes_goes_from_task_to_task_and_to_its_author(tmp_path: Path) -> None:
    """It arrives writable, so each that takes it holds what was read, and its own copy."""
    pytest.importorskip("numpy", reason="numpy is not installed: pip install zkplan[dask]")
    assert run_bounded(_LARGE, 6, tmp_path) == str(2 * 10**9)


def test_a_million_small_values_arrive_in_the_order_of_their_calls(tmp_path: Path) -> None:
    assert run_bounded(_MANY, 2, tmp_path) == f"{10**6} 0"
