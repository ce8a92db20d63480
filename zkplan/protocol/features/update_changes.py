"""The changes of an update: what each demands, and its operations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ...errors import PayloadUndecodable, PlanError, TaskError
from ..core.commit_part import Part
from ..layout import Paths
from ..requests import Check, Create, Delete, Op, ReadData, Step
from ..transactions import OP_OVERHEAD, Registration
from .decisions import decide_ops, priority_ops, refuse_wide
from .retry import retry_ops, run_now_ops
from .task_place import Place, find_place

Verb = Literal["complete", "skip", "cancel", "retry", "move", "check"]
#: What a task has in place of a version.
FINISHED, DECIDED, UNKNOWN, UNDEFINED = "finished", "decided", "unknown", "being defined"
_STATES: dict[Verb, tuple[str, ...]] = {
    "skip": ("runnable", "delayed", "gated", "running", "dead", "waiting", "complete", "lost"),
    "cancel": ("runnable", "delayed", "gated", "running", "waiting", "complete", "lost"),
    "retry": ("dead", "delayed"),
    "move": ("runnable", "delayed", "waiting", "complete"),
    "check": ("runnable", "delayed", "gated", "running", "dead", "waiting", "complete"),
}


@dataclass(slots=True)
class Change:
    """What an update does with an existing task.

    The version of the task must be `expect` or begin with it, unless `expect` is empty. A
    completion has the `part` of its claim, a skip or a cancel the `sealed` outcome, a move the new
    `rank`.
    """

    task: str
    verb: Verb
    expect: str = ""
    sealed: bytes = b""
    rank: str = ""
    part: Part | None = None


class Against(NamedTuple):
    """Why a change or an added task cannot be applied: the version `found`, or `why` in words. `at`
    counts the changes, and after them the tasks to add."""

    at: int
    found: str
    why: str = ""


class Found(NamedTuple):
    """The place of a task, and what a retry needs to know."""

    place: Place
    is_gate: bool = False
    is_cut: bool = False


def version_of(place: Place) -> str:
    """The version of a task. Every move of the task changes it.

    >>> version_of(Place("runnable", rank="4990", n=2, a=1))
    'runnable.2.1.4990'
    >>> version_of(Place("waiting", version=1, k=3))
    'waiting.1.3.5000'
    """
    if place.state in ("waiting", "complete"):
        return f"waiting.{place.version}.{place.k}.{place.rank}"
    return f"{place.state}.{place.n}.{place.a}.{place.rank}"


def read_version(paths: Paths, plan: str, task: str) -> Step[str]:
    """The version of a task, or what it has in place of one; empty if it cannot be read."""
    try:
        place = yield from find_place(paths, plan, task)
    except TaskError:
        return UNDEFINED
    except (PlanError, PayloadUndecodable):
        return ""
    if place is not None:
        return version_of(place)
    node = yield ReadData(paths.task(plan, task))
    return FINISHED if node is None else DECIDED


def matches(version: str, expect: str) -> bool:
    """
    >>> matches("dead.3.3.5000", "dead"), matches("dead.3.3.5000", "dead.3")
    (True, True)
    >>> matches("dead.30.3.5000", "dead.3")
    False
    """
    return not expect or f"{version}.".startswith(f"{expect}.")


def objection(change: Change, found: Found, index: int) -> Against | None:
    """Why `change` cannot be applied to `found`; None if it can."""
    place, version = found.place, version_of(found.place)
    if not matches(version, change.expect):
        return Against(index, version)
    if place.state not in _STATES[change.verb]:
        return Against(index, version)
    if place.cascaded and change.verb in ("skip", "retry"):
        why = "its failure has gone to its dependents: retry the plan once it has ended"
        return Against(index, version, why)
    if change.verb == "retry" and found.is_cut:
        return Against(index, version, "it was cancelled while it waited, and lacks arguments")
    if change.verb in ("skip", "cancel", "move") and place.state == "waiting":
        try:
            refuse_wide("", change.task, place)
        except TaskError as error:
            return Against(index, version, str(error).lstrip("/"))
    return None


class Meeting:
    """The edges between tasks that an update ends and tasks that it cuts or moves."""

    def __init__(self, changes: list[Change], found: dict[int, Found]) -> None:
        self._ending = {
            each.part.loaded.claim.task_path for each in changes if each.part is not None
        }
        waiting = [changes[index] for index, each in found.items() if each.place.state == "waiting"]
        self._cut = {each.task for each in waiting if each.verb in ("skip", "cancel")}
        self._rank = {each.task: each.rank for each in waiting if each.verb == "move"}

    def part(self, part: Part) -> Part:
        """`part` without the edges that a cut deletes, and with the ranks that a move gives."""
        edges = [
            (prov, edge._replace(rank=self._rank.get(edge.task, edge.rank)))
            for prov, edge in part.loaded.edges
            if edge.task not in self._cut
        ]
        return replace(part, loaded=replace(part.loaded, edges=edges))

    def place(self, change: Change, place: Place) -> Place:
        """`place`; for a move, without the edges along which the update delivers."""
        if change.verb != "move":
            return place
        edges = [each for each in place.edges if each[1].rpartition("/")[0] not in self._ending]
        return place._replace(edges=tuple(edges))


def ops_of(me: Registration, plan: str, change: Change, found: Found, meeting: Meeting) -> list[Op]:
    """The operations of a change other than a completion."""
    plan_path = me.paths.plan(plan)
    place = meeting.place(change, found.place)
    match change.verb:
        case "skip" | "cancel":
            skips = change.verb == "skip"
            return decide_ops(plan_path, change.task, place, change.sealed, skips=skips)
        case "retry" if place.state == "delayed":
            return run_now_ops(plan_path, place)
        case "retry":
            return retry_ops(plan_path, change.task, place, is_gate=found.is_gate)
        case "move":
            return priority_ops(me.paths, plan, change.task, place, change.rank)
        case _:
            return check_ops(plan_path, change.task, place)


def check_ops(plan_path: str, task: str, place: Place) -> list[Op]:
    """Check that the task has not moved."""
    path = f"{plan_path}/task-{task}"
    if place.state in ("waiting", "complete"):
        ops: list[Op] = [Check(f"{path}/ready", place.version)]
        # A move replaces all edges of the task, so a check of one edge is enough.
        return [*ops, Check(place.edges[0][1])] if place.edges else ops
    if place.state == "dead":
        # Prove that it was not retried: the dead letter of a later death has the same name.
        witness = f"{path}/retry-{place.n}"
        return [Create(witness), Delete(witness), Check(place.path)]
    return [Check(place.path)]


def weight_of(change: Change, place: Place | None) -> tuple[int, int]:
    """Upper bounds for the operations and bytes of a change."""
    if change.part is not None:
        return change.part.op_count, change.part.size
    edges = 0 if place is None else len(place.edges) + place.k - place.version
    ops = 8 + 2 * edges + (0 if place is None else len(place.permits))
    return ops, ops * (OP_OVERHEAD + 200) + len(change.sealed)
