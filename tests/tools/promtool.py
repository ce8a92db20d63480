"""Where promtool is. A test that needs it is skipped where it is missing, and fails in CI."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from .available import not_available


def promtool() -> str:
    beside = Path(sys.executable).with_name("promtool")  # `dev.py test` puts it there
    found = str(beside) if beside.exists() else shutil.which("promtool")
    if found is None:
        not_available("promtool is missing: it comes with Prometheus")
    return found
