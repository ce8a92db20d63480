"""S10 at plans that rest: no reference without its blob, and no blob that nothing refers to."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import zkplan
from tests.tools.stores import Place
from zkplan.protocol.requests import ReadChildren, ReadData, ReadMany
from zkplan.values.blobs import ADDED, HISTORY, key_of
from zkplan.values.check_blobs import names_in

from .history import RunHistory
from .removals import Removed

_BATCH = 300
_LEFT = re.compile(
    r"^(?P<at>\S+) WARNING \S+ (?P<path>\S+) is removed, but not its folder", re.MULTILINE
)


class Blobs:
    """What lies in the store of a run, which may have none."""

    def __init__(self, place: Place | None) -> None:
        self._place = place
        #: Plans that were judged at rest, the references in them, and in the folders of how many
        #: something was left that a check had to delete.
        self.plans = self.references = self.checked = 0

    def missing(self, plan: zkplan.Plan) -> list[str]:
        """What the tree refers to and the store has not. Raises StoreUnavailable, PlanNotFound."""
        if self._place is None:
            return []
        held = _held(plan)
        there = set(_names(plan))
        lost = {path: names for path, names in held.items() if not names <= there}
        # What stands still stood when the blob was not there; what was committed, or removed, had
        # been before that.
        again = _references(plan.client, sorted(lost))
        return [
            f"S10 {path} refers to {', '.join(sorted(names - there))}, which is not in the store"
            for path, names in again.items()
            if not names <= there
        ]

    def judge(self, plan: zkplan.Plan) -> list[str]:
        """Both, of a plan at rest. Raises StoreUnavailable."""
        if self._place is None:
            return []
        found, before = self.missing(plan), set(_names(plan))
        held = set().union(*_held(plan).values())
        self.plans, self.references = self.plans + 1, self.references + len(held)
        self.checked += not before <= held
        plan.check()
        # A late attempt may have written more since; that is deleted with the plan.
        left = sorted(before & set(_names(plan)) - held)
        if plan.status().dead:
            # It may be retried, and a late attempt may add tasks then: a check leaves their blobs.
            left = [name for name in left if key_of(name) != ADDED]
        if left:
            found.append(f"S10 after a check of {plan.path} nothing refers to {left[:5]}")
        return found

    def left(
        self, client: zkplan.Client, removed: dict[str, Removed], history: RunHistory
    ) -> Iterator[str]:
        """The folders of plans that are removed; asked once all workers have ended.

        Excused are: what an attempt wrote when the plan was being removed, or later; a folder that
        could not be deleted, as a fault had hit the store.
        """
        if self._place is None:
            return
        wall = time.time() - time.monotonic()
        standing = {self._place.folder_of(plan).name for plan in client.plans()}
        for folder in sorted(self._place.folder.glob("plan-*")):
            path = f"{client.root}/{'-'.join(folder.name.split('-')[:2])}"
            removal = removed.get(path)
            if folder.name in standing:
                continue
            if removal is None:
                yield f"S10 {folder.name} is in the store, and its plan is not known"
            elif not history.store_fails(removal.begun, removal.at):
                since = removal.begun + wall
                old = [each.name for each in folder.iterdir() if _written(each) < since]
                if old:
                    yield f"S10 {removal.name} was removed, and not its {old[:5]} in {folder.name}"


def told_by_workers(folder: Path) -> dict[str, Removed]:
    """By path, the plans of which a worker told in its log that it could not delete their folder.

    Workers remove what a schedule has made, and tell the history of the run nothing of it.
    """
    found: dict[str, Removed] = {}
    wall = time.time() - time.monotonic()
    for log in folder.glob("worker*.log"):
        for told in _LEFT.finditer(log.read_text(errors="replace")):
            at = datetime.fromisoformat(told["at"]).timestamp() - wall
            found[told["path"]] = Removed(told["path"], at, at)
    return found


def _names(plan: zkplan.Plan) -> list[str]:
    """Its blobs, but for the parts of its history, which S13 judges. Raises StoreUnavailable."""
    store, folder = plan.client.values.store, plan.client.values.known_folder_of(plan.path)
    names = store.names(folder) if store is not None and folder else []
    return [name for name in names if key_of(name) != HISTORY]


def _held(plan: zkplan.Plan) -> dict[str, set[str]]:
    """The paths of a plan that refer to blobs, and to which."""
    client = plan.client
    children = client.transport.ask(ReadChildren(plan.path)) or ()
    paths = [f"{plan.path}/{name}" for name in children if name.startswith("task-")]
    listed = _ask(client, [ReadChildren(task) for task in paths])
    for task, names in zip(list(paths), listed, strict=True):
        values = [name for name in names or () if name.startswith(("arg-", "result"))]
        paths += [f"{task}/{name}" for name in values]
    kept = client.transport.ask(ReadChildren(f"{plan.path}/results")) or ()
    return _references(client, [*paths, *(f"{plan.path}/results/{name}" for name in kept)])


def _references(client: zkplan.Client, paths: list[str]) -> dict[str, set[str]]:
    nodes = _ask(client, [ReadData(path) for path in paths])
    found = {
        path: set(names_in(node.data))
        for path, node in zip(paths, nodes, strict=True)
        if node is not None
    }
    return {path: names for path, names in found.items() if names}


def _ask(client: zkplan.Client, reads: list[ReadChildren] | list[ReadData]) -> list[Any]:
    answers: list[Any] = []
    for at in range(0, len(reads), _BATCH):
        answers += client.transport.ask(ReadMany(reads[at : at + _BATCH]))
    return answers


def _written(blob: Path) -> float:
    """By the wall clock; a blob that is gone meanwhile is no old one."""
    return blob.stat().st_mtime if blob.exists() else float("inf")
