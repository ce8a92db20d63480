"""The rate at which programs claim and complete tasks through a service, in batches, over HTTP.

`python -m benchmarks.leases --hosts 127.0.0.1:2181` starts a service of its own, and programs that
use only the standard library. All of them share the processors of this machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import zkplan

from . import servers
from .peers import claims
from .peers.peer import interpreter

KIND = "bench"


@contextmanager
def service(hosts: str, root: str, quiet: bool = False) -> Iterator[int]:
    """A `zkplan serve` process without tokens and without a rate limit. Yields its port."""
    command = [sys.executable, "-m", "zkplan", "serve", "--hosts", hosts, "--root", root]
    options = ["--listen", "127.0.0.1:0", "--open", "--rate", "0"]
    log = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=log, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            found = re.search(r":(\d+)/", said)
            if found is None:
                raise SystemExit(f"the service does not serve: {said}")
            yield int(found[1])
        finally:
            process.terminate()


def work(port: int, batch: int, ready: Any, done: Any) -> None:
    """Claim and complete tasks until none come any more."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(verb: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        link.request("POST", f"/v1/leases/{verb}", json.dumps(body), headers)
        answer = link.getresponse()
        data = json.loads(answer.read())
        if answer.status != 200:
            raise SystemExit(f"{verb}: {answer.status} {data}")
        return data

    wanted = {"kinds": [KIND], "count": batch, "wait": 0}
    ask("claim", wanted)  # the service has registered, and watches
    with ready.get_lock():
        ready.value += 1
    wanted["wait"] = 30
    while tasks := ask("claim", wanted)["tasks"]:
        wanted["wait"] = 2
        results = [{"id": task["id"], "value": 2 * task["args"][0]} for task in tasks]
        ask("complete", {"results": results})
        with done.get_lock():
            done.value += len(tasks)


def measure(
    hosts: str, root: str, tasks: int, batch: int, programs: int, quiet: bool = False
) -> float:
    """Tasks per second, from `mark_ready` to the last completion."""
    with (
        zkplan.connect(hosts, root, serializer="json") as client,
        service(hosts, root, quiet) as port,
    ):
        plan = client.create_plan("leases")
        kind = zkplan.kind(KIND)
        plan.add_tasks([zkplan.TaskSpec(kind, [n]) for n in range(tasks)])
        context = multiprocessing.get_context("spawn")
        ready, done = context.Value("l", 0), context.Value("l", 0)
        running = [
            context.Process(target=work, args=(port, batch, ready, done), daemon=True)
            for _ in range(programs)
        ]
        for each in running:
            each.start()
        while ready.value < programs:
            time.sleep(0.05)
        started = time.monotonic()
        plan.mark_ready()
        plan.wait(timeout=600)
        took = time.monotonic() - started
        for each in running:
            each.join(30)
        if done.value != tasks:
            raise SystemExit(f"{done.value} of {tasks} were completed by the programs")
        plan.remove()
        return tasks / took


def beside_peers(given: argparse.Namespace) -> None:
    """Print a table of the rates on every server here and in other stores, measured in turns."""
    with ExitStack() as stack:
        sides: dict[str, claims.Measured] = {}
        for name in servers.names(None, given.hosts):
            server = stack.enter_context(servers.served(name, given.hosts))
            fixed = {"batch": given.batch, "programs": given.programs, "quiet": True}
            side = partial(measure, server.hosts, given.root, **fixed)
            sides[f"zkplan, {name} {server.version}"] = side
        python = interpreter(given.peers)
        sides |= stack.enter_context(claims.stores(python, given.batch, given.programs, tell))
        print(claims.table(claims.take_turns(sides, given.tasks, given.runs, tell)))


def tell(line: str) -> None:
    print(line, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leases", description=__doc__)
    parser.add_argument("--hosts", help="the server, such as 127.0.0.1:2181")
    parser.add_argument("--root", default="/zkplan-bench-leases")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--programs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    told = "compare with DBOS and PGQueuer, which this environment has; --hosts is optional"
    parser.add_argument("--peers", nargs="?", const=sys.executable, metavar="PATH", help=told)
    given = parser.parse_args()
    if given.peers:
        beside_peers(given)
        return
    if not given.hosts:
        parser.error("--hosts is missing")
    sizes = given.hosts, given.root, given.tasks // 2, given.batch, given.programs
    measure(*sizes)  # warms up the server's compiler, and does not count
    for _ in range(given.runs):
        rate = measure(given.hosts, given.root, given.tasks, given.batch, given.programs)
        print(f"{rate:,.0f} tasks/s claimed and completed in batches of {given.batch}")


if __name__ == "__main__":
    main()
