"""Register a worker; clear the desk of one that is gone: release its claims, settle its wakes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..errors import TransactionRejected
from ..layout import WAKE, ClaimName, Entry, Paths, parse_claim
from ..requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    SetData,
    Step,
)
from .publish import still_full
from .shared import Registration, wake_dependents

#: Claims released per transaction.
RELEASES_PER_MULTI = 40


class Cleared(NamedTuple):
    """What clearing a desk did: tasks released, dependents published, whether the desk went."""

    released: list[str]
    published: int = 0
    gone: bool = False


def register(
    paths: Paths, worker: str, data: bytes, uids: Iterator[str]
) -> Step[Registration | None]:
    """One life of a worker: an ephemeral registration and its desk; None where the ID was used."""
    me = Registration(paths, worker, uids)
    answer = yield Multi([Create(me.worker_path, data, ephemeral=True), Create(me.desk_path)])
    if isinstance(answer, Applied):
        return me
    if answer.reason is Reason.NO_NODE:
        raise TransactionRejected(f"{paths.root} has no worker and desk znodes: {answer.path}")
    return None  # an earlier copy, maybe of an expired session: take a new ID


def unregister(me: Registration) -> Step[bool]:
    """Leave: the registration and the empty desk go together; False where claims are left on it."""
    names = yield ReadChildren(me.desk_path)
    ops: list[Op] = [
        Delete(f"{me.desk_path}/{name}") for name in names or () if name.startswith(WAKE)
    ]
    ops += [Delete(me.worker_path), Delete(me.desk_path)]
    answer = yield Multi(ops)
    return isinstance(answer, Applied)


def vacant_desks(paths: Paths) -> Step[tuple[list[str], list[str]]]:
    """(living workers, desks without a worker).

    Desks are listed first: a registration and its desk are created together, so a desk seen before
    a worker is missing belongs to one that is gone. Should a lagging server show less, the guard of
    each clearing transaction refuses it.
    """
    desks, workers = yield ReadMany([ReadChildren(paths.desks), ReadChildren(paths.workers)])
    living = sorted(workers or ())
    return living, sorted(set(desks or ()) - set(living))


def clear_desk(paths: Paths, worker: str) -> Step[Cleared]:
    """Release every claim and settle every wake of a worker that is gone, then remove its desk."""
    desk = paths.desk(worker)
    names = yield ReadChildren(desk)
    if names is None:
        return Cleared([], gone=True)
    # The same transaction proves that the worker is gone; an ephemeral cannot be created over it.
    guard: list[Op] = [Create(paths.worker(worker)), Delete(paths.worker(worker))]
    claims = [(name, parsed) for name in sorted(names) if (parsed := parse_claim(name)) is not None]
    released: list[str] = []
    for start in range(0, len(claims), RELEASES_PER_MULTI):
        chunk = claims[start : start + RELEASES_PER_MULTI]
        done = yield from _release(paths, desk, guard, chunk)
        if done is None:
            return Cleared(released)
        released += done
    published = 0
    for name in sorted(names):
        if name.startswith(WAKE):
            count = yield from _settle_wake(paths, f"{desk}/{name}", guard)
            if count is None:
                return Cleared(released, published)
            published += count
    answer = yield Multi([*guard, Delete(desk)])
    return Cleared(released, published, isinstance(answer, Applied))


def _release(
    paths: Paths, desk: str, guard: list[Op], claims: list[tuple[str, ClaimName]]
) -> Step[list[str] | None]:
    """Release `claims`; gives the task paths released, None where the worker lives after all."""
    reads: list[ReadData | ReadChildren] = []
    for name, parsed in claims:
        task_path = paths.task(parsed.plan, parsed.task)
        reads += (
            ReadData(f"{desk}/{name}"),
            ReadData(task_path),
            ReadData(f"{task_path}/owner"),
            ReadData(f"{task_path}/started-{parsed.n}"),
        )
    nodes = yield ReadMany(reads)
    todo: list[tuple[str, list[Op], str]] = []
    for index, (name, parsed) in enumerate(claims):
        claim, task, owner, started = nodes[4 * index : 4 * index + 4]
        if claim is None:
            continue
        task_path = paths.task(parsed.plan, parsed.task)
        ops: list[Op] = [Delete(f"{desk}/{name}")]
        if task is not None:
            rank, _, used = claim.data.decode(errors="replace").partition(".")
            # An attempt is used up only where the function is known to have started: most of what
            # a worker holds when it dies has not, and must not run out of attempts for that.
            a = (int(used) if used.isdecimal() and len(used) < 10 else 0) + (started is not None)
            rank = rank if rank.isdecimal() and len(rank) == 4 else "5000"
            entry = Entry(rank, parsed.task, parsed.n + 1, a)
            # The check keeps an entry from being made for a task removed since it was read.
            ops.append(Check(task_path))
            if owner is not None:
                ops.append(Delete(f"{task_path}/owner"))
            ops.append(Create(f"{paths.plan(parsed.plan)}/runnable/{entry.name}"))
        todo.append((name, ops, task_path))
    while todo:
        ops, owners = list(guard), [-1, -1]
        for index, (_, part, _) in enumerate(todo):
            ops += part
            owners += [index] * len(part)
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            return [task_path for _, part, task_path in todo if len(part) > 1]
        owner = owners[answer.at]
        if owner < 0:
            return None
        _mend_release(todo, owner, answer)
    return []


def _mend_release(todo: list[tuple[str, list[Op], str]], at: int, answer: Refused) -> None:
    name, part, task_path = todo[at]
    if answer.reason is not Reason.NO_NODE:
        raise TransactionRejected(f"releasing {name}: {answer.path}: {answer.reason.value}")
    if answer.path == part[0].path:
        del todo[at]  # committed or released meanwhile
    elif answer.path.endswith("/owner"):
        todo[at] = (name, [op for op in part if op.path != answer.path], task_path)
    else:
        todo[at] = (
            name,
            part[:1],
            task_path,
        )  # the task or its plan is gone: only the claim is left


def _settle_wake(paths: Paths, wake: str, guard: list[Op]) -> Step[int | None]:
    """Publish what a wake names and stands at K; None where the worker lives after all.

    The wake is read before the versions: a dependent seen below K then has a last deliverer still
    to come, with a wake of its own.
    """
    node = yield ReadData(wake)
    if node is None:
        return 0
    nobody = Registration(paths, "", iter(()))
    named = list(dict.fromkeys(wake_dependents(node.data)))
    while True:
        full = yield from still_full(nobody, named)
        ops: list[Op] = list(guard)
        for target in full:
            plan_path = paths.plan(target.plan)
            ready = f"{plan_path}/task-{target.task}/ready"
            ops.append(SetData(ready, b"%d" % target.k, target.k))
            ops.append(Create(f"{plan_path}/runnable/{target.entry.name}"))
        ops.append(Delete(wake))
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            return len(full)
        if answer.at < len(guard):
            return None
        if answer.path == wake:
            return 0
        # Somebody else published one of them meanwhile: read the versions again.
