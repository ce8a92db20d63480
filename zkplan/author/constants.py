"""What tasks of a plan share, so that it lies there once: constants, and large functions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..basics.text import size
from ..errors import InvalidTask, NotSerialisable, ZkplanError
from ..gates import When
from ..protocol.core import shared
from ..protocol.requests import Step
from ..values.blobs import digest
from ..values.function_codec import named, split_name
from ..values.json_values import NotJson, kind_of
from ..values.pickle_by_value import not_serialisable
from ..values.plan_values import HOW_TO_GIVE, Values
from ..values.shared import SharedReference
from .handles import TaskHandle
from .task_specs import TaskSpec

#: A function by value with more bytes than the first is shared from its second use on, with more
#: than the second at once: it might not fit beside other parts of a definition.
FUNCTION_MIN, FUNCTION_AT_ONCE = 4096, 480 * 1024
#: Texts and bytes with more bytes than this are shared from the second task on that takes them.
ARGUMENT_MIN = 64 * 1024
#: The most that is shared without a store: ZooKeeper keeps its whole tree in memory.
SHARED_MAX = 16 * 1024 * 1024
#: How many functions are remembered by digest, and how many bytes of arguments are kept alive.
FUNCTIONS_SEEN, ARGUMENT_BYTES_SEEN = 1000, 64 * 1024 * 1024


class Constant:
    """What `Plan.constant` returns: an argument for tasks of that plan."""

    __slots__ = ("body", "digest", "plan_path", "stored")

    def __init__(self, plan_path: str, stored: bytes, body: bytes) -> None:
        """`stored` is the reference to the store that has the value, else `body` is the value."""
        self.plan_path, self.stored, self.body = plan_path, stored, body
        self.digest = digest([body]).hex() if body else ""

    def __repr__(self) -> str:
        return f"<zkplan constant of {self.plan_path}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} is an argument for tasks of its plan, and has no value here")


def _refuse(value: Any) -> None:
    """Raise InvalidTask for a task: a constant would carry the handle, and not its result."""
    if isinstance(value, TaskHandle | TaskSpec | When | Constant):
        raise InvalidTask(
            "", f"a constant cannot hold {value!r:.200}: give that as an argument of its own"
        )


class Constants:
    """What an author shares between the tasks of one plan: constants, and large functions by value.

    In a `with` block, or one call of `add_tasks`, a long text or bytes that a second task takes
    become a constant, too. The caller holds a lock around `write` and the add that follows.
    """

    def __init__(self, plan_path: str, values: Values) -> None:
        self._plan_path, self._values = plan_path, values
        #: What is not written yet, by its digest.
        self._waiting: dict[str, tuple[SharedReference, bytes]] = {}
        #: The digests of functions that were used once.
        self._functions: OrderedDict[str, None] = OrderedDict()
        #: The function that was shared last, and its reference.
        self._last_function = b"", b""
        #: Long arguments by identity, with their constants. They are kept alive, so that no other
        #: gets the identity.
        self._seen: OrderedDict[int, tuple[bytes | str, Constant | None]] = OrderedDict()
        self._seen_bytes = 0

    def of(self, value: Any, *, as_json: bool) -> Constant:
        """Encode a value. Raises NotSerialisable, StoreUnavailable, and InvalidTask if it is too
        large, or holds tasks."""
        try:
            stored, body = self._values.constant(self._plan_path, value, _refuse, as_json)
        except ZkplanError:
            raise
        except NotJson as error:
            raise NotSerialisable(f"the constant: {error}") from None
        except Exception as error:
            raise not_serialisable(f"the constant, {kind_of(value)},", value, error) from error
        _check_size("a constant", body)
        return Constant(self._plan_path, stored, body)

    def take(self, constant: Constant) -> bytes:
        """The reference to a constant, which a task is about to take."""
        return constant.stored or self._share(constant.digest, constant.body)

    def _share(self, digested: str, body: bytes) -> bytes:
        """The reference to what `write` writes, unless it was written before."""
        known = self._values.known_shared.get(self._plan_path, digested, len(body))
        if known is None:
            if digested not in self._waiting:
                self._waiting[digested] = SharedReference.new(body), body
            known = self._waiting[digested][0]
        return known.to_bytes()

    def share_function(self, dumped: bytes, label: str) -> bytes:
        """A dumped function, or a reference to it if it is large and travels by value. Raises
        InvalidTask if it is too large."""
        if len(dumped) <= FUNCTION_MIN:
            return dumped
        if dumped is self._last_function[0]:  # as `PickledFunctions` returns it again
            return self._last_function[1]
        name, body = split_name(dumped)
        if body[:1] != b"F":
            return dumped
        digested = digest([body]).hex()
        if digested not in self._functions and len(body) <= FUNCTION_AT_ONCE:
            self._functions[digested] = None
            if len(self._functions) > FUNCTIONS_SEEN:
                self._functions.popitem(last=False)
            return dumped
        _check_size(f"{label}: a function", body)
        reference = named(self._share(digested, body), name)
        self._last_function = dumped, reference
        return reference

    def write(self, explain: Callable[[], Step[None]]) -> Step[None]:
        """Write what is not written yet. `explain`, and what this raises: see `shared.write`."""
        while self._waiting:
            digested, (reference, body) = next(iter(self._waiting.items()))
            yield from shared.write(self._plan_path, reference.name, body, explain)
            self._values.known_shared.add(self._plan_path, reference)
            del self._waiting[digested]

    def forget_arguments(self) -> None:
        """The block or the call has ended."""
        self._seen.clear()
        self._seen_bytes = 0

    def replace(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, as_json: bool
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments of a task, with constants in place of long ones that came before."""
        if any(map(_is_long, args)):
            args = [self._replaced(each, as_json) for each in args]
        if kwargs and any(map(_is_long, kwargs.values())):
            kwargs = {name: self._replaced(each, as_json) for name, each in kwargs.items()}
        return args, kwargs

    def _replaced(self, value: Any, as_json: bool) -> Any:
        if not _is_long(value) or len(value) > SHARED_MAX:
            return value
        _, constant = self._seen.get(id(value), (value, None))
        if id(value) in self._seen:
            constant = constant or self.of(value, as_json=as_json)
        else:
            self._seen_bytes += len(value)
        self._seen[id(value)] = value, constant
        while self._seen_bytes > ARGUMENT_BYTES_SEEN:
            self._seen_bytes -= len(self._seen.popitem(last=False)[1][0])
        return constant or value


def _is_long(value: Any) -> bool:
    # Only what can neither change nor hold tasks.
    return type(value) in (bytes, str) and len(value) > ARGUMENT_MIN


def _check_size(what: str, body: bytes) -> None:
    if len(body) > SHARED_MAX:
        raise InvalidTask(
            "",
            f"{what} of {size(len(body))} is too large for ZooKeeper, which takes at most "
            f"{size(SHARED_MAX)} of it: give authors and workers a store {HOW_TO_GIVE}",
        )
