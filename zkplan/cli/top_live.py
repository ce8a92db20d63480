"""The live view of `zkplan top`: one thread looks, this one draws, so that a silent server is told.

Signals, resizing and new looks wake the drawing thread through a pipe: a handler must not touch
locks.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from datetime import datetime

from rich.console import Console, Group
from rich.control import Control
from rich.text import Text

from ..basics.text import duration, one_line
from ..errors import ServerRolledBack, ZkplanError, ZooKeeperUnavailable
from ..inspection.overview import Observer, Overview
from ..transport import Transport
from .top_picture import picture

#: Seconds without a new look after which the view says so.
_SILENT_S = 2.0
_DRAWN_EVERY_S = 1.0


class _LastRecord(logging.Handler):
    """Keeps the last warning: a line on the terminal would spoil the picture."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


def keep_logs() -> _LastRecord:
    """Have no log line written to the terminal, from before the client is opened."""
    kept = _LastRecord(logging.WARNING)
    logging.basicConfig(level=logging.INFO, handlers=[kept])
    return kept


class Live:
    """The view, from `run` to Ctrl-C or SIGTERM."""

    def __init__(
        self,
        observer: Observer,
        transport: Transport,
        place: str,
        interval_s: float,
        last: _LastRecord,
    ) -> None:
        self._observer, self._transport, self._place = observer, transport, place
        self._interval_s, self._last = interval_s, last
        self._console = Console()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        self._ended = False
        #: What the looking thread has seen last, and when by the monotonic clock.
        self._seen: Overview | None = None
        self._seen_at = time.monotonic()
        self._silence = ""
        self._error: BaseException | None = None

    def run(self) -> None:
        """Draw until a signal ends it. Raises what ends the looking thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._end())
        signal.signal(signal.SIGWINCH, lambda *_: self._wake_up())
        threading.Thread(target=self._look_on, name="zkplan-top", daemon=True).start()
        with self._console.screen() as screen:
            while not self._ended and self._error is None:
                self._console.control(Control.home())
                screen.update(self._drawn())
                select.select([self._woken], [], [], _DRAWN_EVERY_S)
                self._read_pipe()
        if self._error is not None and not self._ended:
            raise self._error

    def _end(self) -> None:
        self._ended = True
        self._wake_up()

    def _wake_up(self) -> None:
        try:
            os.write(self._wake, b"x")
        except BlockingIOError:
            pass  # the pipe is full: it wakes up anyway

    def _read_pipe(self) -> None:
        try:
            while os.read(self._woken, 4096):
                pass
        except BlockingIOError:
            pass

    def _look_on(self) -> None:
        """On a thread of its own."""
        try:
            while not self._ended:
                started = time.monotonic()
                try:
                    # More names than there are lines on most terminals are never drawn.
                    self._seen = self._observer.look(names=self._console.size.height)
                    self._seen_at, self._silence, self._last.text = time.monotonic(), "", ""
                except ServerRolledBack:
                    raise
                except ZooKeeperUnavailable as error:
                    self._silence = str(error)  # it may come back: ask again
                self._wake_up()
                time.sleep(max(0.0, self._interval_s - (time.monotonic() - started)))
        except ZkplanError as error:
            self._error = error
        except BaseException as error:  # whatever it is, the terminal is given back first
            self._error = error
        finally:
            self._wake_up()

    def _drawn(self) -> Group:
        width, height = self._console.size
        seen = self._seen
        if seen is None:
            told = self._notice() or "looking …"
            return Group(Text(one_line(f"zkplan top  {self._place}: {told}")))
        lines = picture(seen, self._place, self._notice(), width, height)
        # The last cell of the last line would scroll some terminals.
        return Group(
            *(Text(each.text, style=each.style, no_wrap=True, overflow="crop") for each in lines)
        )

    def _notice(self) -> str:
        """What is to be told of a server that does not answer; empty if it does."""
        age_s = time.monotonic() - self._seen_at
        if age_s < self._interval_s + _SILENT_S and not self._silence:
            return ""
        since = datetime.fromtimestamp(time.time() - age_s).strftime("%H:%M:%S")
        hosts = self._transport.hosts
        last = f": {one_line(self._last.text)}" if self._last.text else ""
        return f"NO ANSWER from {hosts} for {duration(age_s)}, this is of {since}{last}"
