"""The metrics of several worker processes as one: each has a socket in a folder of the supervisor.

So one address serves all processes of a command, whichever live at the moment.
"""

from __future__ import annotations

import http.client
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .families import gauges
from .prometheus import Metric, text_string_to_metric_families

#: Seconds that a process may take for its part of a scrape, and for the look at its health.
WITHIN_S = 7.0
#: A socket's path has at most some 100 bytes; a folder for temporary files may be longer.
_FOLDER_MAX = 60


def make_folder() -> Path:
    """A folder for sockets, which no other user can enter."""
    made = tempfile.mkdtemp(prefix="zkplan-")
    if len(made) > _FOLDER_MAX:
        shutil.rmtree(made)
        made = tempfile.mkdtemp(prefix="zkplan-", dir="/tmp")
    return Path(made)


class Merged:
    """Collects what the processes serve at the sockets in `folder`, for a registry.

    `pids` are those of the processes that run now: a socket that another one has left is deleted.
    A process that does not answer is missing in this scrape, and is counted as silent.
    """

    def __init__(self, folder: Path, pids: Callable[[], Iterable[int]]) -> None:
        self._folder, self._pids = folder, pids

    def collect(self) -> Iterator[Metric]:
        """The families of all processes, each once."""
        merged: dict[str, Metric] = {}
        answers = self._ask("/metrics")
        for _, text in answers:
            families = list(text_string_to_metric_families(text or ""))
            worker = _worker_of(families)
            for family in families:
                found = merged.setdefault(family.name, family)
                samples = [
                    sample._replace(labels={"worker": worker, **sample.labels})
                    for sample in family.samples
                ]
                found.samples = samples if found is family else [*found.samples, *samples]
        silent = sum(text is None for _, text in answers)
        yield gauges(
            "zkplan_supervisor_processes",
            "Worker processes of this command: those that answer the scrape, and silent ones.",
            ["state"],
            {"answering": len(answers) - silent, "silent": silent},
        )
        yield from merged.values()

    def describe(self) -> list[Metric]:
        """None: so a registry asks for nothing until the first scrape."""
        return []

    def alive(self) -> str:
        """What is wrong at /healthz of any process; empty if nothing is."""
        return self._wrong("/healthz")

    def ready(self) -> str:
        """What is wrong at /readyz of any process; empty if nothing is."""
        return self._wrong("/readyz")

    def _wrong(self, path: str) -> str:
        answers = self._ask(path)
        found = [f"process {pid}: {text or 'it does not answer'}" for pid, text in answers]
        wrong = [each.strip() for each in found if not each.endswith(": ok\n")]
        return "; ".join(wrong) if answers else "there is no worker process"

    def _ask(self, path: str) -> list[tuple[int, str | None]]:
        """What each process answers, all asked at once; None where one does not."""
        pids = sorted(self._pids())
        for left in self._folder.glob("*.sock"):
            if left.stem not in map(str, pids):
                left.unlink(missing_ok=True)
        if not pids:
            return []
        with ThreadPoolExecutor(min(32, len(pids))) as pool:
            sockets = [self._folder / f"{pid}.sock" for pid in pids]
            return list(zip(pids, pool.map(lambda each: _get(each, path), sockets), strict=True))


def _worker_of(families: Iterable[Metric]) -> str:
    for family in families:
        for sample in family.samples:
            if "worker" in sample.labels:
                return sample.labels["worker"]
    return ""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=WITHIN_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _get(place: Path, path: str) -> str | None:
    connection = _UnixConnection(place)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return None  # it is starting or ending, or hangs
    finally:
        connection.close()
