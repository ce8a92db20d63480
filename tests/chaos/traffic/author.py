"""A process that makes plans, one after another, and records the answer to each add."""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

import zkplan
from zkplan.protocol.records import OnFailure
from zkplan.testing.stress_tasks import Recorder, recorder_here

from .controls import controlled, options_of
from .memory import FOOTPRINT
from .tasks import TOLD, spec, tell_of_points, teller
from .workloads import Item, Workload, drawn_shape, workloads_in

STOP = "authors-stop"
#: With the number of an add: the file that lets the author of a gated plan go on with it.
GATE = "authors-go-"
_WANTED = "wanted-shape"
_POLL_S = 0.05
#: The death of a worker uses up an attempt; no task may end because of its workers.
_ATTEMPTS = 60
#: Refusals of an add, after which its author gives the plan up.
_REFUSED = (
    zkplan.PlanDrained,
    zkplan.PlanCancelled,
    zkplan.ResultNotKept,
    zkplan.StoreUnavailable,
)
#: How long it makes no plan after its store could not be used.
_REST_S = 0.5
#: An add of fewer operations is one transaction.
_ATOMIC_OPS = 300


def want(folder: Path, shape: str) -> None:
    """Authors make plans of that shape only, from now on; empty: of any."""
    draft = folder / f"{_WANTED}-draft"
    draft.write_text(shape)
    draft.rename(folder / _WANTED)


class Author:
    """Makes the plans of consecutive seeds while fewer than `backlog` plans stand."""

    def __init__(
        self,
        client: zkplan.Client,
        folder: Path,
        backlog: int,
        shape: str = "",
        controls: bool = False,
    ) -> None:
        self.client, self.folder, self.backlog, self.shape = client, folder, backlog, shape
        self.controls = controls
        self.journal: Recorder = recorder_here(str(folder))

    def author(self, workload: Workload, ready: bool = True) -> None:
        """Make the plan of that workload, and mark it ready in the end unless told otherwise."""
        facts = {"seed": workload.seed, "shape": workload.shape}
        self.journal.write("plan begun", **facts)
        options: dict[str, Any] = {"attempts": _ATTEMPTS, "retry_delay": 0.1}
        if workload.growing:
            options["keep"] = True
        if self.controls:
            workload = controlled(workload)
            options |= options_of(workload)
        policy: OnFailure = "hold" if workload.held else "cascade"
        plan = self.client.create_plan(workload.name, on_failure=policy, **options)
        self.journal.write("plan made", path=plan.path, **facts)
        try:
            try:
                self._fill(plan, workload)
            finally:
                if ready:  # whatever went wrong, the added tasks have to run
                    plan.mark_ready()
        except (zkplan.PlanCancelled, zkplan.PlanNotFound) as error:
            self.journal.write("cut short", error=repr(error)[:300], **facts)
        self.journal.write("plan closed", **FOOTPRINT.noted(), **facts)

    def _fill(self, plan: zkplan.Plan, workload: Workload) -> None:
        tasks: dict[str, Any] = {}
        chance = random.Random(workload.seed)
        for number, batch in enumerate(workload.batches):
            if number:
                threading.Event().wait(chance.choice([0.0, 0.0, 0.02, 0.2]))
            if number == workload.ready_before:
                plan.mark_ready()
            while workload.gated and number and not (self.folder / f"{GATE}{number}").exists():
                threading.Event().wait(_POLL_S)
            self._add(plan, workload, number, batch, tasks)

    def _add(
        self,
        plan: zkplan.Plan,
        workload: Workload,
        number: int,
        batch: list[Item],
        tasks: dict[str, Any],
    ) -> None:
        keyed, folder = self.controls and bool(plan.record.key), str(self.folder)
        shared = plan.constant(folder) if self.controls else folder
        specs = [spec(item, tasks, workload.name, shared, keyed=keyed) for item in batch]
        atomic = not keyed and sum(4 + 3 * len(item.needs) for item in batch) < _ATOMIC_OPS
        facts = {"seed": workload.seed, "batch": number}
        keys = [item.key for item in batch]
        self.journal.write("add begun", keys=keys, atomic=atomic, **facts)
        try:
            added = plan.add_tasks(specs)
        except _REFUSED as error:
            told = {"error": repr(error)[:300], "added": error.added}
            self.journal.write("add refused", **told, **facts)
            raise
        for item, task in zip(batch, added, strict=True):
            tasks[item.key] = task
        numbers = [task.number for task in added]
        self.journal.write("add done", numbers=numbers, **facts)
        if keyed and number < workload.ready_before:
            again = [task.number for task in plan.add_tasks(specs)]
            if again != numbers:
                raise RuntimeError(f"S12 an add told {numbers}, and its repetition {again}")

    def _next(self, seed: int) -> int:
        """The next seed whose plan has the shape that is wanted now."""
        file = self.folder / _WANTED
        wanted = file.read_text() if file.exists() else ""
        seed += 1
        while wanted and drawn_shape(seed) != wanted:
            seed += 1
        return seed

    def go_on(self, seed: int) -> None:
        """Make plans until the file `authors-stop` exists."""
        while not (self.folder / STOP).exists():
            try:
                if len(workloads_in(self.client)) >= self.backlog:
                    threading.Event().wait(_POLL_S)
                    continue
                seed = self._next(seed)
                self.author(Workload.make(seed, self.shape))
            except zkplan.PlanDrained:
                continue  # a growing plan ended before all of it was added
            except zkplan.StoreUnavailable:
                threading.Event().wait(_REST_S)
            except zkplan.ZooKeeperUnavailable as error:
                self.journal.write("unavailable", error=repr(error)[:300])
        self.journal.write("author stopped")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--first-seed", type=int, required=True)
    parser.add_argument("--backlog", type=int, default=4)
    parser.add_argument("--shape", default="", help="of every plan; else the seeds decide")
    parser.add_argument("--controls", action="store_true", help="see controls.py")
    parser.add_argument("--session-timeout", type=float, default=10.0)
    options = parser.parse_args(arguments)
    if TOLD in os.environ:
        tell_of_points(teller(Path(os.environ[TOLD])))
    with zkplan.connect(
        options.hosts,
        options.root,
        session_timeout=options.session_timeout,
        connect_timeout=60.0,
        patience=60.0,
    ) as client:
        made = Author(client, options.folder, options.backlog, options.shape, options.controls)
        made.go_on(options.first_seed)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
