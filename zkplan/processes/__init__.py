"""Processes that cannot outlive this one: start them, end them, and read their output by lines."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from ..basics.log import get_logger

# The watcher reads a process ID from its first line. If its input ends without a second line, the
# starter has died (the kernel closes the pipes of any dead process), and the watcher kills the
# process with that ID. PR_SET_PDEATHSIG does not help: it fires when the *thread* that started the
# child ends.
_WATCHER = 'read -r pid && { read -r released || kill -KILL "$pid"; }'


class WatchedProcess:
    """A process that is killed when its starter dies. It has its own session, so Ctrl-C does not
    reach it.

    `log` gets its output: a file, at the end, or a Relay. With None the process shares the output
    streams of this process. `environment` replaces the inherited one; the process also inherits
    the descriptors `pass_fds`. A child that the starter has forked holds the watcher's pipe, too:
    then the process is killed only when both have died. A process that is not `watched` must
    notice the death of its starter itself.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path | Relay | None,
        environment: Mapping[str, str] | None = None,
        *,
        pass_fds: Sequence[int] = (),
        watched: bool = True,
    ) -> None:
        self._log = log
        self._watcher = _Watcher() if watched else None
        try:
            with contextlib.ExitStack() as stack:
                output, errors = _outputs(log, stack)
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,
                    env=environment,
                    pass_fds=pass_fds,
                )
        except BaseException:
            self._release_watcher()
            raise
        if self._watcher is not None:
            self._watcher.watch(self._process.pid)

    @property
    def pid(self) -> int:
        """The ID of the process itself, not of a wrapper, so that signals reach it."""
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the process still runs. A stopped (SIGSTOP) process counts as running."""
        return self.exit_code is None

    def is_stopped(self) -> bool:
        """Whether the process is stopped (SIGSTOP) now; always False on macOS."""
        if not hasattr(os, "waitid"):  # macOS
            return False
        options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, options) is not None
        return False

    @property
    def exit_code(self) -> int | None:
        """The exit code, or minus the number of the signal that ended it; None while it runs."""
        code = self._process.poll()
        if code is not None:
            # `poll` has reaped the process, so another process may get its ID from now on.
            self._release_watcher()
        return code

    def wait_ended(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds for the process to end. Returns whether it ended."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._release_watcher()
        return True

    def send(self, number: signal.Signals) -> None:
        """Send a signal. Does nothing if the process has ended."""
        self._process.send_signal(number)

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM), even if it is paused."""
        self.send(signal.SIGTERM)
        self.resume()  # a paused process would not act on SIGTERM

    def pause(self) -> None:
        """Stop the process (SIGSTOP), and wait until all its threads have stopped.

        Otherwise, on a busy machine, a thread may still answer a request after the signal.
        """
        if self.is_running():
            self.send(signal.SIGSTOP)
            wait_unreaped(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        """Continue a paused process."""
        self.send(signal.SIGCONT)

    def end(self, grace_s: float) -> None:
        """Terminate the process, after `grace_s` seconds kill it, and reap it. May be repeated."""
        if grace_s > 0:
            self.terminate()
            self.wait_ended(grace_s)
        self._process.kill()
        self._process.wait()
        self._release_watcher()
        if isinstance(self._log, Relay):
            self._log.finish()

    def log_tail(self) -> str:
        """The last lines of the process's output, as the end of a message."""
        if isinstance(self._log, Relay):
            return self._log.tail()
        return log_tail(self._log) if self._log is not None else ""

    def _release_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.release()


class _Watcher:
    """A shell that kills one process as soon as the starter of the shell has died."""

    def __init__(self) -> None:
        self._releasing = threading.Lock()
        command = ["/bin/sh", "-c", _WATCHER]
        self._shell = subprocess.Popen(
            command, stdin=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        self._input: IO[bytes] = self._shell.stdin  # type: ignore[assignment]

    def watch(self, pid: int) -> None:
        self._input.write(b"%d\n" % pid)

    def release(self) -> None:
        """End the shell without killing the process, which is reaped or was never started."""
        with self._releasing:
            if not self._input.closed:
                with contextlib.suppress(BrokenPipeError):
                    self._input.write(b"none\nreleased\n")
                self._input.close()
                self._shell.wait()


def _outputs(
    log: Path | Relay | None, stack: contextlib.ExitStack
) -> tuple[int | IO[bytes] | None, int | None]:
    """Standard output and error for a new process; `stack` closes this process's copies."""
    if isinstance(log, Path):
        return stack.enter_context(log.open("ab")), subprocess.STDOUT
    if isinstance(log, Relay):
        output, errors = stack.enter_context(log.ends())
        return output, errors
    return None, None


def wait_unreaped(pid: int, options: int = 0) -> None:
    """Wait until a child has ended (with os.WUNTRACED: or has stopped), without reaping it.

    Returns at once if another thread has reaped the child.
    """
    with contextlib.suppress(ChildProcessError):
        if hasattr(os, "waitid"):
            stopped = os.WSTOPPED if options == os.WUNTRACED else 0
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | stopped)
        else:  # macOS: `waitpid` reaps a child that has ended
            os.waitpid(pid, options)


def same_imports() -> dict[str, str]:
    """An environment in which a Python process can import everything that this process can.

    A script imports modules from its own folder, and pytest adds folders of tests to `sys.path`.
    With only the inherited environment, a child would not find these modules.
    """
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return os.environ | {"PYTHONPATH": path}


# ---- Pass on the output of a process line by line, and keep its last lines for error messages.


logger = get_logger("zkplan.processes")

_TAIL_LINES = 25
#: Seconds to wait for the rest of the output of a dead process, whose children may still write.
_READ_S = 1.0

#: Takes each line, and the stream that it was written to: "stdout" or "stderr".
Show = Callable[[str, str], None]


def log_tail(log: Path) -> str:
    """The last lines of a log file, as the end of a message."""
    return _last_lines(log.read_text(errors="replace").splitlines() if log.exists() else ())


def show(line: str, stream: str) -> None:
    """Write `line` to this process's `stream`, with characters escaped that it cannot encode."""
    # Look the stream up for each line, because notebooks and pytest replace it.
    out = getattr(sys, stream)
    try:
        encoding = out.encoding or "utf-8"
        out.write(line.encode(encoding, "backslashreplace").decode(encoding))
        out.flush()
    except (AttributeError, OSError, ValueError):
        pass  # the stream does not exist or is closed, so no reader misses the line


def append(file: Path, line: str, stream: str) -> None:
    """Append `line` to `file`."""
    with file.open("a", encoding="utf-8") as log:
        log.write(line)


def drop(line: str, stream: str) -> None:
    """Ignore `line`: a Relay keeps the last lines for messages anyway."""


class Relay:
    """Two pipes for the output of one process, and two threads here that read them."""

    def __init__(self, show: Show = drop) -> None:
        self._show = show
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._threads: list[threading.Thread] = []

    @contextmanager
    def ends(self) -> Iterator[list[int]]:
        """Yield descriptors for the process's standard output and error; close them afterwards.

        Raises OSError, and RuntimeError if no more threads can be started.
        """
        with ExitStack() as stack:
            yield [self._end(stream, stack) for stream in ("stdout", "stderr")]

    def _end(self, stream: str, stack: ExitStack) -> int:
        read, write = os.pipe()
        # The thread reads until the last copy of this end is closed.
        stack.callback(os.close, write)
        # Pass on the text unchanged, also the carriage returns of progress bars.
        lines = open(read, errors="replace", newline="")  # noqa: SIM115
        thread = threading.Thread(target=self._read, args=[lines, stream], daemon=True)
        try:
            thread.start()
        except BaseException:
            lines.close()
            raise
        self._threads.append(thread)
        return write

    def finish(self) -> None:
        """Wait, for a moment at most, until all output of the dead process is passed on."""
        deadline = time.monotonic() + _READ_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def tail(self) -> str:
        """The last lines, as the end of a message."""
        return _last_lines(list(self._tail))

    def _read(self, lines: IO[str], stream: str) -> None:
        with lines:
            for line in lines:
                self._tail.append(line.rstrip())
                try:
                    self._show(line, stream)
                except OSError as error:
                    # For example a full disk. Read on: the process must not block on a full pipe.
                    logger.warning(
                        "the output of worker processes is dropped from now on: %s", error
                    )
                    self._show = drop


def _last_lines(lines: Iterable[str]) -> str:
    """
    >>> _last_lines(["no such module"]), _last_lines([])
    (' The end of its log:\\nno such module', ' It wrote no log.')
    """
    last = [*lines][-_TAIL_LINES:]
    return "\n".join([" The end of its log:", *last]) if last else " It wrote no log."
