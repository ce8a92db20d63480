"""Wait for a znode: when() makes a gate, which holds tasks back and takes no slot."""

from __future__ import annotations

from typing import Any

from .basics.public_calls import Duration, in_seconds
from .errors import GateTimeout, InvalidTask, PayloadUndecodable, ZkplanError
from .protocol.features.gates import PATH_CHARS_MAX, Condition, Kind, Seen, is_path
from .protocol.task_options import NAME_CHARS_MAX
from .values.codec import GATE, Codec

#: The longest value of a znode that a gate hands on: it shares a transaction with its opening.
VALUE_BYTES_MAX = 512 * 1024
TIMEOUT_MAX_S = 10 * 365 * 24 * 3600.0
CHILDREN_MAX = 1_000_000


class When:
    """What `when` returns: a gate. Give it to `Plan.add_task` as an argument, in `after`, or in
    place of the function."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        #: As a decorated function has them: the name of the gate, and that it is tried once.
        self.zkplan_options: dict[str, Any] = {
            "name": f"when {condition.path}"[:NAME_CHARS_MAX],
            "attempts": 1,
        }

    def __call__(self, value: Any) -> Any:
        raise InvalidTask("", f"{self!r} is given to a plan, not called")

    def __repr__(self) -> str:
        return f"<zkplan.when: {self.condition.text}>"


def when(
    path: str,
    *,
    exists: bool | None = None,
    absent: bool | None = None,
    value: bytes | str | None = None,
    children: int | None = None,
    timeout: Duration | None = None,
) -> When:
    """Wait for a znode: until it exists (the default), is `absent`, holds `value`, or has at least
    that many `children`.

    `path` is absolute, below the chroot of the connection, inside or outside the root (with keys,
    inside only what zkplan has sealed). A worker watches it; no slot is taken meanwhile. As an
    argument of a task, the gate stands for the data of the znode as bytes, for the sorted names of
    its children (`children`), or for None (`absent`). After `timeout` seconds since its add the
    gate fails with GateTimeout; without one it waits as long as the plan stands. `value` may be a
    text, which is compared as UTF-8.

    Raises InvalidTask for what makes no condition.
    """
    given: list[Kind] = []
    if exists is not None:
        given.append("exists" if exists else "absent")
    if absent is not None:
        given.append("absent" if absent else "exists")
    if value is not None:
        given.append("value")
    if children is not None:
        given.append("children")
    if len(given) > 1:
        raise InvalidTask("", f"when({path!r:.100}) has two conditions: give one gate for each")
    _check_path(path)
    data = value.encode() if isinstance(value, str) else value
    if data is not None and (not isinstance(data, bytes) or len(data) > VALUE_BYTES_MAX):
        limit = f"at most {VALUE_BYTES_MAX} bytes"
        raise InvalidTask("", f"when({path!r:.100}): value is bytes or a text, {limit}")
    if children is not None and not (type(children) is int and 1 <= children <= CHILDREN_MAX):
        raise InvalidTask("", f"when({path!r:.100}): children is 1 to {CHILDREN_MAX:,}")
    timeout = in_seconds(timeout)
    if timeout is not None and not (type(timeout) in (int, float) and 0 < timeout <= TIMEOUT_MAX_S):
        raise InvalidTask("", f"when({path!r:.100}): timeout is seconds above 0, up to ten years")
    kind = given[0] if given else "exists"
    return When(Condition(path, kind, data or b"", children or 0, timeout))


def _check_path(path: Any) -> None:
    if not is_path(path):
        raise InvalidTask(
            "",
            f"when: {path!r:.100} is no path of a znode: it begins with '/' and has no empty part "
            f"(and is at most {PATH_CHARS_MAX} characters long)",
        )


def passed(opened_with: Any) -> Any:
    """The function of every gate: its outcome is what the gate was opened with."""
    if isinstance(opened_with, ZkplanError):
        raise opened_with
    return opened_with


def sealed_condition(codec: Codec, condition: Condition) -> bytes:
    """In an envelope, which is sealed: nobody without a key makes workers read other znodes."""
    return codec.seal(GATE, condition.to_bytes())


def opened_condition(codec: Codec, sealed: bytes) -> Condition:
    """Raises PayloadUndecodable."""
    if not sealed:
        raise PayloadUndecodable("the znode `gate` of the task is missing, or may not be read")
    return Condition.from_bytes(codec.open(GATE, sealed)[1])


def argument(codec: Codec, condition: Condition, seen: Seen) -> bytes:
    """The sealed argument with which a gate is opened after its znode was seen so."""
    value: Any = None
    if condition.take and seen.node is not None and condition.kind != "absent":
        value = seen.node.data
        if condition.kind == "children":
            value = sorted(seen.names or ())
        size = len(value) if isinstance(value, bytes) else sum(map(len, value)) + 8 * len(value)
        if size > VALUE_BYTES_MAX:
            value = InvalidTask(
                f"when {condition.path}",
                f"znode {condition.path} holds {size} bytes, and a gate hands on at most "
                f"{VALUE_BYTES_MAX}: give the gate in `after`, and read the znode in the function",
            )
    return codec.seal_value(value)


def too_late(codec: Codec, condition: Condition) -> bytes:
    """The sealed argument with which a gate is opened whose time is over."""
    return codec.seal_value(
        GateTimeout(
            condition.path,
            f"the time for {condition.text} is over ({condition.timeout:g} s since the add)",
        )
    )
