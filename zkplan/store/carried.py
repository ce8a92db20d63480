"""Values on their way between a worker and the process of a task, which has no store.

The worker reads and writes blobs of the store, and decodes nothing. The process does that,
and knows no login of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ZkplanError
from ..serialization.blame import not_serialisable
from ..serialization.codec import dump, load
from ..serialization.functions import load_function
from .blob import Bytes, Part, decode, encode
from .values import dumped, loaded


def carried_value(is_blob: bool, data: Bytes, values: Sequence[Any] = ()) -> Any:
    """The value of what `Values.carried` returned. Raises as `codec.load`."""
    return loaded(load, data, values) if is_blob else load(bytes(data), values)


def carried_function(is_blob: bool, data: Bytes) -> Callable[..., Any]:
    """Likewise for a function. Raises PayloadUndecodable."""
    return load_function(bytes(decode(data)[0] if is_blob else data))


def carry(value: Any, inline_limit: int | None) -> tuple[bool, list[Bytes]]:
    """Whether the value is large enough for a store (None: there is none), and its bytes, for
    `Values.seal_carried`. Raises NotSerialisable."""
    try:
        if inline_limit is None:
            return False, [dump(value)]
        body, buffers = dumped(value)
        views = [buffer.raw() for buffer in buffers]
        if len(body) + sum(view.nbytes for view in views) > inline_limit:
            return True, encode([Part(body), *(Part(view, view.readonly) for view in views)])
        return False, [dump(value) if buffers else body]
    except ZkplanError:
        raise
    except Exception as error:
        what = f"a value of type {type(value).__qualname__}"
        raise not_serialisable(what, value, error) from error
