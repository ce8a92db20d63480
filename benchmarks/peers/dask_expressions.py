"""The Dask graphs that zkplan and Dask run: expressions of arrays, and a group-by of a data frame.

Most numbers are whole, so the results do not depend on the order of the sums. The tasks themselves
make the blocks and partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array
import dask.dataframe
import numpy
import pandas

#: Group numbers and values repeat after primes, so that they mix.
GROUPS, VALUES = 997, 1009


def array(side: int) -> Any:
    """A row of sums over a square array and its transpose, in 64 blocks."""
    shape, chunks = (side, side), (side // 8, side // 8)
    whole = dask.array.fromfunction(entries, shape=shape, chunks=chunks, dtype=numpy.int64)
    return (whole + whole.T).sum(axis=0)


def floats(side: int) -> Any:
    """As `array`, over random floats, which do not shrink when they are compressed."""
    draw = dask.array.random.default_rng(GROUPS)
    whole = draw.random((side, side), chunks=(side // 8, side // 8))
    return (whole + whole.T).sum(axis=0)


def entries(row: Any, column: Any) -> Any:
    return (row * GROUPS + column) % VALUES


def partition(number: int, rows: int) -> Any:
    at = numpy.arange(number * rows, (number + 1) * rows)
    return pandas.DataFrame({"key": at % GROUPS, "value": at % VALUES})


def group_by(rows: int) -> Any:
    """The sum and the count of each group of a frame in 16 partitions."""
    frame = dask.dataframe.from_map(partition, range(16), rows=rows // 16)
    # Into one partition, because otherwise Dask shuffles, through files unless `distributed` runs.
    return frame.groupby("key").value.agg(["sum", "count"], split_out=1).reset_index()


def plain(found: Any) -> list[Any]:
    """A result in a form that JSON has, in a fixed order."""
    if isinstance(found, numpy.ndarray):
        return list(found.tolist())
    return sorted(found[["key", "sum", "count"]].to_numpy().tolist())


def are_same(one: list[Any], other: list[Any]) -> bool:
    """Whether two plain results are equal, up to the rounding of sums in another order."""
    return numpy.shape(one) == numpy.shape(other) and bool(numpy.allclose(one, other, rtol=1e-9))


EXPRESSIONS: dict[str, Callable[[int], Any]] = {
    "array": array,
    "floats": floats,
    "group-by": group_by,
}
