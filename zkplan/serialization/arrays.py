"""Arrays that repeat their data without holding it twice travel as what they repeat."""

from __future__ import annotations

import sys
from typing import Any


def reduce_repeating(obj: Any) -> Any:
    """For `reducer_override` of a pickler. NotImplemented: leave `obj` to the pickler.

    `numpy.broadcast_to` shows one row a thousand times. NumPy would write it a thousand times, and
    the reader would hold all of them. A view that may be written to is left alone: who writes
    into its copy must find rows of their own there.
    """
    numpy = sys.modules.get("numpy")  # without it there are no arrays
    if numpy is None or type(obj) is not numpy.ndarray or obj.flags.writeable:
        return NotImplemented
    is_repeated = [
        stride == 0 and length > 1 for stride, length in zip(obj.strides, obj.shape, strict=True)
    ]
    if not any(is_repeated):
        return NotImplemented
    once = obj[tuple(slice(1) if each else slice(None) for each in is_repeated)]
    return numpy.broadcast_to, (once, obj.shape)
