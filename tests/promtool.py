"""Where Prometheus' own promtool is; a test that needs it is skipped where it is missing."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest


def promtool() -> str:
    beside = Path(sys.executable).with_name("promtool")  # `dev.py test` puts it there
    found = str(beside) if beside.exists() else shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is missing: it comes with Prometheus")
    return found
