"""What tasks of a plan share, so that it lies there once: constants, and large functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import NotSerialisable, ZkplanError
from ..protocol.core import shared
from ..protocol.requests import Step
from ..values.function_codec import named, split_name
from ..values.json_values import NotJson, kind_of
from ..values.pickle_by_value import not_serialisable
from ..values.plan_values import Values
from ..values.shared import SharedReference

#: Arguments with more bytes than this are shared from the second task on that takes them.
LARGE = 64 * 1024
#: Functions by value with more bytes than this are shared.
FUNCTION_MIN = 4096
_BUILTIN = frozenset((bytes, bytearray, str))


class Constant:
    """What `Plan.constant` returns: an argument for tasks of that plan."""

    __slots__ = ("body", "plan_path", "reference")

    def __init__(self, plan_path: str, reference: bytes, body: bytes) -> None:
        self.plan_path, self.reference = plan_path, reference
        #: What tasks share under the reference; empty if it is in the store.
        self.body = body

    def __repr__(self) -> str:
        return f"<zkplan constant of {self.plan_path}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} is an argument for tasks of its plan, and has no value here")


class Constants:
    """What an author shares between the tasks of one plan: constants, and large functions by value.
    Not thread-safe.

    In a `with` block, or one call of `add_tasks`, a large argument that a second task takes becomes
    a constant, too.
    """

    def __init__(self, plan_path: str, values: Values, *, as_json: bool) -> None:
        self._plan_path, self._values, self._as_json = plan_path, values, as_json
        #: What is not written yet, by its reference.
        self._waiting: dict[SharedReference, bytes] = {}
        #: Large arguments by identity, with the constants of those that cannot change. They are
        #: kept alive, so that no other gets the identity.
        self._seen: dict[int, tuple[Any, Constant | None]] = {}

    def of(self, value: Any) -> Constant:
        """Encode a value. Raises NotSerialisable, InvalidTask if it is too large, and
        StoreUnavailable."""
        try:
            found = self._values.constant(self._plan_path, value, self._as_json)
        except ZkplanError:
            raise
        except NotJson as error:
            raise NotSerialisable(f"the constant: {error}") from None
        except Exception as error:
            raise not_serialisable(f"the constant, {kind_of(value)},", value, error) from error
        return Constant(self._plan_path, *found)

    def take(self, constant: Constant) -> bytes:
        """The reference to a constant, which a task is about to take."""
        if not constant.body:
            return constant.reference
        return self._share(SharedReference.from_bytes(constant.reference), constant.body)

    def _share(self, reference: SharedReference, body: bytes) -> bytes:
        if not self._values.has_shared(self._plan_path, reference):
            self._waiting[reference] = body
        return reference.to_bytes()

    def share_function(self, dumped: bytes) -> bytes:
        """A dumped function, or a reference to it if it is large and travels by value."""
        if len(dumped) <= FUNCTION_MIN:
            return dumped
        name, body = split_name(dumped)
        if body[:1] != b"F":
            return dumped
        return named(self._share(SharedReference.of(body), body), name)

    def write(self) -> Step[None]:
        """Write what is not written yet. Raises TransactionRejected."""
        while self._waiting:
            reference, body = next(iter(self._waiting.items()))
            yield from shared.write(self._plan_path, reference.digest, body)
            del self._waiting[reference]
            self._values.keep_shared(self._plan_path, reference, body)

    def forget_arguments(self) -> None:
        """The block or the call has ended."""
        self._seen.clear()

    def replace(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments of a task, with constants in place of large ones that came before."""
        if any(map(_is_large, args)):
            args = [self._replaced(each) for each in args]
        if kwargs and any(map(_is_large, kwargs.values())):
            kwargs = {name: self._replaced(each) for name, each in kwargs.items()}
        return args, kwargs

    def _replaced(self, value: Any) -> Any:
        if not _is_large(value):
            return value
        known = self._seen.get(id(value))
        if known is None:
            self._seen[id(value)] = value, None
            return value
        found = known[1] or self.of(value)
        if type(value) in (bytes, str):
            self._seen[id(value)] = value, found
        return found


def _is_large(value: Any) -> bool:
    kind = type(value)
    if kind in _BUILTIN:
        return len(value) > LARGE
    if kind.__module__ == "builtins":
        return False
    found = getattr(value, "nbytes", 0)
    return type(found) is int and found > LARGE
