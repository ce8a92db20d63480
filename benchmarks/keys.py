"""The cost of keys: the same graphs unsigned, signed, encrypted, and on a closed server, in turns.

`none`, `secret` and `aes` share one server, which is `--open`. `closed` is a second embedded server
as `zkplan server` starts it: with a login, access lists and a secret of its own. The time is from
the first call to the values of all leaves.

All workers are restarted several times. Two processes that run the same code differ by some percent
for as long as they live, depending on where their memory happens to lie. More rounds with the same
processes would not even that out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import zkplan
from zkplan.testing.server_process import EmbeddedServerProcess
from zkplan.values.keyring import AES, SECRET, new_key

from . import machine, servers, shapes
from .measure import time_values
from .pool import Pool
from .shapes import Shape
from .turns import by_turns, number, spread

NONE, CLOSED = "none", "closed"
#: The most time of a side, as a multiple of that of the side without a key.
AT_MOST = {SECRET: 1.05, AES: 1.10}
PROCESSES, THREADS = 2, 8
#: How many times the workers are started, each time for a share of the rounds.
STARTS = 5


@dataclass(frozen=True)
class Turn:
    """Seconds until the values were there, and processor seconds of the workers meanwhile."""

    values_s: float
    workers_s: float


def graphs(quick: bool) -> dict[str, Shape]:
    """The rows, by the names that `--only` takes."""

    def size(full: int, small: int) -> int:
        return small if quick else full

    return {
        "independent": shapes.independent(size(10_000, 100)),
        "random": shapes.random(size(5000, 50), 2),
        "map-reduce": shapes.map_reduce(size(1000, 20)),
        "chain": shapes.chain(size(500, 10)),
        "stress": shapes.random(size(100, 20), size(10, 3)),
    }


@contextmanager
def sides(name: str, hosts: str) -> Iterator[dict[str, Pool]]:
    """The worker processes of each side, all of which run at once."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zkplan-benchmark-")))
        pools = {NONE: stack.enter_context(_pool(hosts, NONE))}
        for kind in (SECRET, AES):
            if kind == AES and find_spec("cryptography") is None:
                tell("aes: skipped: pip install 'zkplan[crypto]'")
                continue
            file = folder / f"{kind}.keys"
            file.touch(0o600)
            file.write_text(new_key(kind, kind).to_line() + "\n")
            pools[kind] = stack.enter_context(_pool(hosts, kind, file))
        if name == servers.EMBEDDED:
            closed = stack.enter_context(EmbeddedServerProcess(is_open=False))
            pools[CLOSED] = stack.enter_context(_pool(closed.hosts, CLOSED))
        yield pools


@contextmanager
def _pool(hosts: str, side: str, keys: Path | None = None) -> Iterator[Pool]:
    files = [] if keys is None else [str(keys)]
    environment = {"ZKPLAN_SECRET_FILES": str(keys)} if keys else {}
    root = f"/zkplan-benchmark-{side}"
    with (
        zkplan.connect(hosts, root, session_timeout=20.0, secret_files=files or None) as client,
        Pool(client, PROCESSES, THREADS, environment) as pool,
    ):
        yield pool


def time_one(pool: Pool, shape: Shape, _: int) -> Turn:
    before = sum(map(machine.cpu_s, pool.pids))
    seconds = time_values(pool, shape)
    return Turn(seconds, sum(map(machine.cpu_s, pool.pids)) - before)


def lines(row: str, found: Mapping[str, Sequence[Turn]]) -> Iterator[str]:
    """One line for each side with a key: its time divided by the time without, round by round."""
    plain = found[NONE]
    yield f"  {row}: {NONE} {spread([turn.values_s for turn in plain])} s, {len(plain)} rounds"
    for side, turns in found.items():
        if side == NONE:
            continue
        pairs = list(zip(turns, plain, strict=True))
        ratio = spread([ours.values_s / theirs.values_s for ours, theirs in pairs])
        cpu = sum(turn.workers_s for turn in turns) / (sum(t.workers_s for t in plain) or 1.0)
        line = f"    {side:7} x {ratio}; processor time of the workers x {cpu:.3f}"
        if side in AT_MOST:
            met = "met" if ratio.median <= AT_MOST[side] else "MISSED"
            yield f"{line}; target ≤ {AT_MOST[side]:.2f}: {met}"
        else:
            # A difference counts only if three quarters of the rounds show it.
            measured = "MISSED" if ratio.low > 1.0 else "met"
            yield f"{line}; target: none that can be measured (the lower quartile): {measured}"


def turns_of(
    name: str, hosts: str, wanted: Mapping[str, Shape], rounds: int
) -> dict[str, dict[str, list[Turn]]]:
    """The turns of each side, by row."""
    found: dict[str, dict[str, list[Turn]]] = {row: {} for row in wanted}
    starts = min(STARTS, rounds)
    for start in range(starts):
        # If the rounds cannot be shared evenly, the first starts take one more.
        share = rounds // starts + (start < rounds % starts)
        with sides(name, hosts) as pools:
            for row, shape in wanted.items():
                asked: dict[str, Callable[[int], Turn]] = {
                    side: partial(time_one, pool, shape) for side, pool in pools.items()
                }
                for side, turns in by_turns(asked, share).items():
                    found[row].setdefault(side, []).extend(turns)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keys", description=__doc__)
    parser.add_argument("--server", choices=[servers.ZOOKEEPER, servers.EMBEDDED, servers.BOTH])
    parser.add_argument("--hosts", help="a real ZooKeeper, instead of one that is started here")
    parser.add_argument("--rounds", type=number, default=20)
    parser.add_argument("--only", default="", metavar="NAME,...", help=", ".join(graphs(False)))
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all?")
    given = parser.parse_args()
    rows = graphs(given.quick)
    wanted = [row.strip() for row in given.only.split(",") if row.strip()] or list(rows)
    if unknown := sorted(set(wanted) - set(rows)):
        parser.error(f"{', '.join(unknown)}: there are {', '.join(rows)}")
    for name in servers.names(given.server, given.hosts):
        with servers.served(name, given.hosts) as shared:
            shapes_wanted = {row: rows[row] for row in wanted}
            found = turns_of(name, shared.hosts, shapes_wanted, given.rounds)
        print(name, flush=True)
        for row in wanted:
            for line in lines(row, found[row]):
                print(line, flush=True)


def tell(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
