"""The records in znodes, to and from bytes: plan, task, edge, failure, dead letter, worker."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, NamedTuple

from ..errors import PayloadUndecodable
from .unproven import require_proven

FORMAT = 1
#: What sealed data begin with, and what those are told who have no key.
SEALED_MAGIC = b"z2"
SEALED = "it is sealed with a secret, and none is configured here: give its file (secret-files)"
OnFailure = Literal["hold", "cascade"]
State = Literal["running", "paused", "cancelled"]
#: Larger than any number that an option may have, in any unit.
NUMBER_MAX = 1e12

_TASK_HEAD = struct.Struct(">III")
_FAILURE_HEAD = struct.Struct(">I")


def to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(data: bytes, what: str) -> dict[str, Any]:
    """Parse the JSON object in `data`. Raises PayloadUndecodable, which names `what`, for other
    data."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        require_proven(data)
        if data[:2] == SEALED_MAGIC:
            raise PayloadUndecodable(f"{what}: {SEALED}") from None
        raise PayloadUndecodable(f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise PayloadUndecodable(f"{what} is not a JSON object")
    return value


def _text(value: Any, default: str = "") -> str:
    """A text that any file takes: JSON can hold half a character (a lone surrogate), which none
    takes."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else default


def _rank(value: Any) -> str:
    """The rank at the start of `value`, or empty. It becomes part of a path, so it is checked."""
    rank = _text(value)[:4]
    return rank if len(rank) == 4 and rank.isascii() and rank.isdecimal() else ""


def _whole(value: Any, what: str) -> int:
    if not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise PayloadUndecodable(f"{what} has no whole number where one belongs")
    return value


def _seconds(value: Any, what: str) -> float:
    # Compared before it is converted, because float() refuses whole numbers beyond its range; NaN
    # lies within no bounds. They are the years that a date can have, wherever one is shown.
    if not isinstance(value, int | float) or not -6e10 < value < 2.5e11:
        raise PayloadUndecodable(f"{what} has no time where one belongs")
    return float(value)


def _retention(value: Any) -> float | None:
    """None for anything else than seconds: then the plan stays, which does no harm."""
    known = type(value) in (int, float) and 0 <= value < NUMBER_MAX
    return float(value) if known else None


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How a task is run. Times are in seconds. With `keep` None, a result that no task takes is
    kept. `pure` promises the same result for the same arguments, and no other effect."""

    name: str = ""
    attempts: int = 3
    retry_delay: float = 1.0
    timeout: float | None = None
    priority: int = 0
    keep: bool | None = None
    pure: bool = False

    def to_json(self) -> bytes:
        """Only what differs from the defaults: most tasks store two bytes."""
        if self == DEFAULT_OPTIONS:
            return b"{}"
        default = asdict(DEFAULT_OPTIONS)
        return to_json({key: value for key, value in asdict(self).items() if value != default[key]})

    @classmethod
    def from_json(cls, data: bytes) -> TaskOptions:
        if data == b"{}":
            return DEFAULT_OPTIONS
        return cls.from_value(from_json(data, "the options of a task"))

    @classmethod
    def from_value(cls, value: Any) -> TaskOptions:
        """Read options from parsed JSON. Raises PayloadUndecodable for values that make no
        sense."""
        if not isinstance(value, dict):
            raise PayloadUndecodable("the options of a task are not a JSON object")
        known = {field.name for field in fields(cls)}
        options = cls(**{key: item for key, item in value.items() if key in known})
        if not options._plausible():
            # Anybody may write a record; a wrong type would break the worker far from here.
            raise PayloadUndecodable("the options of a task make no sense")
        name = _text(options.name)
        return options if name == options.name else replace(options, name=name)

    def _plausible(self) -> bool:
        def number(value: Any, least: float) -> bool:
            # Bounded, because whole numbers beyond the range of a float break what reckons with it.
            return type(value) in (int, float) and least <= value < NUMBER_MAX

        return (
            type(self.name) is str
            and type(self.attempts) is int
            and number(self.attempts, 0)
            and type(self.priority) is int
            and number(self.priority, -NUMBER_MAX)
            and number(self.retry_delay, 0)
            and (self.timeout is None or (number(self.timeout, 0) and self.timeout > 0))
            and (self.keep is None or type(self.keep) is bool)
            and type(self.pure) is bool
        )


DEFAULT_OPTIONS = TaskOptions()


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The data of a plan, which never change. `uid` tells a repeated creation from another plan.

    `retention` is how long it stays after its end, in seconds; with None nothing is said about it.
    """

    name: str
    uid: str
    created: float
    defaults: TaskOptions = DEFAULT_OPTIONS
    on_failure: OnFailure = "hold"
    format: int = FORMAT
    retention: float | None = None

    def to_bytes(self) -> bytes:
        value = asdict(self)
        value["defaults"] = json.loads(self.defaults.to_json())
        if self.retention is None:
            del value["retention"]
        return to_json(value)

    @classmethod
    def from_bytes(cls, data: bytes) -> PlanRecord:
        """Raises PayloadUndecodable for a newer format; missing fields take their defaults."""
        value = from_json(data, "a plan record") if data else {}
        written = value.get("format", FORMAT)
        if written != FORMAT:
            known = written if isinstance(written, int | float) else "unknown"
            raise PayloadUndecodable(
                f"the plan has format {known}, this zkplan reads {FORMAT}: upgrade zkplan"
            )
        return cls(
            name=_text(value.get("name")),
            uid=_text(value.get("uid")),
            created=_seconds(value.get("created", 0.0), "a plan record"),
            defaults=TaskOptions.from_value(value.get("defaults", {})),
            on_failure="cascade" if value.get("on_failure") == "cascade" else "hold",
            retention=_retention(value.get("retention")),
        )


class TaskRecord(NamedTuple):
    """The definition of a task: `positions` edges to fill, and three blobs of the codec."""

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


class Edge(NamedTuple):
    """The data of a `prov-`: the dependent's `dep-`, its number of edges and its rank."""

    task: str
    position: str
    k: int
    rank: str

    def to_bytes(self) -> bytes:
        # Written by hand: json.dumps costs six times as much, and edges are the most frequent
        # record.
        return (
            f'{{"dep":"task-{self.task}/dep-{self.position}","k":{self.k},'
            f'"entry":"{self.rank}-{self.task}"}}'
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Edge:
        """`k` is -1 and `rank` empty where another client wrote only the path of the dep."""
        value = from_json(data, "an edge")
        dep = _text(value.get("dep"))
        task, position = dep[-25:-15], dep[-10:]
        numbers = task + position
        if len(numbers) != 20 or not (numbers.isascii() and numbers.isdecimal()):
            raise PayloadUndecodable(f"an edge names no dep: {dep!r:.100}")
        if dep[-15:-10] != "/dep-":
            raise PayloadUndecodable(f"an edge names no dep: {dep!r:.100}")
        k = value.get("k")
        known = k if isinstance(k, int) and 0 <= k < 2**31 else -1
        return cls(task, position, known, _rank(value.get("entry")))


class Failure(NamedTuple):
    """Why an attempt failed. `exception` is pickled, or empty if it cannot be."""

    kind: str
    message: str
    traceback: str
    worker: str
    n: int
    when: float
    exception: bytes = b""

    def to_bytes(self) -> bytes:
        facts = to_json(self._asdict() | {"exception": None})
        return _FAILURE_HEAD.pack(len(facts)) + facts + self.exception

    @classmethod
    def from_bytes(cls, body: bytes) -> Failure:
        try:
            (size,) = _FAILURE_HEAD.unpack_from(body)
        except struct.error:
            raise PayloadUndecodable("a failure record is cut short") from None
        facts = from_json(body[4 : 4 + size], "a failure record")
        return cls(
            _text(facts.get("kind"), "?"),
            _text(facts.get("message")),
            _text(facts.get("traceback")),
            _text(facts.get("worker")),
            _whole(facts.get("n", 0), "a failure record"),
            _seconds(facts.get("when", 0.0), "a failure record"),
            body[4 + size :],
        )

    @property
    def summary(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


class Dead(NamedTuple):
    """The data of `dead/TASK`: enough to show the failure and to retry the task.

    `n` is the number of the last claim, `a` the number of attempts used up. The last claim counts
    as an attempt, even if its function did not run, unless losses of workers had used up all
    attempts before.
    """

    rank: str
    n: int
    a: int
    name: str
    error: str
    worker: str

    def to_bytes(self) -> bytes:
        return to_json(self._asdict())

    @classmethod
    def from_bytes(cls, data: bytes) -> Dead:
        """Never raises, because one damaged dead letter must not hide the others. Its `n` is then
        -1."""
        try:
            value = from_json(data, "a dead letter")
            n = _whole(value.get("n", 0), "a dead letter")
            a = _whole(value.get("a", 0), "a dead letter")
        except PayloadUndecodable as error:
            return cls("5000", -1, 0, "", f"(its dead letter is damaged: {error})", "")
        return cls(
            _rank(value.get("rank")) or "5000",
            n,
            a,
            _text(value.get("name")),
            _text(value.get("error")),
            _text(value.get("worker")),
        )


class WorkerRecord(NamedTuple):
    """A living worker. `started` is in wall-clock seconds; `claims` counts the tasks that it has
    claimed. `keys` names its keys, the one that it seals with first, as far as it says."""

    id: str
    host: str
    pid: int
    slots: int
    started: float
    claims: int = 0
    keys: str = ""

    def to_bytes(self) -> bytes:
        value = self._asdict()
        told = ("host", "pid", "slots", "started", *(["keys"] if self.keys else []))
        return to_json({name: value[name] for name in told})

    @classmethod
    def from_bytes(cls, worker: str, data: bytes, claims: int) -> WorkerRecord:
        """Never raises, because one damaged record must not hide the other workers."""
        what = f"the record of worker {worker}"
        try:
            value = from_json(data, what) if data else {}
            return cls(
                worker,
                _text(value.get("host")),
                _whole(value.get("pid", 0), what),
                _whole(value.get("slots", 0), what),
                _seconds(value.get("started", 0.0), what),
                claims,
                _text(value.get("keys")),
            )
        except PayloadUndecodable:
            return cls(worker, "(damaged record)", 0, 0, 0.0, claims)


def count_from_bytes(data: bytes) -> int:
    """K, the number of edges that a task's `ready` holds; -1 where it holds none."""
    # Ten digits, because int() refuses numbers of thousands of digits.
    return int(data) if data.isdigit() and len(data) <= 10 else -1


def control_to_bytes(state: State) -> bytes:
    return to_json({"state": state})


def control_from_bytes(data: bytes) -> State:
    """The state in a plan's `ready`. An empty one, as other clients create it, means running.

    Anything unreadable means paused: a plan must never run because its control record is damaged.
    """
    if not data:
        return "running"
    try:
        state = from_json(data, "a control record").get("state")
    except PayloadUndecodable:
        return "paused"
    if state == "running":
        return "running"
    return "cancelled" if state == "cancelled" else "paused"


def starting_control(data: bytes) -> bytes:
    """What the first version of a `ready` holds where keys are used: a plan that does not run yet.

    The state that it was made for, `data`, follows with the next version.
    """
    if control_from_bytes(data) != "running":
        return data
    return to_json({"state": "paused", "starts": True})
