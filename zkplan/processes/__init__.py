"""Start a process that cannot outlive its starter, end it, and read its output line by line."""

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

# The watcher reads a process id from its first line. If its input ends without a second line, the
# starter is gone (the kernel closes the pipe of any dead process), and the watcher kills that
# process. PR_SET_PDEATHSIG does not help: it fires when the *thread* that started the child ends.
_WATCHER = 'read -r pid && { read -r released || kill -KILL "$pid"; }'


class WatchedProcess:
    """A process that is killed when its starter dies. It has its own session, so Ctrl-C does not
    reach it.

    Its output is appended to the file `log`, goes into the pipes of a Relay, or with None goes
    where that of this process goes. `environment` replaces the inherited one; `pass_fds` are
    descriptors that it inherits. A child that the starter forked holds the pipe, too: then the
    process is killed when both are gone. A process that is not `watched` has to notice the death of
    its starter itself.
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
        """The id of the process itself, not of a wrapper, so signals reach it."""
        return self._process.pid

    def is_running(self) -> bool:
        """Whether it still runs. A stopped (SIGSTOP) process counts as running."""
        return self.exit_code is None

    def is_stopped(self) -> bool:
        """Whether it is stopped (SIGSTOP) now; False where the system does not say."""
        if not hasattr(os, "waitid"):  # macOS
            return False
        options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, options) is not None
        return False

    @property
    def exit_code(self) -> int | None:
        """The exit code, or the negative number of the signal that ended it; None while it runs."""
        code = self._process.poll()
        if code is not None:
            # This reaps the process, so another process may get its id from now on.
            self._release_watcher()
        return code

    def wait_ended(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds for its end. Returns whether it ended."""
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
        """Ask it to end (SIGTERM), even if it is paused."""
        self.send(signal.SIGTERM)
        self.resume()  # A paused process would not act on SIGTERM.

    def pause(self) -> None:
        """Stop it (SIGSTOP), and wait until all its threads have stopped; `resume` continues it.

        The signal alone is not enough: on a busy machine a thread may still answer a request.
        """
        if self.is_running():
            self.send(signal.SIGSTOP)
            wait_unreaped(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        """Continue a paused process."""
        self.send(signal.SIGCONT)

    def end(self, grace_s: float) -> None:
        """Terminate it, kill it after `grace_s` seconds (0: at once), and reap it. May be called
        again."""
        if grace_s > 0:
            self.terminate()
            self.wait_ended(grace_s)
        self._process.kill()
        self._process.wait()
        self._release_watcher()
        if isinstance(self._log, Relay):
            self._log.finish()

    def log_tail(self) -> str:
        """The end of what it wrote, as the end of a message."""
        if isinstance(self._log, Relay):
            return self._log.tail()
        return log_tail(self._log) if self._log is not None else ""

    def _release_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.release()


class _Watcher:
    """A shell that kills one process as soon as the process that started the shell is gone."""

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
        """End the shell without a kill, once the process is reaped or was never started."""
        with self._releasing:
            if not self._input.closed:
                with contextlib.suppress(BrokenPipeError):
                    self._input.write(b"none\nreleased\n")
                self._input.close()
                self._shell.wait()


def _outputs(
    log: Path | Relay | None, stack: contextlib.ExitStack
) -> tuple[int | IO[bytes] | None, int | None]:
    """Standard output and error for a new process; `stack` closes our ends of them."""
    if isinstance(log, Path):
        return stack.enter_context(log.open("ab")), subprocess.STDOUT
    if isinstance(log, Relay):
        output, errors = stack.enter_context(log.ends())
        return output, errors
    return None, None


def wait_unreaped(pid: int, options: int = 0) -> None:
    """Wait until a child has ended (with os.WUNTRACED: or has stopped), without reaping it.

    Does nothing if another thread has reaped it.
    """
    with contextlib.suppress(ChildProcessError):
        if hasattr(os, "waitid"):
            stopped = os.WSTOPPED if options == os.WUNTRACED else 0
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | stopped)
        else:  # macOS: a child that ends at this moment is reaped
            os.waitpid(pid, options)


def same_imports() -> dict[str, str]:
    """The environment of a Python process that can import all that this one can.

    A script finds modules in its own folder, and pytest adds folders of tests. With only the
    inherited environment a child would not find those.
    """
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return os.environ | {"PYTHONPATH": path}


# ---- Pass on the output of a process line by line, and keep its last lines for error messages.


logger = get_logger("zkplan.processes")

_TAIL_LINES = 25
#: How long to wait for the end of the output of a dead process, whose children may still write.
_READ_S = 1.0

#: Called with each line, and with "stdout" or "stderr".
Show = Callable[[str, str], None]


def log_tail(log: Path) -> str:
    """The last lines of a log file, as the end of a message."""
    return _last_lines(log.read_text(errors="replace").splitlines() if log.exists() else ())


def show(line: str, stream: str) -> None:
    """Write it to this process's stream of that name, escaping what the stream cannot show."""
    # Looked up for each line, because notebooks and pytest replace the stream.
    out = getattr(sys, stream)
    try:
        encoding = out.encoding or "utf-8"
        out.write(line.encode(encoding, "backslashreplace").decode(encoding))
        out.flush()
    except (AttributeError, OSError, ValueError):
        pass  # there is no stream, or it is closed: nobody reads it


def append(file: Path, line: str, stream: str) -> None:
    """Write it to the end of a file."""
    with file.open("a", encoding="utf-8") as log:
        log.write(line)


def drop(line: str, stream: str) -> None:
    """Ignore a line: only the end of the output is wanted, for a message."""


class Relay:
    """The two pipes that one process writes into, and a thread of this process to read each."""

    def __init__(self, show: Show = drop) -> None:
        self._show = show
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._threads: list[threading.Thread] = []

    @contextmanager
    def ends(self) -> Iterator[list[int]]:
        """Yield the descriptors for standard output and error of the process; close them here
        afterwards.

        Raises OSError, and RuntimeError if no more threads can be started.
        """
        with ExitStack() as stack:
            yield [self._end(stream, stack) for stream in ("stdout", "stderr")]

    def _end(self, stream: str, stack: ExitStack) -> int:
        read, write = os.pipe()
        # The read ends when the last writer closes this end.
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
        """Wait until everything that the dead process wrote is passed on."""
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
                    # For example a full disk. The process must not fail, or wait for a reader.
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
