"""CSV files become frames, and the frames one table: 600 MB of values, and nothing to configure.

It needs pandas. `python examples/frames.py FILES MEGABYTES` says how many files of which size.
"""

import csv
import random
import sys
import tempfile
import time
from pathlib import Path

import zkplan


def write_file(path: Path, megabytes: float, seed: int) -> None:
    draw = random.Random(seed)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["shop", "day", "amount"])
        while file.tell() < megabytes * 1e6:
            rows.writerows(
                (draw.randrange(50), draw.randrange(365), draw.random()) for _ in range(1000)
            )


def read(path: str):
    import pandas

    return pandas.read_csv(path)


def merge(frames):
    """The frames of some files as one, with a row for each shop and day."""
    import pandas

    return pandas.concat(frames).groupby(["shop", "day"], as_index=False).sum()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    megabytes = float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.csv" for number in range(count)]
        for number, path in enumerate(paths):
            write_file(path, megabytes, number)
        with zkplan.local(workers=2, threads=2) as client:
            began = time.monotonic()
            with client.create_plan("frames") as plan:
                frames = [plan.add_task(read, [str(path)], name=path.name) for path in paths]
                groups = [
                    plan.add_task(merge, [frames[start : start + 10]])
                    for start in range(0, count, 10)
                ]
                table = plan.add_task(merge, [groups])
            result = table.result()
            print(f"{count} files, {len(result)} rows, {result.amount.sum():.2f} in all")
            print(f"{time.monotonic() - began:.1f} s", file=sys.stderr)
