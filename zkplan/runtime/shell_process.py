"""Run one command as a group of processes: bound its output, and end the whole group with it."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple

#: Seconds between SIGTERM and SIGKILL, and seconds to wait for the end after SIGKILL.
GRACE_S, KILL_S = 5.0, 5.0
#: Seconds between two looks at whether the result is still wanted.
TICK_S = 0.2
_GONE_TICK_S = 0.02
_READ_BYTES = 64 * 1024
#: The most reads of the pipes after the command has ended: more than the pipes can hold.
_LAST_READS = 32
#: A shell that ends the group if the worker dies, however it dies: then the kernel closes the pipe
#: that the shell reads. The shell is not in the group, and ignores signals that end a worker.
_WATCHER = (
    'trap "" HUP INT TERM; read line; kill -s TERM -- "-$1"; sleep "$2"; kill -s KILL -- "-$1"'
)


#: A command begins once it has read a line, which the worker writes after the watcher has started.
#: If the worker dies earlier, the line never comes. From a pipe, `read` takes only that line.
_BEGIN = "read zkplan_begin || exit 125; "
#: The line, and the program that runs a command given as a list.
_LINE, _EXEC = b"\n", 'exec "$@"'


class Tail:
    """The last bytes of an output, and how many there were."""

    def __init__(self, limit: int) -> None:
        self._limit, self._kept, self.total = limit, bytearray(), 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._kept += data
        if len(self._kept) > 2 * self._limit + _READ_BYTES:
            del self._kept[: -self._limit]

    @property
    def cut(self) -> int:
        """How many bytes were dropped before the ones that are kept."""
        return max(0, self.total - self._limit)

    def text(self) -> str:
        """The text without trailing newlines; the first line says how many bytes were cut."""
        kept = self._kept[-self._limit :] if self.cut else self._kept
        text = kept.decode(errors="replace").rstrip("\n")
        return f"[zkplan: {self.cut} bytes cut here]\n{text}" if self.cut else text


class Exit(NamedTuple):
    """How a command has ended: `code` is below 0 for a signal, as in `subprocess`."""

    code: int
    stdout: Tail
    stderr: Tail


class Group:
    """A command that runs in a process group and session of its own."""

    def __init__(
        self,
        command: str | Sequence[str],
        cwd: str | None,
        environment: Mapping[str, str],
        given: bytes,
    ) -> None:
        """Start `command`, a program for the shell (a string) or a list of arguments. The command
        gets `given` on stdin. Raises OSError if the command cannot be started."""
        program, arguments = (command, []) if isinstance(command, str) else (_EXEC, command)
        self._given = memoryview(_LINE + given)
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _BEGIN + program, "sh", *arguments],
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        try:
            self._watcher = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHER, "sh", str(self._process.pid), f"{GRACE_S:g}"],
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        except BaseException:
            self._end_members()
            raise

    def run(
        self, limits: tuple[int, int], on_stderr: Callable[[bytes], None], check: Callable[[], Any]
    ) -> Exit:
        """Exchange data until the command ends, and call `check` meanwhile, which may raise. Ends
        the whole group in any case. `limits` are how many bytes of stdout and stderr to keep."""
        stdout, stderr = Tail(limits[0]), Tail(limits[1])

        def add_stderr(data: bytes) -> None:
            stderr.add(data)
            on_stderr(data)

        process = self._process
        try:
            with selectors.DefaultSelector() as selector:
                for pipe, add in ((process.stdout, stdout.add), (process.stderr, add_stderr)):
                    if pipe is not None:
                        os.set_blocking(pipe.fileno(), False)
                        selector.register(pipe, selectors.EVENT_READ, add)
                if process.stdin is not None:
                    os.set_blocking(process.stdin.fileno(), False)
                    selector.register(process.stdin, selectors.EVENT_WRITE)
                self._exchange(selector, check)
        finally:
            self._end()
        return Exit(process.returncode, stdout, stderr)

    def _exchange(self, selector: selectors.BaseSelector, check: Callable[[], Any]) -> None:
        ends = _open_pidfd(self._process.pid)
        if ends is not None:
            selector.register(ends, selectors.EVENT_READ)
        try:
            while not self._has_ended():
                check()
                for key, _ in selector.select(TICK_S):
                    if key.fileobj != ends:
                        self._move(selector, key)
            # Read the rest, but not until end of file: other processes of the group may still
            # hold the pipes.
            for _ in range(_LAST_READS):
                ready = [key for key, _ in selector.select(0) if key.data is not None]
                for key in ready:
                    self._move(selector, key)
                if not ready:
                    break
        finally:
            if ends is not None:
                os.close(ends)

    def _move(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        pipe: IO[bytes] = key.fileobj  # type: ignore[assignment]
        try:
            if key.data is None:
                self._given = self._given[os.write(pipe.fileno(), self._given[:_READ_BYTES]) :]
                is_over = not self._given
            else:
                data = os.read(pipe.fileno(), _READ_BYTES)
                is_over = not data
                if data:
                    key.data(data)
        except BlockingIOError:
            return
        except BrokenPipeError:
            is_over = True  # the command has closed its stdin, as it may
        if is_over:
            selector.unregister(pipe)
            pipe.close()

    def _has_ended(self) -> bool:
        # Look without reaping, where the system can: until the rest of the group was signalled, no
        # other process may get the number of the process, which is also that of the group.
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def _end(self) -> None:
        """End the rest of the group by SIGTERM, and by SIGKILL after a grace."""
        try:
            self._end_members()
        finally:
            # Only now: until here the watcher would have ended the group if the worker had died.
            self._watcher.kill()
            self._watcher.wait()
            if self._watcher.stdin is not None:
                self._watcher.stdin.close()

    def _end_members(self) -> None:
        process = self._process
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, KILL_S)):
            if not self._signal(number) or self._is_gone_within(patience_s):
                break
        # Only a process that changed its user, or that hangs in the kernel, can still be running.
        process.poll()

    def _is_gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            self._process.poll()
            if not self._signal(0) or not _has_living(self._process.pid):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_GONE_TICK_S)

    def _signal(self, number: int) -> bool:
        """Signal the group. Returns False if no process of the group can be signalled any more."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def _has_living(group: int) -> bool:
    """Whether a process of the group still runs. In a container without an init, no process reaps
    orphans, so ended processes stay in the group for ever."""
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return True  # unknown: this is not Linux
    for number in numbers:
        try:
            with open(f"/proc/{number}/stat", "rb") as file:
                state, _, its_group = file.read().rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # the process has ended meanwhile
        if int(its_group) == group and state not in (b"Z", b"X"):
            return True
    return False


def _open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None if the system has no pidfd."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
