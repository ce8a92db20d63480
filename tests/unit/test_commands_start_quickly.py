"""Commands start quickly: they import only what they need, without garbage collection."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

_SEEN = """
import gc, json, sys
import zkplan
before = gc.get_freeze_count()
from zkplan.cli import cli
looks = []
gc.callbacks.append(lambda phase, info: looks.append(phase))
gc.set_threshold(10)
def stayed():
    looks.clear()
    cli.get_command(None, "{name}")
    return len(looks), gc.get_freeze_count()
first, second = stayed(), stayed()
print(json.dumps(dict(before=before, first=first, second=second, on=gc.isenabled(),
    modules=list(sys.modules))))
"""


def seen(name: str) -> Any:
    """What a new process sees when it gets that command twice."""
    command = [sys.executable, "-c", _SEEN.replace("{name}", name)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


@pytest.mark.parametrize("name", ["plan", "task", "top"])
def test_read_only_commands_import_no_module_that_runs_or_moves_tasks(name: str) -> None:
    modules = set(seen(name)["modules"])
    assert "zkplan.client" in modules
    assert modules.isdisjoint({"asyncio", "pdb", "tomllib", "tomli", "rich"})
    assert modules.isdisjoint({"zkplan.author.export", "zkplan.runtime", "zkplan.worker"})


def test_imports_of_a_command_are_not_scanned_by_the_garbage_collector() -> None:
    found = seen("worker")
    assert found["before"] == 0  # whoever imports zkplan keeps their collector as it is
    (looks, stays), (_, stays_again) = found["first"], found["second"]
    assert looks == 0
    assert stays > 10_000
    assert stays_again == stays
    assert found["on"]
