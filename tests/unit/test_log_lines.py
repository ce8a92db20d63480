"""A log record is one printable line with any formatter, and holds no login."""

from __future__ import annotations

import importlib
import io
import logging
import pkgutil
import sys
from collections.abc import Iterator

import pytest

import zkplan
from zkplan.basics.log import get_logger
from zkplan.cli import PrintableFormatter
from zkplan.transport.kazoo_client import ComplaintLogger
from zkplan.views.progress import progress_bar

#: They need packages that not all tests may load.
OF_OTHERS = tuple(f"zkplan.integrations.{name}" for name in ("dask", "joblib", "opentelemetry"))
FORGED = "gone\n12:00:00 INFO zkplan.worker: all is well\r\x1b[2J\u2028\u202e\x85"


@pytest.fixture
def plain() -> Iterator[io.StringIO]:
    """What the user's own handler writes for the loggers of zkplan, with Python's own formatter."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    loggers = [logging.getLogger("zkplan"), logging.getLogger("zkplan.kazoo")]
    before = [logger.level for logger in loggers]
    loggers[0].addHandler(handler)
    for logger in loggers:
        logger.setLevel(1)
    yield written
    loggers[0].removeHandler(handler)
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def test_a_record_is_one_printable_line_with_any_formatter(plain: io.StringIO) -> None:
    get_logger("zkplan.worker").warning("%s of %s", FORGED, "/zkplan/plan-1")
    (line,) = plain.getvalue().splitlines()
    assert line.isprintable()
    assert r"gone\n12:00:00 INFO zkplan.worker: all is well\r\x1b[2J\u2028\u202e\x85 of" in line


def test_each_line_of_a_traceback_is_marked_as_a_continuation(plain: io.StringIO) -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        get_logger("zkplan.worker").exception("it ends")
    first, *more = plain.getvalue().split("\n")[:-1]
    assert first == "ERROR it ends"
    assert any("all is well" in line for line in more)
    assert all(line.startswith("  | ") and line.isprintable() for line in more)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")

    def __getattr__(self, name: str) -> None:
        raise KeyError(name)


def test_an_exception_that_cannot_be_shown_is_still_logged(plain: io.StringIO) -> None:
    try:
        raise Mute
    except Mute as error:
        get_logger("zkplan.worker").exception("a callback raised %s", error)
    first, *more = plain.getvalue().splitlines()
    assert first == "ERROR a callback raised %s (its arguments cannot be shown: RuntimeError)"
    assert any("in test_an_exception_that_cannot" in line for line in more)
    assert "Mute" in "".join(more)


def test_a_log_record_of_a_task_cannot_look_like_one_of_zkplan() -> None:
    record = logging.LogRecord("app", logging.INFO, "app.py", 1, "%s", (FORGED,), None)
    _, *more = PrintableFormatter("%(message)s").format(record).split("\n")
    assert more
    assert all(line.startswith("  | ") and line.isprintable() for line in more)


def test_every_logger_of_zkplan_escapes_what_it_is_given() -> None:
    for module in pkgutil.walk_packages(zkplan.__path__, "zkplan."):
        if not module.name.startswith(("zkplan.__main__", "zkplan.testing", *OF_OTHERS)):
            importlib.import_module(module.name)
    loggers = [
        found
        for name, found in logging.Logger.manager.loggerDict.items()
        if name.startswith("zkplan.") and isinstance(found, logging.Logger)
    ]
    assert len(loggers) >= 6
    assert [each.name for each in loggers if not each.filters] == []


def test_the_request_logs_of_kazoo_hold_no_login_and_no_value(plain: io.StringIO) -> None:
    logger = ComplaintLogger(get_logger("zkplan.kazoo"), {})
    for request in ("Auth(auth='me:canary')", ["canary"], b"canary", {"data": "canary"}):
        logger.debug("Sending request(xid=%s): %s", 7, request)
        logger.log(5, "Read response %r", request)
    assert "xid=7" in plain.getvalue()
    assert "canary" not in plain.getvalue()


def test_a_name_in_a_progress_bar_cannot_control_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bar("[bold]plan\n\x1b]0;title\x07") as show:
        assert show is not None
        show(1, 2, "[red]detail")
    shown = terminal.getvalue()
    assert r"[bold]plan\n\x1b]0;title\x07" in shown
    assert "[red]detail" in shown
