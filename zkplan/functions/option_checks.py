"""Check the options of a task."""

from __future__ import annotations

from ..basics.text import size, size_from
from ..errors import InvalidTask
from ..protocol.layout import PRIORITY_MAX, PRIORITY_MIN, QUEUE_NAMES, parse_queue
from ..protocol.options import RUN_IF, TaskOptions
from ..serialization.functions import NAME_CHARS_MAX
from .limit_names import check_limits

DELAY_MAX_S = 30 * 24 * 3600.0
#: The bounds of a memory limit: a process needs some for Python itself.
MEMORY_MIN, MEMORY_MAX = 64 * 1024 * 1024, 2**50


def memory_bytes(given: str | int | None, label: str) -> int | None:
    """The bytes of a memory limit. Raises InvalidTask."""
    if given is None:
        return None
    try:
        return size_from(given)
    except ValueError as error:
        raise InvalidTask(label, f"{label}: memory_limit is {error}, not {given!r:.50}") from None


def check_key(key: str | None, label: str, what: str) -> None:
    """Raises InvalidTask."""
    if key is not None and not (
        isinstance(key, str) and 0 < len(key) <= NAME_CHARS_MAX and key.isprintable()
    ):
        raise InvalidTask(
            label, f"{what} has 1 to {NAME_CHARS_MAX} printable characters, unlike {key!r:.50}"
        )


def check_options(options: TaskOptions, label: str) -> None:
    """Raises InvalidTask, which names the option and its bounds."""

    def demand(fits: bool, what: str) -> None:
        if not fits:
            raise InvalidTask(label, f"{label}: {what}")

    def seconds(value: object) -> bool:
        # True is a number in Python, but a record that holds it could not be decoded.
        return isinstance(value, int | float) and not isinstance(value, bool)

    demand(
        isinstance(options.name, str)
        and len(options.name) <= NAME_CHARS_MAX
        and options.name.isprintable(),
        f"name: at most {NAME_CHARS_MAX} printable characters, unlike {options.name!r:.50}",
    )
    demand(
        type(options.attempts) is int and 1 <= options.attempts <= 1000,
        f"attempts must be 1 to 1000, not {options.attempts!r}",
    )
    demand(
        seconds(options.retry_delay) and 0 <= options.retry_delay <= DELAY_MAX_S,
        f"retry_delay must be 0 to {DELAY_MAX_S:g} seconds, not {options.retry_delay!r}",
    )
    demand(
        options.timeout is None
        or (seconds(options.timeout) and 0 < options.timeout <= DELAY_MAX_S),
        f"timeout must be above 0 and at most {DELAY_MAX_S:g} seconds, not {options.timeout!r}",
    )
    demand(
        type(options.priority) is int and PRIORITY_MIN <= options.priority <= PRIORITY_MAX,
        f"priority must be {PRIORITY_MIN} to {PRIORITY_MAX}, not {options.priority!r}",
    )
    demand(
        options.keep is None or type(options.keep) is bool,
        f"keep must be True, False or None, not {options.keep!r}",
    )
    demand(type(options.pure) is bool, f"pure must be True or False, not {options.pure!r}")
    demand(
        type(options.queue) is str and parse_queue(options.queue) is not None,
        f"queue: {QUEUE_NAMES}, unlike {options.queue!r:.60}",
    )
    check_limits(options.limits, label)
    demand(
        options.isolation in (None, "thread", "process"),
        f'isolation must be "thread" or "process", not {options.isolation!r:.50}',
    )
    demand(
        options.memory_limit is None or MEMORY_MIN <= options.memory_limit <= MEMORY_MAX,
        f"memory_limit must be {size(MEMORY_MIN)} to {size(MEMORY_MAX)}, "
        f"not {options.memory_limit!r}",
    )
    demand(
        options.memory_limit is None or options.isolation != "thread",
        'only a task in a process of its own can have a memory_limit: leave out isolation="thread"',
    )
    demand(
        options.run_if in RUN_IF,
        f"run_if must be one of {', '.join(RUN_IF)}, not {options.run_if!r:.100}",
    )
    demand(
        options.run_if == RUN_IF[0] or not options.pure,
        f"a pure task runs only on results, so it takes no run_if={options.run_if!r}",
    )
