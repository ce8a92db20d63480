"""The task of `test_limits.py`, in a module that workers can import: it notes when it runs."""

from __future__ import annotations

import os
import threading
import time

import zkplan
from tests.tools.support import note

TASK_S = 1.0


def work(file: str, number: int) -> None:
    who = f"{number} {zkplan.current().attempt} {os.getpid()}"
    note(file, f"begin {who} {time.time()}")
    threading.Event().wait(TASK_S * (0.5 + number % 11 / 10))
    note(file, f"end {who} {time.time()}")
