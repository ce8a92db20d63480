"""Compare the blobs of a plan with the references to them: find missing and left-over ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..errors import PayloadUndecodable
from ..protocol.core.edges import NUMBER_BYTES, outcome_in
from ..protocol.core.load import read_all
from ..protocol.core.plans_and_queues import names_on_claims_nodes
from ..protocol.features.plan_check import Report
from ..protocol.layout import Paths, number_of, parse_claim, parse_task
from ..protocol.records import TaskRecord, control_from_bytes, without_sources
from ..protocol.requests import Applied, Check, Multi, ReadChildren, ReadData, ReadMany, Step
from ..transport import Transport
from .blobs import ADDED, HISTORY, PART, Reference, digest_of, is_stored, key_of
from .codec import TASK, VALUE, seal, seal_without_digest, task_options, unsealed
from .function_codec import split_name
from .plan_values import HOW_TO_GIVE, Values
from .shared import constants_of
from .store import Store

TASKS_PER_BATCH = 300
#: The maximum of bytes of blobs that a check reads to find damaged ones.
READ_BYTES_MAX = 1024**3
NOT_LOOKED_AT = (
    "no store is set here, so stored values were not looked at: give the store of the workers "
    f"{HOW_TO_GIVE}"
)
References = Callable[[bytes], list[str]]


class Holder(NamedTuple):
    """A znode whose data refer to a blob."""

    path: str
    data: bytes


class Compared(NamedTuple):
    """`held` maps each referenced blob to a znode that refers to it. `unreferenced` are the given
    blobs that no znode refers to, or ever will."""

    held: dict[str, Holder]
    unreferenced: list[str]


def references_in(data: bytes) -> list[Reference]:
    """The references in the data of a znode, without a check of its seal: nothing is decoded."""
    try:
        kind, body = _opened(data)
        if kind == TASK:
            record = TaskRecord.from_bytes(body)
            bodies = [split_name(record.function)[1], record.arguments]
            bodies += constants_of(task_options(record))
        else:
            bodies = [split_name(body)[1]] if kind == VALUE else []
        return [Reference.from_bytes(part) for part in bodies if is_stored(part)]
    except PayloadUndecodable:
        return []  # its reader reports that


def _opened(data: bytes) -> tuple[bytes, bytes]:
    """The kind and the body of the data of a znode, which are an envelope, an argument or a
    definition. Raises PayloadUndecodable."""
    if data[:NUMBER_BYTES].isdigit():
        data = outcome_in(data)
    kind, body = unsealed(data)
    return (kind, body) if kind != TASK else unsealed(without_sources(data))


def moved(data: bytes, store: str) -> bytes:
    """The same data, with references to that store. So after an import, a missing value counts as
    lost, and not as one in another store."""
    references = references_in(data)
    if not references:
        return data
    kind, body = _opened(data)
    for envelope in (seal, seal_without_digest):
        before, found, after = data.partition(envelope(kind, body))
        if found:
            for each in references:
                # Both have the same length, so no length in the body changes.
                old, new = each.to_bytes(), each._replace(store=store).to_bytes()
                body = body.replace(old, new).replace(old.hex().encode(), new.hex().encode())
            return before + envelope(kind, body) + after
    return data  # damaged data stay damaged


def names_in(data: bytes) -> list[str]:
    """The names of the blobs that the data of a znode refer to."""
    return [reference.name for reference in references_in(data)]


def compare(
    paths: Paths, plan: str, names: Sequence[str], references: References = names_in
) -> Step[Compared]:
    """Read everything in a plan that may refer to blobs. `names` are its blobs, listed before.

    A blob `TASK.N` is left over if claim N of its task does not exist and nothing refers to the
    blob. The claim was made before the blob was written. So this sees the claim, or the claim has
    ended: without a commit, or with one, whose references are read after it. The references of a
    finished task do not move; before its end, they are in its `result`. A task that ends between
    these reads keeps its blobs until the next check.
    """
    path = paths.plan(plan)
    # A member that lags behind may show an older state than the list of blobs. After its answer to
    # a transaction it shows the current state.
    if not isinstance((yield Multi([Check(path)])), Applied):
        return Compared({}, [])  # the plan was removed
    claimed = set()
    for _, name in (yield from names_on_claims_nodes(paths, strict=True)):
        claim = parse_claim(name)
        if claim is not None and claim.plan == plan:
            claimed.add(f"{claim.task}.{claim.n}")
    done, ready, children = yield ReadMany(
        [ReadData(f"{path}/done"), ReadData(f"{path}/ready"), ReadChildren(path)], strict=True
    )
    held: dict[str, Holder] = {}
    tasks = sorted(name for name in children or () if parse_task(name) is not None)
    gone: set[str] = set()
    for start in range(0, len(tasks), TASKS_PER_BATCH):
        batch = tasks[start : start + TASKS_PER_BATCH]
        gone |= yield from _read_tasks(path, batch, references, held)
    kept = (yield ReadChildren(f"{path}/results")) or []
    yield from _read(_paths(f"{path}/results", sorted(kept)), references, held)
    # A done plan with tasks may be retried, and then accepts new tasks.
    has_ended = (done is not None and not tasks) or (
        ready is not None and control_from_bytes(ready.data) == "cancelled"
    )
    unreferenced = [
        name for name in names if name not in held and _is_over(name, has_ended, claimed, gone)
    ]
    return Compared(held, unreferenced)


def first_holder(path: str) -> Step[Holder | None]:
    """The first znode of the plan that is found to refer to a blob, or None."""
    held: dict[str, Holder] = {}
    children = (yield ReadChildren(path)) or []
    tasks = sorted(name for name in children if parse_task(name) is not None)
    for start in range(0, len(tasks), TASKS_PER_BATCH):
        yield from _read_tasks(path, tasks[start : start + TASKS_PER_BATCH], names_in, held)
        if held:
            break
    kept = () if held else (yield ReadChildren(f"{path}/results")) or ()
    results = _paths(f"{path}/results", sorted(kept))
    for start in range(0, len(results), TASKS_PER_BATCH):
        yield from _read(results[start : start + TASKS_PER_BATCH], names_in, held)
        if held:
            break
    return next(iter(held.values()), None)


def _read_tasks(
    path: str, batch: list[str], references: References, held: dict[str, Holder]
) -> Step[set[str]]:
    """Read tasks with their arguments. Returns the numbers of those that ended meanwhile."""
    gone: set[str] = set()
    wanted = [f"{path}/{task}" for task in batch]
    listed = yield ReadMany([ReadChildren(task) for task in wanted], strict=True)
    for task, names in zip(list(wanted), listed, strict=True):
        if names is None:
            gone.add(number_of(task))
            continue
        inner = [name for name in names if name == "result" or name.startswith("arg-")]
        wanted += _paths(task, inner)
    for at in (yield from _read(wanted, references, held)):
        parent, _, name = at.rpartition("/")
        if name == "result":
            gone.add(number_of(parent))
    return gone


def _paths(path: str, names: list[str]) -> list[str]:
    return [f"{path}/{name}" for name in names]


def _read(wanted: list[str], references: References, held: dict[str, Holder]) -> Step[list[str]]:
    """Note which blobs the znodes refer to. Returns the paths of missing znodes."""
    nodes = yield from read_all([ReadData(path) for path in wanted])
    gone = []
    for path, node in zip(wanted, nodes, strict=True):
        if node is None:
            gone.append(path)
            continue
        for name in references(node.data):
            held.setdefault(name, Holder(path, node.data))
    return gone


def _is_over(name: str, has_ended: bool, claimed: set[str], gone: set[str]) -> bool:
    """Whether no znode can refer to that blob any more, if none was seen to refer to it."""
    key = key_of(name)
    if key == ADDED or name.endswith(PART):
        return has_ended  # its writer may be alive
    task, _, n = key.partition(".")
    is_of_task = len(task) == 10 and task.isdecimal() and n.isdecimal()
    return is_of_task and key not in claimed and task not in gone


# ---- what `zkplan plan check` says


def check_blobs(
    transport: Transport, paths: Paths, values: Values, plan: str, repair: bool, report: Report
) -> None:
    """Add to `report` the blobs of a plan that are gone, damaged or left over. `repair` deletes
    those left over. Without a store, it reports that if the plan has such values. Raises
    StoreUnavailable."""
    store, plan_path = values.store, paths.plan(plan)
    if store is None:
        holder = transport.run(first_holder(plan_path))
        if holder is not None:
            report.unchecked = f"{_named(holder)} lies in a store; {NOT_LOOKED_AT}"
        return
    folder = values.known_folder_of(plan_path)
    if not folder:
        return
    names = store.names(folder)
    found = transport.run(compare(paths, plan, names))
    if repair:
        store.delete(folder, found.unreferenced)
        report.deleted += found.unreferenced
    else:
        report.unreferenced += found.unreferenced
    of_history = [name for name in names if key_of(name) == HISTORY and not name.endswith(PART)]
    wrong = _damaged(store, folder, sorted(found.held.keys() & set(names)) + of_history, report)
    for name in of_history:
        if what := wrong.pop(name, None):
            report.problems.append(
                f"a part of its history in the store {what}: restore {folder}/{name}"
            )
    if not found.held.keys() <= set(names):
        # Blobs that were written or deleted since the list was made are no problem.
        now = set(store.names(folder))
        wrong |= {name: "is gone" for name in found.held if name not in now}
    nodes = transport.run(read_all([ReadData(found.held[name].path) for name in wrong]))
    ids, elsewhere = store.ids(), dict[str, list[Holder]]()
    for (name, what), node in zip(wrong.items(), nodes, strict=True):
        holder = found.held[name]
        if node is None or node.data != holder.data:
            continue
        written_to = _store_of(holder, name)
        if what == "is gone" and written_to not in ids:
            elsewhere.setdefault(written_to, []).append(holder)
            continue
        report.problems.append(f"{_named(holder)} in the store {what}: restore {folder}/{name}")
    for written_to, holders in sorted(elsewhere.items()):
        more = f" (and {len(holders) - 1} more)" if len(holders) > 1 else ""
        report.problems.append(
            f"{_named(holders[0])}{more} lies in another store than {store.url}, with ID "
            f"{written_to}, and was not looked at: check with that store, and give all workers and "
            "authors the same store"
        )


def _damaged(store: Store, folder: str, names: list[str], report: Report) -> dict[str, str]:
    """Which blobs do not match their digests. It reads at most READ_BYTES_MAX and one more blob,
    and counts the others."""
    wrong, size = {}, 0
    for at, name in enumerate(names):
        if size > READ_BYTES_MAX:
            report.unread = len(names) - at
            break
        read = store.digest(folder, name)
        if read is not None:  # otherwise it has just been deleted
            size += read[1]
            if read[0] != digest_of(name):
                wrong[name] = f"is damaged (it has {read[1]} bytes)"
    return wrong


def _store_of(holder: Holder, name: str) -> str:
    """The ID of the store that the blob was written to."""
    return next(each.store for each in references_in(holder.data) if each.name == name)


def _named(holder: Holder) -> str:
    """Name the task and the value, for a report."""
    *_, parent, name = holder.path.split("/")
    kind, body = _opened(holder.data)
    if kind == TASK:
        called = task_options(TaskRecord.from_bytes(body)).name
        return f"{name} ({called}): its function or its constant arguments" if called else name
    if parent == "results":
        called = split_name(body)[0]
        return f"task-{name}{f' ({called})' if called else ''}: its result"
    return f"{parent}: its {name}"
