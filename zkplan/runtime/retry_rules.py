"""Whether an exception is worth another attempt, by the `fatal` and `retry_if` of its task."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from ..basics.exceptions import kind_of
from ..errors import PayloadTooLarge
from ..log import get_logger
from ..protocol.options import TaskOptions

logger = get_logger("zkplan.worker")


def is_final(
    options: TaskOptions,
    error: BaseException,
    load: Callable[[bytes], Callable[..., Any]] | None = None,
) -> bool:
    """Whether the task fails for good, although it has attempts left.

    Classes are known by their names, so that nothing is imported for it. `load` decodes a
    function `retry_if`. Without it that is not asked: it may be called only where the task ran.
    """
    if issubclass(type(error), PayloadTooLarge):
        return True  # it would be as large the next time
    if not options.fatal and not options.retry_if:
        return False
    rule = options.retry_if
    try:
        names = {f"{kind.__module__}:{kind.__qualname__}" for kind in type(error).__mro__}
        if names.intersection(options.fatal):
            return True
        if not isinstance(rule, str):
            return bool(rule) and not names.intersection(rule)
        return load is not None and not load(base64.b64decode(rule))(error)
    except BaseException as wrong:
        # A rule that cannot be asked must not cost the task its attempts, or the worker a slot.
        told = "a function given as retry_if raised %s, so its task is retried as if it had none"
        logger.warning(told, kind_of(wrong))
        return False
