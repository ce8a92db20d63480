"""Runs modules of the page in node: those that need no browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

MODULES = Path(__file__).parents[2] / "zkplan/service/page/assets/js"


def in_node(script: str, given: Any) -> Any:
    """What the script prints as JSON; it reads `given` from its standard input."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing: apt-get install nodejs")
    ran = subprocess.run(
        [node, "--input-type=module", "--eval", script],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
