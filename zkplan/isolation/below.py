"""The processes below this one: which they are, what memory they use, and how to end all of them.

This process is their reaper (PR_SET_CHILD_SUBREAPER): one whose parent ends becomes its child, so
none can leave, whatever sessions and groups it makes.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator

_PDEATHSIG, _SUBREAPER = 1, 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Seconds in which all processes are stopped, and in which they end: one may hang in the kernel.
END_S = 30.0
#: Seconds between two looks at whether killed processes have ended, and whether any is left.
_TICK_S, _AGAIN_S = 0.002, 0.1


def become_reaper() -> None:
    """Become the parent of all processes below this one whose own parents end."""
    _prctl(_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that forked it ends."""
    _prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it ended before


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def processes_below(top: int) -> Iterator[int]:
    """All processes below `top`, each as soon as it is found. Those that have ended and were not
    reaped do not count."""
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
    """Each process of this machine: its number, that of its parent, and whether it has ended."""
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # it is gone meanwhile
        yield int(name), int(parent), state in (b"Z", b"X")


def memory_of(pids: Iterable[int], enough: int, patience_s: float = math.inf) -> int:
    """The bytes of memory that these processes use.

    Pages that several of them share are first counted for each; only if that comes to more than
    `enough`, exactly, which costs more: each is waited for while it forks. Raises TimeoutError if
    that takes more than `patience_s` seconds.
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
    """How many threads all processes have: one read, however many there are."""
    with open("/proc/loadavg", "rb") as file:
        return int(file.read().split()[3].partition(b"/")[2])


def signal_group(group: int, number: signal.Signals) -> None:
    """One call for all processes of a group, also for a thousand that hold all processors."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # they have ended, or changed their user


def stop_below(deadline: float) -> list[int]:
    """Stop all processes below this one, and return them.

    In rounds, until no new one is found or `deadline` is over: a stopped process does not fork.
    Each is stopped as soon as it is found, since the others may hold the processors for seconds
    before the next is.
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

    They are stopped before, `group` at once: else some could fork faster than they are killed.
    Raises TimeoutError if one does not end.
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
