"""The records in znodes: plan, task, failure, dead letter."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

from ..errors import PayloadUndecodable, PlanCancelled
from .fields import (
    as_lasting,
    as_moment,
    as_names,
    as_queue,
    as_rank,
    as_seconds,
    as_text,
    as_whole,
    as_whole_from_0,
    from_json,
    lasting_to_json,
    to_json,
)
from .formats import TREE, require_format
from .layout import DEFAULT_QUEUE, PRIORITY_MAX, PRIORITY_MIN, parse_lane
from .task_options import DEFAULT_OPTIONS, TaskOptions

#: The largest weight of a plan; the least is 1.
WEIGHT_MAX = 1000
OnFailure = Literal["hold", "cascade"]
State = Literal["running", "paused", "cancelled"]
Serializer = Literal["pickle", "json"]

#: The bytes before the body of an envelope, and the bytes of each source after a definition.
ENVELOPE_BYTES = 2 + 1 + 16
SOURCE_BYTES = 4

_TASK_HEAD = struct.Struct(">III")
_FAILURE_HEAD = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The data of a plan's znode, which never changes.

    `uid` distinguishes a repeated creation from another plan. `retention` is how many seconds the
    plan stays after its end: infinity means forever, None the retention of the root. `key` names
    this plan alone. No task is claimed before `not_before`, and the plan is cancelled at its
    `deadline`: wall-clock seconds since 1970, by the server's clock. If a `schedule` created the
    plan, `due` is the time for which it fired, and `timezone` its time zone. `serializer` says how
    tasks are encoded. The plan starts with `weight`: see `Share`. `max_running` is the size of its
    own limit, 0 without one. With `history`, the plan keeps a history.
    """

    name: str
    uid: str
    created: float
    defaults: TaskOptions = DEFAULT_OPTIONS
    on_failure: OnFailure = "hold"
    format: int = TREE
    retention: float | None = None
    key: str = ""
    not_before: float | None = None
    deadline: float | None = None
    schedule: str = ""
    due: float | None = None
    timezone: str = ""
    serializer: Serializer = "pickle"
    weight: int = 1
    max_running: int = 0
    history: bool = True

    def to_bytes(self) -> bytes:
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        value = {
            name: each
            for name, each in named.items()
            if name in _ALWAYS_WRITTEN or each != _PLAN_DEFAULTS[name]
        }
        value["defaults"] = json.loads(self.defaults.to_json())
        if self.retention is not None:
            value["retention"] = lasting_to_json(self.retention)
        return to_json(value)

    @classmethod
    def from_bytes(cls, data: bytes) -> PlanRecord:
        """Raises OtherFormat, PayloadUndecodable; missing fields take their defaults."""
        value = from_json(data, "a plan record")
        require_format(value.get("format", TREE), TREE)
        return cls(
            name=as_text(value.get("name")),
            uid=as_text(value.get("uid")),
            created=as_seconds(value.get("created", 0.0), "a plan record"),
            defaults=TaskOptions.from_value(value.get("defaults", {})),
            on_failure="cascade" if value.get("on_failure") == "cascade" else "hold",
            retention=as_lasting(value.get("retention")),
            key=as_text(value.get("key")),
            not_before=as_moment(value.get("not_before")),
            deadline=as_moment(value.get("deadline")),
            schedule=as_text(value.get("schedule")),
            due=as_moment(value.get("due")),
            timezone=as_text(value.get("timezone")),
            serializer="json" if value.get("serializer") == "json" else "pickle",
            weight=_as_weight(value.get("weight")) or 1,
            max_running=max(0, as_whole(value.get("max_running", 0), "a plan record")),
            history=value.get("history") is not False,
        )


_ALWAYS_WRITTEN = ("name", "uid", "created", "defaults", "on_failure", "format")
_PLAN_DEFAULTS = {each.name: each.default for each in fields(PlanRecord)}


class TaskRecord(NamedTuple):
    """The definition of a task: how many `positions` edges fill, and three blobs of the codec."""

    positions: int
    options: bytes
    function: bytes
    arguments: bytes

    def to_bytes(self) -> bytes:
        head = _TASK_HEAD.pack(self.positions, len(self.options), len(self.function))
        return b"".join((head, self.options, self.function, self.arguments))

    @classmethod
    def from_bytes(cls, body: bytes) -> TaskRecord:
        try:
            positions, options, function = _TASK_HEAD.unpack_from(body)
        except struct.error:
            raise PayloadUndecodable("a task record is cut short") from None
        start = _TASK_HEAD.size
        middle = start + options
        end = middle + function
        if end > len(body):
            raise PayloadUndecodable("a task record is cut short")
        return cls(positions, body[start:middle], body[middle:end], body[end:])


