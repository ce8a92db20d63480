"""A root with a znode of each kind that docs/internals/protocol.md tells of in its table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import zkplan
from zkplan.protocol.requests import Create, Multi, Step
from zkplan.protocol.transactions import ensure
from zkplan.service.leases import Leases

from .claiming import claim
from .support import TOP, fail, wait_until, working

_PROTOCOL = TOP / "docs" / "internals" / "protocol.md"
_ROW = re.compile(r"^\| (`(?:ROOT|…)/[^|]*) \|", re.MULTILINE)
_ENTRY = r"\d{4}-\d{10}\.\d+\.\d+"
#: What stands for the words in capitals there. The first that fits counts.
_WORDS = {
    "RANK-TASK.N.A": rf"{_ENTRY}[^/]*",  # its queue, kind and limits may follow
    "PLAN-RANK-TASK.N.A": rf"\d{{10}}-{_ENTRY}[^/]*",
    "DUE-PLAN-RANK-TASK.N.A": rf"\d{{13}}-\d{{10}}-{_ENTRY}[^/]*",
    "UID-COUNT": "(?!key-|update-|author-|shared-)[^/]+",
    **dict.fromkeys(("ID", "NAME"), "[^/]+"),
    **dict.fromkeys(("UID", "DIGEST", "RANDOM", "GROUP"), "[0-9a-f]+"),
    **dict.fromkeys(("NUMBER", "PLAN", "TASK", "POSITION", "FIRST", "LAST"), r"\d{10}"),
    **dict.fromkeys(("N", "A", "I", "BYTES", "MILLISECONDS"), r"\d+"),
}
_WORD = re.compile("|".join(map(re.escape, [*sorted(_WORDS, key=len, reverse=True), "."])))


def documented() -> dict[str, re.Pattern[str]]:
    """The kinds of that table, and what must stand above them, each with what its paths are like.

    A path begins below the root.
    """
    kinds = {"": re.compile("")}
    for cell in _ROW.findall(_PROTOCOL.read_text("utf-8")):
        for told in re.findall("`([^`]+)`", cell):
            if told.startswith("…."):
                continue  # an entry with its queue: of the same kind
            parts = told.replace("…/", "ROOT/plan-NUMBER/").split("/")[1:]
            for end in range(1, len(parts) + 1):
                kind = "".join(f"/{part}" for part in parts[:end])
                kinds[kind] = re.compile(_WORD.sub(_like, kind))
    return kinds


def _like(word: re.Match[str]) -> str:
    return _WORDS.get(word[0], re.escape(word[0]))


def kinds_of(paths: Iterable[str]) -> dict[str, list[str]]:
    """These paths below a root by their kinds; under "?" those of no kind that is documented."""
    kinds = documented()
    found: dict[str, list[str]] = {}
    for path in paths:
        fits = [kind for kind, like in kinds.items() if like.fullmatch(path)]
        # `claims/lease-30000.7f` is a `claims/ID`, too: the kind that says most counts.
        kind = max(fits, key=lambda kind: len(re.sub("[A-Z]", "", kind)), default="?")
        found.setdefault(kind, []).append(path)
    return found


def require_every_kind(paths: Iterable[str]) -> None:
    """Fail where a kind is missing here, or is not documented."""
    found = kinds_of(paths)
    assert found.get("?", []) == []
    assert documented().keys() - found.keys() == set()


def wait_for(file: str) -> None:
    wait_until(Path(file).exists, "the test lets it go on", 600)


@contextmanager
def every_kind(
    client: zkplan.Client, folder: Path, hosts: str, options: Mapping[str, Any]
) -> Iterator[str]:
    """A root with a znode of each kind, while a worker runs a task. `options` connect to it."""
    go_on = folder / "go on"
    with ExitStack() as stack:
        worker = stack.enter_context(working(hosts, client.root, **options))
        stack.callback(go_on.touch)
        client.set_limit("db", 1)
        client.set_retention(1e6)
        client.schedule("yearly", "@yearly", abs, [1])
        with client.create_plan("done", key="order 1") as plan:
            plan.add_task(len, ("kept",), keep=True)
        plan.wait(30)
        with client.create_plan("fails", retry_delay=1000.0, attempts=2) as plan:
            plan.add_task(fail)
            plan.add_task(fail, attempts=1)
        with client.create_plan("failed", on_failure="cascade", attempts=1) as plan:
            plan.add_task(fail)
        wait_until(plan.is_drained, "a plan has failed")
        with client.create_plan("runs", max_running=5) as plan:
            first = plan.add_task(wait_for, (str(go_on),), limits=["db"])
            plan.add_task(len, (first,), run_if="all_finished")
            plan.add_task(len, [zkplan.when(f"{client.root}/schedules/never")])
        waiting = client.create_plan("waits", key="order 2")
        waiting.add_task(len, ("x",), queue="gpu", key="one")
        task = waiting.add_task(len, (waiting.constant("x"),))
        _under_a_lease(stack, hosts, client.root, options)
        of_a_worker = f"{client.paths.claims}/{worker.id}"
        client.transport.run(ensure(client.paths.idle))
        idle = client.paths.idle_place("7f", worker.id)
        for path in (*_momentary(waiting.path, task.path), f"{of_a_worker}/pending-ff", idle):
            client.transport.run(_create(path))
        raw = client.transport.client
        wait_until(lambda: raw.get_children(client.paths.delayed), "a failed task waits")
        wait_until(lambda: len(raw.get_children(of_a_worker)) == 2, "a task runs")
        yield client.root


def _under_a_lease(stack: ExitStack, hosts: str, root: str, options: Mapping[str, Any]) -> None:
    """Claim a task as a program in another language does, through a service."""
    given = {**options, "serializer": "json"}
    service = stack.enter_context(zkplan.connect(hosts, root, **given))
    with service.create_plan("of a kind") as plan:
        plan.add_task(zkplan.kind("shrink"), [1])
    leases = stack.enter_context(Leases(service))
    assert claim(leases, kinds=["shrink"], wait=10, lease=600)


def _momentary(plan: str, task: str) -> list[str]:
    """Kinds that last for a moment only. The same code makes every znode."""
    of_a_task = ["dep-0000000000", "arg-0000000000", "log-0000000007", "result", "delivered"]
    of_a_task += ["incomplete", "started-1", "retry-1", "cut", "adds", "adds-1-0", "added-0"]
    return [
        *(f"{task}/{name}" for name in of_a_task),
        f"{plan}/dead/{task[-10:]}",
        f"{plan}/add-ids/update-{32 * 'a'}",
        f"{plan}/history/merged-0000000001-0000000002.10",
    ]


def _create(path: str) -> Step[Any]:
    answer = yield Multi([Create(path)])
    return answer
