"""An executor that zkplan is compared with, in a process of the environment that has it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ..client_process import ClientProcess
from ..shapes import Shape
from .graph import plain_graph


@dataclass(frozen=True)
class Kind:
    """`package` is what is installed, `distribution` that part whose version is told."""

    name: str
    module: str
    distribution: str
    package: str


KINDS = (
    Kind("dask", "peers.dask_peer", "distributed", "dask[distributed]"),
    Kind("ray", "peers.ray_peer", "ray", "ray"),
)


def interpreter(path: str) -> str:
    """That of the virtual environment `path`; where it is no folder, it is the interpreter."""
    found = Path(path, "bin", "python") if Path(path).is_dir() else Path(path)
    # Not resolved: a link is what tells an interpreter its environment.
    return str(found.absolute())


def version_of(kind: Kind, python: str) -> str | None:
    """The version that the interpreter has of it; None where it has none."""
    ask = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    command = [python, "-c", ask, kind.distribution]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else None


class Peer:
    """Runs shapes in its process. Where it knows several ways, it keeps to the fastest one."""

    def __init__(self, kind: Kind, python: str, processes: int, threads: int) -> None:
        self._process = ClientProcess(kind.module, str(processes), str(threads), python=python)
        #: By the name of a shape.
        self._fastest: dict[str, str] = {}

    def __enter__(self) -> Peer:
        self._ways: list[str] = self._process.result()["ways"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.__exit__(kind, error, trace)

    def way(self, shape: Shape) -> str:
        """The way that was the fastest for this shape, in the better one of two runs each."""
        if shape.name not in self._fastest:
            took = {way: min(self._run(shape, way) for _ in range(2)) for way in self._ways}
            self._fastest[shape.name] = min(took, key=lambda way: took[way])
        return self._fastest[shape.name]

    def time_values(self, shape: Shape) -> float:
        """Seconds from the first call until it has the values of all leaves.

        Raises WrongResult, and RuntimeError where the process ended.
        """
        return self._run(shape, self.way(shape))

    def _run(self, shape: Shape, way: str) -> float:
        self._process.begin(json.dumps({"way": way, **plain_graph(shape)}))
        answer = self._process.result()
        shape.check_values(answer["values"])
        seconds: float = answer["seconds"]
        return seconds
