"""Whether an exception is worth another attempt, by the `fatal` and `retry_if` of its task."""

from __future__ import annotations

import base64

from ..log import get_logger
from ..protocol.records import TaskOptions
from ..serialization.codec import Codec

logger = get_logger("zkplan.worker")


def is_final(options: TaskOptions, error: BaseException, codec: Codec | None = None) -> bool:
    """Whether the task fails for good, although it has attempts left.

    Classes are known by their names, so that nothing is imported for it. Without a `codec` a
    function `retry_if` is not asked: it may be called on a slot's thread only.
    """
    if not options.fatal and not options.retry_if:
        return False
    names = {f"{kind.__module__}:{kind.__qualname__}" for kind in type(error).__mro__}
    if names.intersection(options.fatal):
        return True
    rule = options.retry_if
    if not isinstance(rule, str):
        return bool(rule) and not names.intersection(rule)
    if codec is None:
        return False
    try:
        return not codec.function(base64.b64decode(rule))(error)
    except Exception as wrong:
        # A rule that cannot be asked must not cost the task its attempts.
        logger.warning("a retry_if cannot be asked, so it is retried: %s", type(wrong).__name__)
        return False
