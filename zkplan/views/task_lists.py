"""List the tasks of one plan: the unfinished ones, and the outcomes that are kept. Count them,
and show a bar."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ..basics.text import one_line
from ..errors import PayloadUndecodable, PlanNotFound
from ..protocol.core.load import VALUES_FIRST, read_all, values_next
from ..protocol.core.plan_life import status
from ..protocol.core.plans_and_queues import index_names, names_on_claims_nodes, read_entries
from ..protocol.layout import (
    DEFAULT_QUEUE,
    Paths,
    number_of,
    parse_claim,
    parse_delayed,
    parse_gate,
    parse_number,
)
from ..protocol.records import Dead
from ..protocol.requests import Node, ReadChildren, ReadData, ReadMany, Step
from ..protocol.transactions import claim_facts
from ..transport import Transport
from ..values.blobs import value_size
from ..values.codec import FAILURE, VALUE, Codec, task_options
from ..values.connection import Connection
from ..values.function_codec import is_skipped, split_name

#: How many tasks are read together. Little time passes between reading them and the indexes.
TASKS_PER_READ = 100
#: Seconds after which the indexes are read again, because a caller may iterate slowly.
INDEXES_AGE_S = 1.0


class TaskSummary(NamedTuple):
    """An unfinished task, as it was when it was read.

    `state` is `being defined`, `waiting` (for other tasks), `gated` (it waits for a znode: see
    `zkplan.when`), `runnable`, `delayed`, `running`, `dead`, or `decided`: its outcome is fixed, as
    by a skip, and a worker is about to deliver it. `attempts` counts the attempts that are used up.
    `worker` is the worker that has claimed it, or empty. `due` is when a `delayed` task becomes
    runnable, in wall-clock seconds. `name` is the name given to the task, or the name of its
    function. It is None if it cannot be read here, because another client wrote the task or it is
    signed with another secret.
    """

    number: str
    name: str | None
    state: str
    attempts: int = 0
    worker: str = ""
    due: float | None = None


class Place(NamedTuple):
    """What an index says about a task. `claim` is the path of its claim, if it has one."""

    state: str = ""
    attempts: int = 0
    due: float | None = None
    worker: str = ""
    claim: str = ""
    queue: str = DEFAULT_QUEUE


def unfinished_tasks(client: Connection, plan_path: str) -> Iterator[TaskSummary]:
    """See Plan.tasks."""
    names = client.transport.ask(ReadChildren(plan_path))
    if names is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    return summaries(
        client, plan_path, sorted(name[5:] for name in names if name.startswith("task-"))
    )


def summaries(client: Connection, plan_path: str, numbers: list[str]) -> Iterator[TaskSummary]:
    """The tasks with these numbers, in this order. Finished tasks are left out."""
    places: dict[str, Place] = {}
    read_at = -INDEXES_AGE_S
    for start in range(0, len(numbers), TASKS_PER_READ):
        if time.monotonic() - read_at >= INDEXES_AGE_S:
            places = client.transport.run(places_of(client.paths, plan_path))
            read_at = time.monotonic()
        yield from _unfinished_summaries(
            client, plan_path, places, numbers[start : start + TASKS_PER_READ]
        )


def places_of(paths: Paths, plan_path: str) -> Step[dict[str, Place]]:
    """What the indexes say about the tasks of the plan, by task number."""
    plan = number_of(plan_path)
    indexes = ReadChildren(f"{plan_path}/dead"), ReadChildren(paths.delayed)
    dead, later, gates = yield ReadMany([*indexes, ReadChildren(paths.gates)])
    runnable = yield from read_entries(plan_path)
    places = dict.fromkeys(dead or (), Place("dead"))
    for queue, entry in runnable:
        places[entry.task] = Place("runnable", entry.a, queue=queue)
    for delayed in map(parse_delayed, later or ()):
        if delayed is not None and delayed.plan == plan:
            due = delayed.due_ms / 1000
            places[delayed.entry.task] = Place("delayed", delayed.entry.a, due, queue=delayed.queue)
    for gate in map(parse_gate, gates or ()):
        if gate is not None and gate.plan == plan:
            place = Place("gated", gate.entry.a, queue=gate.queue)
            places.setdefault(gate.entry.task, place)
    # Claims are read last: a task that is claimed after its entry was read counts as claimed.
    for worker, name in (yield from names_on_claims_nodes(paths)):
        claim = parse_claim(name)
        if claim is not None and claim.plan == plan:
            used = places.get(claim.task, Place()).attempts
            path = f"{paths.claims_of(worker)}/{name}"
            places[claim.task] = Place("running", used, worker=worker, claim=path)
    return places


def _unfinished_summaries(
    client: Connection, plan_path: str, places: dict[str, Place], numbers: list[str]
) -> list[TaskSummary]:
    found = [places.get(number, Place()) for number in numbers]
    reads: list[ReadData | ReadChildren] = []
    for number, place in zip(numbers, found, strict=True):
        path = f"{plan_path}/task-{number}"
        index = place.claim or f"{plan_path}/dead/{number}"
        reads += (ReadData(path), ReadChildren(path), ReadData(index))
    # Each definition holds constant arguments of up to 1 MB, so they are never read in one answer.
    answers = client.transport.run(read_all(reads))
    shown = []
    for at, (number, place) in enumerate(zip(numbers, found, strict=True)):
        node, names, index = answers[3 * at : 3 * at + 3]
        if node is None or names is None:
            continue  # finished meanwhile
        if index is not None and place.claim:
            place = place._replace(attempts=claim_facts(index.data).a)
        elif index is not None:
            place = Place("dead", Dead.from_bytes(index.data).a)
        name, state = name_of(client.codec, node.data), place.state or state_of(names)
        if state == "runnable" and "result" in names:
            state = "decided"
        shown.append(TaskSummary(number, name, state, place.attempts, place.worker, place.due))
    return shown


def state_of(names: list[str]) -> str:
    """The state of a task that is in no index, from its children."""
    if "incomplete" in names or "ready" not in names:
        return "being defined"
    if "owner" in names:
        return "running"
    # It is in no index and has no `dep-`: a transaction is moving it just now.
    return "waiting" if any(name.startswith("dep-") for name in names) else "runnable"


def name_of(codec: Codec, sealed: bytes) -> str | None:
    try:
        return task_options(codec.open_definition(sealed)).name
    except PayloadUndecodable:
        return None


# ---- List the kept outcomes of a plan's finished tasks, without decoding values.


class OutcomeSummary(NamedTuple):
    """The kept outcome of a task.

    `kind` is `result`, `skipped` (the value of a task that was skipped), `failure` or
    `undecodable` (damaged, or signed with another secret). `size` is in bytes. `name` is the name
    of the task, empty if it cannot be read here. `when` is the time at which it was kept, in
    wall-clock seconds of the server; for an imported plan, the time of the import.
    """

    number: str
    kind: str
    size: int
    name: str
    when: float


def kept_outcomes(client: Connection, plan_path: str, after: str = "") -> Iterator[OutcomeSummary]:
    """See Plan.outcomes. Only those of tasks behind the number `after`."""
    names = client.transport.run(index_names(plan_path, "results"))
    # zkplan did not make a znode with another kind of name.
    chosen = [name for name in names if parse_number(name) is not None and name > after]
    return _outcome_summaries(client.transport, client.codec, plan_path, chosen)


def outcome_nodes(
    transport: Transport, plan_path: str, numbers: Sequence[str], strict: bool
) -> Iterator[list[tuple[str, Node | None]]]:
    """Read the kept outcomes of tasks, None where there is none.

    It reads as it goes on, in batches whose answers are small enough for the server and for the
    memory of the caller: a value may have 1 MB. `strict`: see ReadMany.
    """
    start, count = 0, VALUES_FIRST
    while start < len(numbers):
        batch = numbers[start : start + count]
        start += count
        reads = [ReadData(f"{plan_path}/results/{number}") for number in batch]
        nodes = transport.ask(ReadMany(reads, strict))
        count = values_next(nodes)
        yield list(zip(batch, nodes, strict=True))


def _outcome_summaries(
    transport: Transport, codec: Codec, plan_path: str, chosen: list[str]
) -> Iterator[OutcomeSummary]:
    for batch in outcome_nodes(transport, plan_path, chosen, strict=False):
        here = [
            _outcome_summary(codec, number, node)
            for number, node in batch
            if node is not None  # else its task was retried meanwhile
        ]
        yield from _with_names(transport, plan_path, here)


def _outcome_summary(codec: Codec, number: str, node: Node) -> OutcomeSummary:
    when = node.created_ms / 1000
    try:
        kind, body = codec.open(VALUE + FAILURE, node.data)
    except PayloadUndecodable:
        return OutcomeSummary(number, "undecodable", len(node.data), "", when)
    if kind == FAILURE:
        return OutcomeSummary(number, "failure", len(body), "", when)
    name, value = split_name(body)
    kept = "skipped" if is_skipped(body) else "result"
    return OutcomeSummary(number, kept, value_size(value), name, when)


def _with_names(
    transport: Transport, plan_path: str, found: list[OutcomeSummary]
) -> list[OutcomeSummary]:
    """The dead letter of a failure holds the name of its task."""
    failed = [outcome.number for outcome in found if outcome.kind == "failure"]
    if not failed:
        return found
    letters = transport.ask(ReadMany([ReadData(f"{plan_path}/dead/{number}") for number in failed]))
    names = {}
    for number, letter in zip(failed, letters, strict=True):
        name = Dead.from_bytes(letter.data).name if letter is not None else ""
        # If no name could be read, the dead letter holds the number instead.
        names[number] = "" if name == f"task-{number}" else name
    return [outcome._replace(name=names.get(outcome.number, outcome.name)) for outcome in found]


# ---- How far a plan is: its tasks counted by state.


class PlanProgress(NamedTuple):
    """The tasks of a plan, counted by state. The counts were not all read at one moment.

    `running` counts the claimed tasks, `waiting` those that wait for others or are being defined,
    `gated` those that wait for a znode, `skipped` those of the finished ones, and of those about to
    be, that were skipped.
    """

    added: int
    finished: int
    running: int
    runnable: int
    delayed: int
    waiting: int
    dead: int
    gated: int = 0
    skipped: int = 0

    @property
    def fraction(self) -> float:
        """The part of the tasks that has finished, 0.0 to 1.0; 1.0 for an empty plan."""
        return self.finished / self.added if self.added else 1.0


def plan_progress(client: Connection, plan_path: str) -> PlanProgress:
    """See Plan.progress."""
    seen = client.transport.run(status(plan_path))
    found = client.transport.run(places_of(client.paths, plan_path))
    states = Counter(place.state for place in found.values())
    placed = min(seen.tasks, sum(states.values()))
    return PlanProgress(
        seen.added,
        seen.finished,
        states["running"],
        states["runnable"],
        states["delayed"],
        seen.tasks - placed,
        states["dead"],
        states["gated"],
        seen.skipped,
    )


# ---- A progress bar on a terminal, and nothing elsewhere.


#: Shows how many tasks of how many have finished, and a detail.
Show = Callable[[int, int, str], None]


@contextmanager
def progress_bar(title: str, wanted: bool = True) -> Iterator[Show | None]:
    """Show a bar on stderr while the block runs, if `wanted` and stderr is a terminal.

    Gives what updates it, or None if nothing is shown.
    """
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
    )
    # A line for a pipe must not go to the terminal that shows the bar.
    redirect = sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=redirect) as bar:
        row = bar.add_task(one_line(title), total=None, detail="")

        def show(finished: int, total: int, detail: str) -> None:
            bar.update(row, completed=finished, total=total, detail=detail)

        yield show
