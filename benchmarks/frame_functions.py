"""The tasks of `examples/frames.py`, for processes that have pandas and no zkplan."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

#: How many frames one task merges.
GROUP = 10


def write_file(path: Path, size: float, seed: int) -> None:
    """A CSV file of about `size` bytes."""
    draw = random.Random(seed)
    with path.open("w") as file:
        file.write("shop,day,amount\n")
        while file.tell() < size:
            file.writelines(
                f"{draw.randrange(50)},{draw.randrange(365)},{draw.random()!r}\n"
                for _ in range(1000)
            )


def read(path: str) -> Any:
    import pandas

    return pandas.read_csv(path)


def merge(frames: list[Any]) -> Any:
    """Merge the frames into one, with a row for each shop and day."""
    import pandas

    return pandas.concat(frames).groupby(["shop", "day"], as_index=False).sum()


def facts(table: Any) -> list[Any]:
    """Facts that tables of the same files share, up to rounding in the sum."""
    return [len(table), int(table.shop.sum()), int(table.day.sum()), float(table.amount.sum())]
