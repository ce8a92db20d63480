"""`zkplan demo --page` and `zkplan.local(page=True)`: the address they print opens in a browser."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from selenium.webdriver import Chrome

import zkplan
from tests.tools.browser import chromium, resize
from tests.tools.support import WAIT_S, started, wait_until

pytestmark = [pytest.mark.either, pytest.mark.timeout(300)]

SCRIPT = """
import sys
import zkplan

with zkplan.local(workers=1, page=True) as client:
    with client.create_plan("made in a script") as plan:
        plan.add_task(int, ["7"], keep=True)
    print(plan.results(timeout=30), flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        resize(opened, 1280, 900, "light")
        yield opened


def address_in(lines: IO[str] | None) -> str:
    """The address that stands in one of these lines; those after it are left."""
    assert lines is not None
    for line in lines:
        if found := re.search(r"http://127\.0\.0\.1:\d+/#token=\S+", line):
            return found[0]
    raise AssertionError("it ended, and printed no address")


def sees(browser: Chrome, *texts: str) -> None:
    def text() -> str:
        return str(browser.execute_script("return document.body.innerText"))

    wait_until(lambda: all(each in text() for each in texts), f"the page to show {texts}")


def titles(browser: Chrome) -> set[str]:
    """Of the boxes of the graph, once it is drawn."""
    script = "return [...document.querySelectorAll('.graph .node > text:not(.count)')]"
    found: set[str] = wait_until(
        lambda: set(browser.execute_script(f"{script}.map(each => each.textContent)")),
        "boxes in the graph",
    )
    return found


def is_served(address: str) -> bool:
    (port,) = re.findall(r":(\d+)/", address)
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


@contextmanager
def at_a_terminal(*command: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, with a terminal as its input, and the end of it that types."""
    typing, terminal = pty.openpty()
    try:
        with started(*command, stdin=terminal) as process:
            os.close(terminal)
            yield process, typing
    finally:
        os.close(typing)


@pytest.mark.slow
def test_the_demonstration_waits_until_its_page_is_open(browser: Chrome) -> None:
    command = (sys.executable, "-m", "zkplan", "demo", "--page", "--no-kill", "--workers", "1")
    with at_a_terminal(*command) as (process, typing):
        address = address_in(process.stdout)
        browser.get(address)
        sees(browser, "standard-library", "being defined", "may read, operate, author, work")
        assert "token" not in browser.current_url
        browser.execute_script("document.querySelector('td.name a').click()")
        sees(browser, "Graph", "tasks in ")
        assert {"parse", "merge"} <= titles(browser)
        os.write(typing, b"\n")
        sees(browser, "100 %", "done")
        os.write(typing, b"\n")
        assert process.wait(WAIT_S) == 0
    assert not is_served(address)


def test_a_local_block_prints_the_address_of_its_page(browser: Chrome, tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    with started(sys.executable, str(file), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        address = address_in(process.stderr)
        browser.get(address)
        sees(browser, "made in a script", "100 %", "done")
        browser.execute_script("document.querySelector('td.name a').click()")
        sees(browser, "claimed, not started", "s later")  # the time line: no graph is left
        browser.execute_script("document.querySelector('nav.tabs a').click()")
        sees(browser, "Every task has finished.", "Look at the results")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(WAIT_S) == 0
        assert not is_served(address)


def test_the_page_of_a_killed_script_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    with started(sys.executable, str(file), stdin=subprocess.PIPE) as process:
        address = address_in(process.stderr)
        assert is_served(address)
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)
    wait_until(lambda: not is_served(address), "the page to end with its script")


def test_without_output_the_address_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    here = zkplan.local(workers=0, page=True, output=False)
    here.start()
    try:
        assert is_served(here.page)
    finally:
        here.close()
    assert "http" not in "".join(capfd.readouterr())