def sources_in(definition: bytes) -> bytes:
    """The sources after the envelope of a definition: SOURCE_BYTES for each position.

    `TaskRecord.positions` counts the positions. See `protocol.core.edges`.
    """
    positions = int.from_bytes(definition[ENVELOPE_BYTES : ENVELOPE_BYTES + 4], "big")
    size = positions * SOURCE_BYTES
    return definition[-size:] if 0 < size <= len(definition) - ENVELOPE_BYTES else b""


def without_sources(definition: bytes) -> bytes:
    """The envelope of a definition."""
    sources = sources_in(definition)
    return definition[: -len(sources)] if sources else definition


#: How much of its root cause a failure keeps in a cascade, where each task has a copy.
_CAUSE_CHARS_MAX, _CAUSE_EXCEPTION_BYTES_MAX = 1000, 1024
#: The start of the `worker` of a failure that an operator has decided.
OPERATOR = "operator-"


class Failure(NamedTuple):
    """Why an attempt failed.

    `exception` is the encoded exception, empty if it cannot be encoded. `traceparent` is the span
    of the attempt, empty without tracing. `stale` names modules whose files had changed since the
    worker imported them. In a cascade, `root` is the number of the task that failed first, `depth`
    how many edges away it is, and the other fields describe its failure: `message` summarizes it.
    """

    kind: str
    message: str
    traceback: str
    worker: str
    n: int
    when: float
    exception: bytes = b""
    traceparent: str = ""
    stale: tuple[str, ...] = ()
    root: str = ""
    depth: int = 0

    @property
    def is_of_operator(self) -> bool:
        """Whether an operator has cancelled the task."""
        return self.kind == "TaskCancelled" and self.worker.startswith(OPERATOR)

    def to_bytes(self) -> bytes:
        value = self._asdict() | {"exception": None}
        rare = ("traceparent", "stale", "root", "depth")
        facts = to_json({name: each for name, each in value.items() if each or name not in rare})
        return _FAILURE_HEAD.pack(len(facts)) + facts + self.exception

    @classmethod
    def from_bytes(cls, body: bytes) -> Failure:
        try:
            (size,) = _FAILURE_HEAD.unpack_from(body)
        except struct.error:
            raise PayloadUndecodable("a failure record is cut short") from None
        facts = from_json(body[4 : 4 + size], "a failure record")
        return cls(
            as_text(facts.get("kind"), "?"),
            as_text(facts.get("message")),
            as_text(facts.get("traceback")),
            as_text(facts.get("worker")),
            as_whole(facts.get("n", 0), "a failure record"),
            as_seconds(facts.get("when", 0.0), "a failure record"),
            body[4 + size :],
            as_text(facts.get("traceparent")),
            as_names(facts.get("stale")),
            as_text(facts.get("root")),
            as_whole(facts.get("depth", 0), "a failure record"),
        )

    def upstream(self, task: str) -> Failure:
        """The failure of a task that depends on `task`, whose own failure this is."""
        is_small = len(self.exception) <= _CAUSE_EXCEPTION_BYTES_MAX
        return self._replace(
            kind="UpstreamFailed",
            message=self.message if self.depth else self.summary[:_CAUSE_CHARS_MAX],
            traceback=self.traceback[-_CAUSE_CHARS_MAX:],
            exception=self.exception if is_small else b"",
            root=self.root if self.depth else task,
            depth=self.depth + 1,
        )

    @property
    def text(self) -> str:
        """The message, for people."""
        if not self.depth:
            return self.message
        where = "which it depends on" if self.depth == 1 else f"{self.depth} tasks before it"
        return f"task {self.root.lstrip('0')}, {where}, failed: {self.message}"

    @property
    def summary(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


class Dead(NamedTuple):
    """The data of `dead/TASK`: enough to show the failure and to retry the task.

    `n` is the number of the last claim, `a` the number of attempts used up. The last claim counts
    as an attempt, even if its function did not run, unless lost workers had used up all attempts
    before. `undelivered`: the failure cascades, but a damaged edge prevents its delivery.
    """

    rank: str
    n: int
    a: int
    name: str
    error: str
    worker: str
    queue: str = DEFAULT_QUEUE
    undelivered: bool = False

    def to_bytes(self) -> bytes:
        defaults = self._field_defaults
        value = self._asdict().items()
        return to_json({name: each for name, each in value if each != defaults.get(name)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Dead:
        """Never raises: one damaged dead letter must not hide the others. Its `n` is then -1."""
        try:
            value = from_json(data, "a dead letter")
            n = as_whole(value.get("n", 0), "a dead letter")
            a = as_whole(value.get("a", 0), "a dead letter")
        except PayloadUndecodable as error:
            return cls("5000", -1, 0, "", f"(its dead letter is damaged: {error})", "")
        return cls(
            as_rank(value.get("rank")) or "5000",
            n,
            a,
            as_text(value.get("name")),
            as_text(value.get("error")),
            as_text(value.get("worker")),
            as_queue(value.get("queue")),
            value.get("undelivered") is True,
        )


def taken_to_bytes(claim: str) -> bytes:
    """The data of a claims node from which an operator has taken the claim of that name."""
    return to_json({"taken": claim})


def taken_from_bytes(data: bytes) -> str:
    try:
        return as_text(from_json(data, "a claims node").get("taken"))
    except PayloadUndecodable:
        return ""


def ready_to_bytes(k: int, queue: str = DEFAULT_QUEUE) -> bytes:
    """The data of a task's `ready`: K, the number of its edges, and any lane but the default."""
    return b"%d" % k if queue == DEFAULT_QUEUE else f"{k} {queue}".encode()


def count_from_bytes(data: bytes) -> int:
    """K, the number of edges, from a task's `ready`; -1 if it holds none."""
    # At most ten digits: int() refuses numbers of thousands of digits.
    digits = data.partition(b" ")[0]
    return int(digits) if digits.isdigit() and len(digits) <= 10 else -1


def queue_from_bytes(data: bytes) -> str:
    """The lane that a task's `ready` names."""
    return parse_lane(data.partition(b" ")[2].decode(errors="replace")) or DEFAULT_QUEUE


class Share(NamedTuple):
    """A plan's share of the workers, which its `ready` holds once it was changed.

    None means the value in the plan's record; `priority` replaces the priority in its `defaults`.
    `retried` is how often the plan has run again after its end.
    """

    weight: int | None = None
    priority: int | None = None
    retried: int | None = None


UNCHANGED = Share()


def share_from_bytes(data: bytes) -> Share:
    """The share in a plan's `ready`. Never raises: damaged values change nothing."""
    if b'","' not in data:
        return UNCHANGED  # the usual case: only the state, which a worker reads with each look
    try:
        value = from_json(data, "a control record")
    except PayloadUndecodable:
        return UNCHANGED
    priority = value.get("priority")
    is_known = type(priority) is int and PRIORITY_MIN <= priority <= PRIORITY_MAX
    retried = as_whole_from_0(value.get("retried"))
    return Share(_as_weight(value.get("weight")), priority if is_known else None, retried)


def _as_weight(value: object) -> int | None:
    return value if type(value) is int and 1 <= value <= WEIGHT_MAX else None


def control_to_bytes(state: State, reason: str = "", share: Share = UNCHANGED) -> bytes:
    value: dict[str, str | int] = {"state": state}
    if reason:
        value["reason"] = reason
    return to_json(value | {name: n for name, n in share._asdict().items() if n is not None})


def control_reason(data: bytes) -> str:
    """Why the plan is in its state, for people; empty if no reason was given."""
    try:
        return as_text(from_json(data, "a control record").get("reason"))[:200] if data else ""
    except PayloadUndecodable:
        return ""


def was_cancelled(plan_path: str, data: bytes) -> PlanCancelled:
    """The error for the author of a cancelled plan. `data` is the data of its `ready`."""
    reason = control_reason(data)
    why = f": {reason}" if reason else ""
    return PlanCancelled(plan_path, f"{plan_path} was cancelled{why}; create a new plan")


def control_from_bytes(data: bytes) -> State:
    """The state in a plan's `ready`. Empty data means running.

    Unreadable data means paused: a plan must never run because its control record is damaged.
    """
    if not data:
        return "running"
    try:
        state = from_json(data, "a control record").get("state")
    except PayloadUndecodable:
        return "paused"
    return state if state in ("running", "cancelled") else "paused"


def is_starting(data: bytes) -> bool:
    """Whether `data` is the first version of a `ready`: the next version holds the state."""
    return b'"starts"' in data


def starting_control(data: bytes) -> bytes:
    """The first version of a `ready` if sealing keys are used: the plan does not run yet.

    The next version holds the intended state, `data`.
    """
    if control_from_bytes(data) != "running":
        return data
    return to_json({"state": "paused", "starts": True})
