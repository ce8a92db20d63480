"""A Dask computation under the name of a plan, and the process that computes it."""

from __future__ import annotations

import pickle
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import dask
import dask.array
import dask.dataframe
import numpy
import pandas

import zkplan
from tests.tools.support import note
from zkplan.integrations.dask import ZkplanScheduler

NAME = "nightly"
WIDTH, HEIGHT = 8, 12


def frame_of_groups() -> Any:
    """A data frame in eight partitions."""
    plain = pandas.DataFrame({"key": numpy.arange(4000) % 7, "value": numpy.arange(4000.0)})
    return dask.dataframe.from_pandas(plain, npartitions=8)


def frame() -> Any:
    """The mean and the sum of each of its groups."""
    return frame_of_groups().groupby("key").agg(["mean", "sum"])


def array() -> Any:
    """An expression over an array in sixteen blocks, which has no rounding errors."""
    whole = dask.array.arange(10_000, chunks=2500).reshape(100, 100).rechunk(25)
    return (whole + whole.T).sum(axis=0)


def stamped(inputs: list[dict[str, str]], name: str, file: str) -> dict[str, str]:
    """Gives every name below it with the stamp of the run whose result arrived here.

    A stamp is made anew by each run, so two results of one task cannot look alike.
    """
    threading.Event().wait(0.4)
    merged: dict[str, str] = {}
    for stamps in inputs:
        for key, stamp in stamps.items():
            assert merged.setdefault(key, stamp) == stamp, f"two results of {key} were delivered"
    merged[name] = uuid.uuid4().hex
    note(file, f"{name} {merged[name]}")
    return merged


def lattice(file: Path) -> Any:
    """Rows of tasks, each depending on two above it, joined by one at the end."""

    def node(name: str, *inputs: Any) -> Any:
        return dask.delayed(stamped)(list(inputs), name, str(file), dask_key_name=name)

    row = [node(f"0.{column}") for column in range(WIDTH)]
    for level in range(1, HEIGHT):
        row = [
            node(f"{level}.{column}", row[column], row[(column + 1) % WIDTH])
            for column in range(WIDTH)
        ]
    return node("end", *row)


def compute(client: zkplan.Client, file: Path) -> Any:
    """The three of them as one plan, which stays."""
    get = ZkplanScheduler(client, NAME, keep_plan=True, attempts=20)
    return dask.compute(frame(), array(), lattice(file), scheduler=get)


def main(folder: str, file: str, out: str) -> None:
    """The author: computes in a process of its own, and writes what it got."""
    with zkplan.connect(f"embedded:{folder}") as client:
        draft = Path(f"{out}.part")
        draft.write_bytes(pickle.dumps(compute(client, Path(file))))
        draft.rename(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
