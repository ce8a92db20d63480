"""The guard of one slot: forks the child that runs tasks, watches its memory and processes, and
ends all of them.

The guard runs no user code and has no threads, so it can fork at any time, within milliseconds.
When the worker dies, the kernel closes the worker's socket, and the guard ends with all processes
below it.
"""

from __future__ import annotations

import ctypes
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
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from .isolation import Garbled, pair, receive
from .isolation_child import serve

#: Modules that many tasks use: the guard imports them, so that each child has them from the start.
TASKS_USE = ("zkplan.client", "zkplan.runtime.shell")
#: Seconds between two looks at the memory of the child, and the largest share of the time for looks
#: at all processes of the machine, and for looks that stop the task.
WATCH_S, SCAN_SHARE = 0.05, 0.05
#: Seconds that one look at the memory of running processes may take.
PATIENCE_S = 0.5
#: The guard's change of niceness, where the system permits it: it must run before a thousand
#: processes of a task.
_NICER = -10


class Guard:
    """See the module. `control` is the socket to the worker."""

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
        #: The most processes of the running task.
        self._count_max = 0
        #: When to scan all processes again, and when to judge them again.
        self._scan_at = self._judge_at = 0.0
        #: How many threads the machine had at the last close look at the task's processes.
        self._threads = 0
        self._below: list[int] = []
        self._niceness = os.nice(0)
        with suppress(PermissionError):
            os.nice(_NICER)

    def run(self) -> None:
        """Serve until the worker has died. Leaves no process below this one."""
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
        """Carry out one order of the worker. Returns False if the worker has died."""
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
            # Also end the processes that the child has left.
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
        """Stop all processes of the task for one look. If many processes fork, they leave the guard
        too little processor time to count them, and the kernel does not report the memory of a
        process while it forks."""
        signal_group(self._child, signal.SIGSTOP)
        self._below = stop_below(time.monotonic() + END_S)
        if not self._judge(math.inf):
            signal_each(self._below, signal.SIGCONT)
            self._threads = threads_of_machine()  # the new threads were not the task's

    def _judge(self, patience_s: float) -> bool:
        """End the child if it exceeds a limit. Returns whether it did.

        Raises TimeoutError if its memory cannot be read within `patience_s` seconds.
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
        """Fork a child. Send the worker its socket and output, and how the previous child ended."""
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
            pass  # the worker has died, as the next read will show
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


# ---- The processes below this one: find them, measure their memory, and end them.
#
# This process is their reaper (PR_SET_CHILD_SUBREAPER): a process whose parent ends becomes its
# child. So no process can leave, whatever sessions and groups it makes.


_PDEATHSIG, _SUBREAPER = 1, 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Seconds within which all processes must stop, and must end: a process may hang in the kernel.
END_S = 30.0
#: Seconds between two tries to reap killed processes, and between two rounds of stops and kills.
_TICK_S, _AGAIN_S = 0.002, 0.1


def become_reaper() -> None:
    """Become the parent of all processes below this one whose own parents end."""
    _prctl(_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that forked it ends."""
    _prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # the parent has ended already


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def processes_below(top: int) -> Iterator[int]:
    """All processes below `top`, each as soon as it is found, without ended ones that are not
    reaped yet."""
    known, children = {top}, defaultdict[int, list[tuple[int, bool]]](list)
    for pid, parent, has_ended in _processes():
        children[parent].append((pid, has_ended))
        new = [(pid, has_ended)] if parent in known else []
        while new:
            pid, has_ended = new.pop()
            known.add(pid)
            new += children[pid]
            if not has_ended:
                yield pid


def _processes() -> Iterator[tuple[int, int, bool]]:
    """Each process of this machine: its ID, its parent's ID, and whether it has ended."""
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # it has ended meanwhile
        yield int(name), int(parent), state in (b"Z", b"X")


def memory_of(pids: Iterable[int], enough: int, patience_s: float = math.inf) -> int:
    """The bytes of memory that these processes use.

    First counts shared pages once for each process. Only if the sum exceeds `enough`, counts
    exactly, which costs more: the kernel makes the reader wait for a process that forks. Raises
    TimeoutError if this takes more than `patience_s` seconds.
    """
    pids = [*pids]
    used = sum(_resident(pid) for pid in pids)
    if used <= enough or len(pids) < 2:
        return used
    used, deadline = 0, time.monotonic() + patience_s
    for pid in pids:
        used += _share(pid)
        if time.monotonic() > deadline:
            raise TimeoutError("they fork too often")
    return used


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0  # it has ended


def _share(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return _resident(pid)


def threads_of_machine() -> int:
    """The number of threads on this machine, by one read, however many there are."""
    with open("/proc/loadavg", "rb") as file:
        return int(file.read().split()[3].partition(b"/")[2])


def signal_group(group: int, number: signal.Signals) -> None:
    """Signal all processes of a group in one call, even a thousand that hold all processors."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # they have ended, or changed their user


def stop_below(deadline: float) -> list[int]:
    """Stop all processes below this one, and return them.

    Works in rounds until a round finds no new process, or until `deadline`: stopped processes do
    not fork. Stops each process as soon as it is found: it may take seconds to find the next, while
    others hold the processors.
    """
    stopped: set[int] = set()
    while time.monotonic() < deadline:
        count = len(stopped)
        for pid in processes_below(os.getpid()):
            if pid not in stopped:
                signal_each([pid], signal.SIGSTOP)
                stopped.add(pid)
        if len(stopped) == count:
            break
    return [*stopped]


def end_all(group: int) -> dict[int, int]:
    """Kill all processes below this one, and reap them. Returns the exit codes of its children.

    Stops them first, and `group` in one call: otherwise some could fork faster than they are
    killed. Raises TimeoutError if a process does not end.
    """
    signal_group(group, signal.SIGSTOP)
    deadline = time.monotonic() + END_S
    codes: dict[int, int] = {}
    while time.monotonic() < deadline:
        signal_each(stop_below(deadline), signal.SIGKILL)
        again = time.monotonic() + _AGAIN_S
        while time.monotonic() < again:
            if reap(codes):
                return codes
            time.sleep(_TICK_S)
    raise TimeoutError("a process of the task cannot be killed")


def reap(codes: dict[int, int]) -> bool:
    """Reap children that have ended into `codes`. Returns whether no child is left."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return False
            codes[pid] = os.waitstatus_to_exitcode(status)
    except ChildProcessError:
        return True


def signal_each(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # it has ended, or changed its user
