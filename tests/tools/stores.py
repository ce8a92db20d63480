"""Stores of tests: a folder, clients and workers that put every value there, what lies in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zkplan
from zkplan import Client, Plan

from .support import Here, wait_until, working


def environment(store: Path) -> dict[str, str]:
    """The variables with which a process puts every value into `store`."""
    return {"ZKPLAN_STORE": f"file://{store}", "ZKPLAN_INLINE_LIMIT": "0"}


class Place:
    """A folder that is a store. `options` make each value above `inline_limit` bytes lie there."""

    def __init__(self, here: Here, folder: Path, inline_limit: int = 0) -> None:
        self.here, self.folder = here, folder
        self.options: dict[str, Any] = {
            "store": f"file://{folder}",
            "inline_limit": inline_limit,
        }

    @contextmanager
    def client(self) -> Iterator[Client]:
        hosts, root = self.here
        with zkplan.connect(hosts, root, **self.options) as client:
            yield client

    def working(self, **options: Any) -> Any:
        hosts, root = self.here
        return working(hosts, root, **self.options, **options)

    def folder_of(self, plan: Plan) -> Path:
        return self.folder / str(plan.client.values.folder_of(plan.path))

    def blobs(self, plan: Plan) -> list[str]:
        folder = self.folder_of(plan)
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def keys(self, plan: Plan) -> list[str]:
        """Who wrote each blob: `add`, or the number of a task with that of the claim."""
        return [name.partition("-")[0] for name in self.blobs(plan)]

    def wait_for_keys(self, plan: Plan, *keys: str) -> None:
        """A sweep has no end that anybody is told."""
        wait_until(lambda: self.keys(plan) == sorted(keys), f"only {keys} lie in the store")

    def take_away(self) -> None:
        """As if the store were away: nothing of it can be read, and nothing written."""
        self.folder.rename(f"{self.folder}-away")
        self.folder.write_text("no folder")

    def bring_back(self) -> None:
        self.folder.unlink()
        Path(f"{self.folder}-away").rename(self.folder)


def damaged(data: bytes) -> bytes:
    """The same bytes but for one bit. A fixed last byte would be the right one now and then."""
    return data[:-1] + bytes([data[-1] ^ 1])


def key_of(task: zkplan.Task, n: int = 0) -> str:
    return f"{task.number}.{n}"
