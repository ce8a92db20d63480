"""The examples of docs/start/integrations.md: each prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.support import TOP

PAGE = (TOP / "docs" / "start" / "integrations.md").read_text(encoding="utf-8")
SHOWN = re.findall(
    r"^## (\w+)\n.*?```python\n(.*?)```\n\nIt prints:\n\n```text\n(.*?)```",
    PAGE,
    re.DOTALL | re.MULTILINE,
)


@pytest.mark.parametrize(("title", "code", "output"), SHOWN, ids=[title for title, *_ in SHOWN])
@pytest.mark.slow
def test_an_example_prints_what_the_page_says(
    title: str, code: str, output: str, tmp_path: Path
) -> None:
    if title != "Executor":
        package = title.lower()
        pytest.importorskip(package, reason=f"{title} is not installed: zkplan[{package}]")
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    example = subprocess.run(
        [sys.executable, str(tmp_path / "example.py")],
        env={**os.environ, "PYTHONPATH": str(TOP)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (example.stdout, example.stderr, example.returncode) == (output, "", 0)


def test_the_page_has_an_example_in_each_chapter() -> None:
    assert len(SHOWN) == PAGE.count("\n## ") == 3
