"""One client process that measures how long a create takes, or one that keeps the server busy."""

from __future__ import annotations

import json
import sys
import time
from statistics import median, quantiles

import click

from zkplan.protocol.requests import Create, Delete
from zkplan.transport import open_transport

from . import raw
from .limit_client import DATA, OPS_PER_MULTI, WINDOW, paths_of

_LOAD_MULTIS = 8


def _probe(client: raw.RawClient, path: str, seconds: float) -> dict[str, float]:
    """Time creates one after the other. Deletes the znodes afterwards."""
    taken = []
    end = time.monotonic() + seconds
    number = 0
    while (began := time.perf_counter()) and time.monotonic() < end:
        client.ask(raw.create(f"{path}/{number}", DATA))
        taken.append((time.perf_counter() - began) * 1000)
        number += 1
    rest = range(number)
    for first in range(0, number, OPS_PER_MULTI):
        paths = (f"{path}/{one}" for one in rest[first : first + OPS_PER_MULTI])
        client.ask(raw.multi([Delete(one) for one in paths]))
    return {
        "creates": len(taken),
        "median_ms": median(taken),
        "p99_ms": quantiles(taken, n=100)[98],
        "longest_ms": max(taken),
    }


def _load(client: raw.RawClient, path: str, seconds: float) -> dict[str, float]:
    """Send pipelined multis of creates, then of deletes, again and again."""
    groups = [paths_of(path, multi) for multi in range(_LOAD_MULTIS)]
    packets = [raw.multi([Create(one, DATA) for one in group]) for group in groups]
    packets += [raw.multi([Delete(one) for one in group]) for group in groups]
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end:
        client.send_all(packets, WINDOW)
        rounds += 1
    return {"operations_per_s": rounds * len(packets) * OPS_PER_MULTI / seconds}


@click.command()
@click.option("--hosts", required=True)
@click.option("--path", required=True)
@click.option("--seconds", type=float, required=True)
@click.option("--load", is_flag=True, help="Keep the server busy instead of measuring it.")
def main(hosts: str, path: str, seconds: float, load: bool) -> None:
    """Print `ready`, wait for a line of input, and print the measured figures as JSON."""
    transport = open_transport(hosts, session_timeout_s=20.0)
    transport.client.create(path)
    click.echo("ready")
    if sys.stdin.readline():
        with raw.RawClient(hosts) as client:
            found = (_load if load else _probe)(client, path, seconds)
        click.echo(json.dumps(found))
    transport.client.delete(path)
    transport.close()


if __name__ == "__main__":
    main()
