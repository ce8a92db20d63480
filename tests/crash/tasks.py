"""What the workers run while their server is killed."""

from __future__ import annotations

import threading
from pathlib import Path

import zkplan
from tests.tools.support import note, wait_until


def write_down(*_: str, name: str, file: str) -> str:
    """Notes its name and which attempt this is."""
    threading.Event().wait(0.1)
    note(file, f"{name} {zkplan.current().attempt}")
    return name


def write_down_behind(*above: str, name: str, file: str, gate: str) -> str:
    """The same, once the gate is open."""
    wait_until(Path(gate).exists, "the gate opens", 100)
    return write_down(*above, name=name, file=file)
