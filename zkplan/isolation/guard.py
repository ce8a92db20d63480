"""The guard of one slot: it forks the child that runs tasks, watches it, and ends what it starts.

It runs no code of users and has no threads, so it can fork at any time, within milliseconds. When
the worker is gone, the kernel closes its socket, and the guard ends with everything below it.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from .below import (
    END_S,
    become_reaper,
    die_with_parent,
    end_all,
    memory_of,
    processes_below,
    reap,
    signal_each,
    signal_group,
    stop_below,
    threads_of_machine,
)
from .child import serve
from .wire import Garbled, pair, receive

#: What many tasks use of zkplan: each child has it from the start.
TASKS_USE = ("zkplan.client", "zkplan.shell_commands.command")
#: Seconds between two looks at the memory of the child, and the most of the time that looks at all
#: processes of the machine may take, and those for which a task is stopped again and again.
WATCH_S, SCAN_SHARE = 0.05, 0.05
#: Seconds that one look at the memory of running processes may take.
PATIENCE_S = 0.5
#: The guard runs before tasks, where the system lets it: a thousand processes may want to run.
_NICER = -10


class Guard:
    """See the module. `control` leads to the worker."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._wake, wakes = os.pipe()
        for end in (self._wake, wakes):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._child = self._serial = 0
        #: The most bytes of memory of the running task; 0 while none runs.
        self._limit = 0
        #: The most processes that it may have.
        self._count_max = 0
        #: When all processes are looked for again, and when they are judged again.
        self._scan_at = self._judge_at = 0.0
        #: How many threads the machine had when they were last looked at closely.
        self._threads = 0
        self._below: list[int] = []
        self._niceness = os.nice(0)
        with suppress(PermissionError):
            os.nice(_NICER)

    def run(self) -> None:
        """Returns when the worker is gone, and nothing is left below this process."""
        self._renew({})
        while True:
            sources: list[socket.socket | int] = [self._control, self._wake]
            ready = select.select(sources, [], [], WATCH_S if self._limit else None)[0]
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._note_end()
            if self._control in ready and not self._obey():
                end_all(self._child)
                return
            if self._limit:
                self._watch()

    def _obey(self) -> bool:
        """Do what the worker says. Returns False if it is gone."""
        try:
            order = receive(self._control)
        except (EOFError, OSError, Garbled):
            return False
        # An order for a child that has ended meanwhile is too late.
        if order.head.get("child") == self._serial:
            if order.kind == "renew":
                self._end_child("")
            else:
                self._limit = int(order.head.get("limit", 0))
                self._count_max = int(order.head.get("processes", 0))
                self._scan_at = self._judge_at = 0.0
                self._threads = threads_of_machine()
        return True

    def _note_end(self) -> None:
        codes: dict[int, int] = {}
        reap(codes)
        if self._child in codes:
            # What it has left behind goes with it.
            end_all(self._child)
            self._renew({"code": codes[self._child]})

    def _watch(self) -> None:
        now = time.monotonic()
        if threads_of_machine() > self._threads + self._count_max // 2:
            self._watch_stopped()
        elif now >= self._judge_at:
            if now >= self._scan_at:
                self._below = [*processes_below(os.getpid())]
                self._scan_at = now + max(WATCH_S, (time.monotonic() - now) / SCAN_SHARE)
            try:
                self._judge(PATIENCE_S)
            except TimeoutError:
                began = time.monotonic()
                self._watch_stopped()
                self._judge_at = began + (time.monotonic() - began) / SCAN_SHARE

    def _watch_stopped(self) -> None:
        """Stop all for one look: many that fork leave the guard so little of the processors that it
        could not count them, and the kernel does not tell the memory of one while it forks."""
        signal_group(self._child, signal.SIGSTOP)
        self._below = stop_below(time.monotonic() + END_S)
        if not self._judge(math.inf):
            signal_each(self._below, signal.SIGCONT)
            self._threads = threads_of_machine()  # others have started them

    def _judge(self, patience_s: float) -> bool:
        """End the child if it has more than it may, and return whether it had.

        Raises TimeoutError if its memory cannot be told in so many seconds.
        """
        if len(self._below) > self._count_max:
            self._end_child("processes", len(self._below))
            return True
        used = memory_of(self._below, self._limit, patience_s)
        if used > self._limit:
            self._end_child("memory", used)
            return True
        return False

    def _end_child(self, why: str, number: int = 0) -> None:
        codes = end_all(self._child)
        code = codes.get(self._child, -signal.SIGKILL)
        self._renew({"code": code, "why": why, "number": number, "limit": self._limit})

    def _renew(self, ended: dict[str, Any]) -> None:
        """Fork a child. Tell the worker of it, and how the one before it ended."""
        self._limit = 0
        self._serial += 1
        ours, theirs = pair()
        reads, writes = os.pipe()
        guard = os.getpid()
        self._child = os.fork()
        if not self._child:
            die_with_parent(guard)
            become_reaper()
            os.setpriority(os.PRIO_PROCESS, 0, self._niceness)
            self._control.close()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            ours.close()
            os.close(reads)
            serve(theirs, writes)
        told = {"kind": "child", "sizes": [], "head": {"child": self._serial, "ended": ended}}
        try:
            line = json.dumps(told).encode() + b"\n"
            socket.send_fds(self._control, [line], [ours.fileno(), reads])
        except OSError:
            pass  # the worker is gone, which the next read tells
        ours.close()
        theirs.close()
        os.close(reads)
        os.close(writes)


def main() -> None:
    """Serve the worker at the other end of the socket whose descriptor is the last argument."""
    control = socket.socket(fileno=int(sys.argv[-1]))
    control.set_inheritable(False)
    # A child would write the memory of its task to the disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    become_reaper()
    for module in TASKS_USE:
        importlib.import_module(module)
    gc.freeze()
    guard = Guard(control)
    guard.run()
