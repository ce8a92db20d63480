"""`zkplan top` on a terminal: it fits, follows its size, outlives the server, ends by Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import zkplan
from tests.tools.support import WAIT_S, started
from zkplan.testing import EmbeddedServerProcess

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """What a program draws on a terminal that we hold the other end of."""

    def __init__(self, columns: int, lines: int) -> None:
        self.ours, self.theirs = os.openpty()
        self._drawn = ""
        self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait_for(self, text: str) -> list[str]:
        """The lines of the first whole picture from now on that has this text."""
        self._drawn, deadline = "", time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if select.select([self.ours], [], [], 0.1)[0]:
                self._drawn += os.read(self.ours, 65536).decode(errors="replace")
            # Each picture begins where the cursor is sent home; the last may not be whole.
            for each in self._drawn.split("\x1b[H")[1:-1]:
                plain = _CODES.sub("", each)
                if text in plain:
                    return [line.rstrip() for line in plain.splitlines()]
        raise AssertionError(f"never drawn: {text!r} in {self._drawn[-2000:]!r}")


@contextmanager
def top(terminal: Terminal, hosts: str) -> Iterator[int]:
    """The process that draws there; it has ended with 0 by Ctrl-C at the end of the block."""
    command = (sys.executable, "-m", "zkplan", "top", "--hosts", hosts, "--interval", "0.2")
    ends = {"stdin": terminal.theirs, "stdout": terminal.theirs, "stderr": terminal.theirs}
    without = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
    }
    with started(*command, **ends, env=without | {"TERM": "xterm"}) as process:
        yield process.pid
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0


def test_the_live_view_fits_follows_and_outlives_its_server() -> None:
    with EmbeddedServerProcess() as server, zkplan.connect(server.hosts) as client:
        for number in range(3):
            with client.create_plan(f"plan-{number}-{'long' * 20}") as plan:
                plan.add_task(int)
        terminal = Terminal(80, 24)
        with top(terminal, server.hosts) as pid:
            lines = terminal.wait_for("3 active plans")
            assert len(lines) <= 24
            assert max(map(len, lines)) <= 80
            assert any("tasks in queue default: no worker" in line for line in lines)
            terminal.resize(120, 50)
            os.kill(pid, signal.SIGWINCH)
            wide = terminal.wait_for("plan-2-")
            assert max(map(len, wide)) > 80
            server.kill()
            terminal.wait_for(f"NO ANSWER from {server.hosts}")
            server.start()
            assert not any("NO ANSWER" in line for line in terminal.wait_for("3 active plans"))
