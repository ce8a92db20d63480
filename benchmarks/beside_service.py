"""The cost of a service with open pages and leases, for ZooKeeper and for plans that run beside it.

`python -m benchmarks.beside_service --hosts 127.0.0.1:2181 requests` reads the server's own count
of requests (`srvr`); `… pairs` runs a graph with and without the service, in turns.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import zkplan

from .leases import KIND, service
from .measure import run_shape
from .pool import Pool
from .shapes import independent


def received(hosts: str) -> int:
    """How many requests the server has received since its start."""
    host, _, port = hosts.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as link:
        link.sendall(b"srvr")
        told = b""
        while more := link.recv(4096):
            told += more
    found = re.search(rb"Received: (\d+)", told)
    if found is None:
        raise SystemExit(f"{hosts} does not answer `srvr`: {told[:200]!r}")
    return int(found[1])


def ask(link: http.client.HTTPConnection, path: str, body: Any) -> Any:
    """The service's answer to a POST."""
    link.request("POST", f"/v1{path}", json.dumps(body), {"Content-Type": "application/json"})
    answer = link.getresponse()
    data = json.loads(answer.read())
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status} {data}")
    return data


@contextmanager
def pages(port: int, plans: list[int], count: int) -> Iterator[None]:
    """Hold `count` open event streams, spread over the plans. Each is read to its end."""
    open_: list[http.client.HTTPConnection] = []
    begun = threading.Semaphore(0)

    def read(answer: http.client.HTTPResponse) -> None:
        answer.readline()
        begun.release()
        while answer.fp is not None and answer.readline():
            pass

    try:
        for number in range(count):
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            link.request("GET", f"/v1/plans/{plans[number % len(plans)]}/events")
            open_.append(link)
            threading.Thread(target=read, args=(link.getresponse(),), daemon=True).start()
        for _ in range(count):
            begun.acquire()
        yield
    finally:
        for link in open_:
            if link.sock is not None:
                link.sock.shutdown(socket.SHUT_RDWR)


def renew(port: int, ids: list[str], period_s: float, end: float) -> None:
    """Run one program per lease, which renews that lease once per period, until `end`."""
    lost: list[str] = []

    def program(number: int) -> None:
        due = time.monotonic() + number * period_s / len(ids)
        while due < end:
            _wait(due)
            # The service has closed the last connection, which was idle for a period.
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as link:
                (told,) = ask(link, "/leases/renew", {"ids": [ids[number]]})["claims"]
            if not told["ok"]:
                lost.append(told["why"])
            due += period_s

    running = [threading.Thread(target=program, args=(n,)) for n in range(len(ids))]
    for each in running:
        each.start()
    for each in running:
        each.join()
    if lost:
        raise SystemExit(f"{len(lost)} leases were lost: {lost[0]}")


def requests(given: argparse.Namespace) -> None:
    """Print the requests per second of pages alone, of pages and leases, and of leases alone."""
    with ExitStack() as stack:
        client = stack.enter_context(zkplan.connect(given.hosts, given.root, serializer="json"))
        plans = []
        for _ in range(given.plans):
            plan = client.create_plan("beside")
            stack.callback(plan.remove)
            plan.add_tasks([zkplan.TaskSpec(zkplan.kind(KIND), [n]) for n in range(20)])
            plan.mark_ready()
            plans.append(int(plan.number))
        port = stack.enter_context(service(given.hosts, given.root, quiet=True))
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        ids = []
        for _ in range(given.leases):
            wanted = {"kinds": [KIND], "count": 1, "wait": 10, "lease": 120}
            (task,) = ask(link, "/leases/claim", wanted)["tasks"]
            ids.append(task["id"])
        with pages(port, plans, given.pages):
            print(f"{given.pages} open pages of {given.plans} plans, {given.leases} leases:")
            print(f"  {_rate(given, lambda end: _wait(end)):.1f} requests/s without renewals")
            rate = _rate(given, lambda end: renew(port, ids, given.period, end))
            print(f"  {rate:.1f} requests/s with each renewed every {given.period:g} s")
        rate = _rate(given, lambda end: renew(port, ids, given.period, end))
        print(f"no page, the same leases and renewals:\n  {rate:.1f} requests/s")


def _wait(end: float) -> None:
    time.sleep(max(0.0, end - time.monotonic()))


def _rate(given: argparse.Namespace, meanwhile: Any) -> float:
    time.sleep(2.0)
    before, began = received(given.hosts), time.monotonic()
    meanwhile(began + given.seconds)
    return (received(given.hosts) - before) / (time.monotonic() - began)


def pairs(given: argparse.Namespace) -> None:
    """Print how fast a graph runs beside an idle service with open pages, and alone."""
    shape = independent(given.tasks)
    ratios = []
    with ExitStack() as stack:
        client = stack.enter_context(zkplan.connect(given.hosts, given.root))
        watched = client.create_plan("watched")
        stack.callback(watched.remove)
        watched.add_task(len, ["idle"])
        pool = stack.enter_context(Pool(client, 2, 8))
        run_shape(pool, shape, None)  # warms up the server and the workers
        for number in range(given.pairs):
            taken = {}
            for beside in (number % 2 == 0, number % 2 == 1):
                with ExitStack() as inner:
                    if beside:
                        port = inner.enter_context(service(given.hosts, given.root, quiet=True))
                        inner.enter_context(pages(port, [int(watched.number)], given.pages))
                    # The start or the end of a service costs the next run about 4 %.
                    run_shape(pool, shape, None)
                    taken[beside] = statistics.median(
                        run_shape(pool, shape, None).execution_s for _ in range(given.runs)
                    )
            ratios.append(taken[False] / taken[True])
            print(
                f"  {shape.tasks / taken[False]:,.0f} alone, {shape.tasks / taken[True]:,.0f}"
                f" tasks/s beside it: {ratios[-1]:.3f}",
                flush=True,
            )
    print(f"median of {len(ratios)} pairs: {statistics.median(ratios):.3f} of the speed alone")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.beside_service", description=__doc__
    )
    parser.add_argument("--hosts", required=True, help="the server, such as 127.0.0.1:2181")
    parser.add_argument("--root", default="/zkplan-bench-beside")
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--plans", type=int, default=50, help="spread the pages over this many")
    parser.add_argument("--leases", type=int, default=100)
    parser.add_argument("--period", type=float, default=5.0, help="seconds between renewals")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each count")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--runs", type=int, default=4, help="in each half of a pair")
    parser.add_argument("what", choices=("requests", "pairs"))
    given = parser.parse_args()
    {"requests": requests, "pairs": pairs}[given.what](given)


if __name__ == "__main__":
    main()
