"""The processes below this one: which they are, what memory they use, and how to end all of them.

This process is their reaper (PR_SET_CHILD_SUBREAPER): one whose parent ends becomes its child, so
none can leave, whatever sessions and groups it makes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable

_PDEATHSIG, _SUBREAPER = 1, 36
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Seconds for which the end of killed processes is waited for: one may hang in the kernel.
END_S = 10.0
_TICK_S = 0.002


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


def processes_below(top: int) -> list[int]:
    """All processes below `top`. Those that have ended and were not reaped do not count."""
    children: dict[int, list[int]] = {}
    ended = set()
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # it is gone meanwhile
        children.setdefault(int(parent), []).append(int(name))
        if state in (b"Z", b"X"):
            ended.add(int(name))
    found, new = [], [top]
    while new:
        new = [pid for each in new for pid in children.get(each, ())]
        found += new
    return [pid for pid in found if pid not in ended]


def memory_of(pids: Iterable[int], enough: int) -> int:
    """The bytes of memory that these processes use.

    Pages that several of them share are first counted for each; only if that comes to more than
    `enough`, exactly, which costs more.
    """
    pids = [*pids]
    used = sum(_resident(pid) for pid in pids)
    return used if used <= enough or len(pids) < 2 else sum(_share(pid) for pid in pids)


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


def end_all(group: int) -> dict[int, int]:
    """Kill all processes below this one, and reap them. Returns the exit codes of its children.

    They are stopped first, `group` at once, until no new one is found: else some could fork faster
    than they are killed. Raises TimeoutError if one does not end.
    """
    signal_group(group, signal.SIGSTOP)
    deadline = time.monotonic() + END_S
    codes: dict[int, int] = {}
    while True:
        stopped: set[int] = set()
        while new := set(processes_below(os.getpid())) - stopped:
            _signal(new, signal.SIGSTOP)
            stopped |= new
        _signal(stopped, signal.SIGKILL)
        if reap(codes):
            return codes
        if time.monotonic() > deadline:
            raise TimeoutError("a process of the task cannot be killed")
        time.sleep(_TICK_S)


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


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # it has ended, or changed its user
