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
    """An executor. `package` is the name to install, `distribution` has the version to report."""

    name: str
    module: str
    distribution: str
    package: str


KINDS = (
    Kind("dask", "peers.dask_peer", "distributed", "dask[distributed]"),
    Kind("ray", "peers.ray_peer", "ray", "ray"),
)


def interpreter(path: str) -> str:
    """The interpreter of the virtual environment `path`, or the interpreter `path` itself."""
    found = Path(path, "bin", "python") if Path(path).is_dir() else Path(path)
    # Do not resolve links, because an interpreter finds its environment by the link.
    return str(found.absolute())


def version_of(kind: Kind, python: str) -> str | None:
    """The version of the executor that the interpreter `python` has, or None."""
    ask = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    command = [python, "-c", ask, kind.distribution]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else None


class Peer:
    """Runs shapes in a process of its own, each in the fastest of the ways that it knows."""

    def __init__(self, kind: Kind, python: str, processes: int, threads: int) -> None:
        self._process = ClientProcess(kind.module, str(processes), str(threads), python=python)
        #: The fastest way, by the name of the shape.
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
        """The fastest way for this shape, by the better of two runs in each way."""
        if shape.name not in self._fastest:
            took = {way: min(self._run(shape, way) for _ in range(2)) for way in self._ways}
            self._fastest[shape.name] = min(took, key=lambda way: took[way])
        return self._fastest[shape.name]

    def time_values(self, shape: Shape) -> float:
        """Seconds from the first call until the author has the values of all leaves.

        Raises WrongResult, and RuntimeError if the process has ended.
        """
        return self._run(shape, self.way(shape))

    def _run(self, shape: Shape, way: str) -> float:
        self._process.begin(json.dumps({"way": way, **plain_graph(shape)}))
        answer = self._process.result()
        shape.check_values(answer["values"])
        seconds: float = answer["seconds"]
        return seconds
