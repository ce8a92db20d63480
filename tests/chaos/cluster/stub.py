"""Clusters for tests of the harness: without servers, with shell scripts as processes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .cluster import Cluster, Process, Role, Settings
from .link import Link

#: Shell scripts: one ignores SIGTERM, one ends by it with that code. Both log when they listen.
IGNORES_TERM = "trap '' TERM; echo it is ready; exec sleep 600"
ENDS_WITH = "trap 'exit {code}' TERM; echo it is ready; while :; do sleep 0.05; done"


class StubCluster(Cluster):
    """No servers and no processes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Settings("embedded", 1), folder)
        self.processes = []

    def fallen(self) -> list[str]:
        return []

    def mismatches(self) -> list[str]:
        return []

    def heal(self) -> None:
        """There is nothing to heal."""


class ScriptCluster(StubCluster):
    """Each process runs the shell script of its role; without one it sleeps."""

    def __init__(self, folder: Path, scripts: dict[Role, str]) -> None:
        super().__init__(folder)
        self.scripts = scripts

    def _command(self, process: Process) -> list[str]:
        script = self.scripts.get(process.role, "exec sleep 600")
        return ["sh", "-c", f"cd {shlex.quote(str(self.folder))}; {script}"]


@contextmanager
def scripted(
    folder: Path, names: Sequence[tuple[str, Role]], scripts: dict[Role, str] | None = None
) -> Iterator[ScriptCluster]:
    """A cluster of those processes, all started; they are killed at the end."""
    cluster = ScriptCluster(folder, scripts or {})
    cluster.processes = [Process(name, role, Link([])) for name, role in names]
    try:
        for process in cluster.processes:
            cluster.start(process)
        yield cluster
    finally:
        for process in cluster.processes:
            cluster.kill(process, "the end")
            process.link.close()
        cluster.journal.close()
