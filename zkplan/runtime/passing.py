"""What tasks print goes on to the terminal of their worker in whole lines, each with its task."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from ..basics.text import one_line

#: Characters after which a line without an end is passed on, such as that of a progress bar.
LINE_MAX = 8192
_lock = threading.Lock()

#: The streams that a task writes to, by their `id`, and the line that it has begun in each.
Begun = dict[int, tuple[Any, Any]]


def label_of(plan: str, task: str, name: str) -> str:
    """What stands before each line.

    >>> label_of("0000000004", "0000000007", "load")
    '[plan-0000000004/task-0000000007 load] '
    """
    path = f"plan-{plan}/task-{task}"
    return f"[{path} {one_line(name)}] " if name and name != f"task-{task}" else f"[{path}] "


def pass_on(begun: Begun, label: str, out: Any, data: Any) -> int:
    """Write the lines to `out` that `data`, text or bytes, completes. Returns its length.

    Each goes in one write: lines of tasks that run at the same time are never mixed.
    """
    given: Any = data if isinstance(data, str) else bytes(data)
    end: Any = "\n" if isinstance(given, str) else b"\n"
    with _lock:
        before = begun[id(out)][1] if id(out) in begun else given[:0]
        whole, found, rest = (before + given).rpartition(end)
        if len(rest) > LINE_MAX:
            whole, found, rest = before + given, end, rest[:0]
        begun[id(out)] = out, rest
    if found:
        out.write(_labelled(label, whole, end))
    return len(data)


def end_lines(begun: Begun, label: str) -> None:
    """The attempt has ended: write the lines that it has begun."""
    with _lock:
        left = [(out, rest) for out, rest in begun.values() if rest]
        begun.clear()
    for out, rest in left:
        with suppress(OSError, ValueError):  # nobody reads it any more
            out.write(_labelled(label, rest, "\n" if isinstance(rest, str) else b"\n"))


def _labelled(label: str, whole: Any, end: Any) -> Any:
    before: Any = label if isinstance(whole, str) else label.encode()
    return end.join(before + line for line in whole.split(end)) + end
