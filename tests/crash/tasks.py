"""What the workers run while their server is killed."""

from __future__ import annotations

import threading

import zkplan
from tests.integ.support import note


def write_down(*_: str, name: str, file: str) -> str:
    """Notes its name and which attempt this is."""
    threading.Event().wait(0.1)
    note(file, f"{name} {zkplan.current().attempt}")
    return name
