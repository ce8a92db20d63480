"""Wait for a znode: when() makes a gate, which holds tasks back and takes no slot."""

from __future__ import annotations

from typing import Any

from .basics.public_calls import Duration, in_seconds
from .errors import GateTimeout, InvalidTask, PayloadUndecodable, ZkplanError
from .protocol.features.gates import PATH_CHARS_MAX, Condition, Kind, Seen, is_path
from .protocol.task_options import NAME_CHARS_MAX
from .values.codec import GATE, Codec

#: The longest value of a znode that a gate hands on. One transaction carries this value and opens
#: the gate.
VALUE_BYTES_MAX = 512 * 1024
TIMEOUT_MAX_S = 10 * 365 * 24 * 3600.0
CHILDREN_MAX = 1_000_000


class When:
    """What `when` returns: a gate. Give it to `Plan.add_task` as an argument, in `after`, or in
    place of the function."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        #: Options as a decorated function has them: the name of the gate, and a single attempt.
        self.zkplan_options: dict[str, Any] = {
            "name": f"when {condition.path}"[:NAME_CHARS_MAX],
            "attempts": 1,
        }

    def __call__(self, value: Any) -> Any:
        raise InvalidTask("", f"give {self!r} to a plan instead of calling it")

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
    `children` children.

    `path` is absolute, below the chroot of the connection. It may lie inside or outside the root;
    with keys, a znode inside the root counts only if zkplan has sealed it. A worker watches the
    znode, and the gate takes no slot while it waits. As an argument of a task, the gate stands for
    the data of the znode as bytes, for the sorted names of its children (`children`), or for None
    (`absent`). `timeout` seconds after the add the gate fails with GateTimeout; without a `timeout`
    it waits as long as its plan exists. `value` may be a text, which is compared as UTF-8.

    Raises InvalidTask for an argument out of range, or for two conditions.
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
        raise InvalidTask("", f"when({path!r:.100}): value must be bytes or a text, {limit}")
    if children is not None and not (type(children) is int and 1 <= children <= CHILDREN_MAX):
        raise InvalidTask("", f"when({path!r:.100}): children must be 1 to {CHILDREN_MAX:,}")
    timeout = in_seconds(timeout)
    if timeout is not None and not (type(timeout) in (int, float) and 0 < timeout <= TIMEOUT_MAX_S):
        raise InvalidTask(
            "", f"when({path!r:.100}): timeout must be more than 0 seconds, and at most ten years"
        )
    kind = given[0] if given else "exists"
    return When(Condition(path, kind, data or b"", children or 0, timeout))


def _check_path(path: Any) -> None:
    if not is_path(path):
        raise InvalidTask(
            "",
            f"when: {path!r:.100} is not the path of a znode, which begins with '/', has no empty "
            f"part, and is at most {PATH_CHARS_MAX} characters long",
        )


def passed(opened_with: Any) -> Any:
    """The function of every gate: return, or raise, the value that the gate was opened with."""
    if isinstance(opened_with, ZkplanError):
        raise opened_with
    return opened_with


def sealed_condition(codec: Codec, condition: Condition) -> bytes:
    """The condition in a sealed envelope, so that only a holder of a key can choose which znodes
    workers read."""
    return codec.seal(GATE, condition.to_bytes())


def opened_condition(codec: Codec, sealed: bytes) -> Condition:
    """Raises PayloadUndecodable."""
    if not sealed:
        raise PayloadUndecodable("the znode `gate` of the task is missing, or may not be read")
    return Condition.from_bytes(codec.open(GATE, sealed)[1])


def argument(codec: Codec, condition: Condition, seen: Seen) -> bytes:
    """The sealed argument that opens a gate whose znode was seen as `seen`."""
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
    """The sealed argument that opens a gate whose time is over."""
    return codec.seal_value(
        GateTimeout(
            condition.path,
            f"the time for {condition.text} is over ({condition.timeout:g} s since the add)",
        )
    )
