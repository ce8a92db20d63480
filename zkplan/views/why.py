"""Explain why a plan or a task does not run now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

from ..basics.text import count, date_time
from ..values.connection import Connection
from .deadlock import dead_if_deadlocked, first_failures
from .gates import gates_of
from .why_facts import Cause, View, Why, code_notes
from .why_task import (
    NAMED,
    ONLY_SKIPPED,
    causes_of,
    gate_cause,
    no_living_worker,
    sentence,
    waits,
)

#: How many runnable tasks of a plan are examined for the reason why a worker handed them back.
LOOKED_AT = 5


def why_task(client: Connection, plan_path: str, number: str) -> Why:
    """See Task.why."""
    view = View(client, plan_path)
    task = view.task(number)
    found: list[Cause] = []
    if task.state != "finished":
        found += plan_causes(view)
    if view.status.state != "cancelled" or task.state in ("finished", "running"):
        found += waits(view, task) if task.state == "waiting" else causes_of(view, task)
    return Why(f"{plan_path}/task-{number}", task.state, _once(found))


def why_plan(client: Connection, plan_path: str) -> Why:
    """See Plan.why."""
    view = View(client, plan_path)
    found = list(plan_causes(view))
    if view.status.unread:  # its tasks cannot be read either
        return Why(plan_path, view.status.state, found)
    causes = _CONTENT_OF.get(view.status.state, CONTENT_CAUSES)
    if view.status.state == "failed" and view.status.ended:
        causes = (dead_tasks,)
    for find in causes:
        found += find(view)
    return Why(plan_path, view.status.state, _once(found))


def _once(causes: list[Cause]) -> list[Cause]:
    return list({cause.text: cause for cause in reversed(causes)}.values())[::-1]


# ---- the plan itself


def plan_causes(view: View) -> Iterator[Cause]:
    """What holds the whole plan back."""
    status, name = view.status, _named(view)
    if status.unread:
        yield Cause("unread", sentence(status.unread))
    if status.state == "done":
        yield Cause("done", sentence(f"{name} is done: all of its tasks have finished"))
    elif status.state == "cancelled":
        reason = f": {status.reason}" if status.reason else ""
        text = sentence(f"{name} was cancelled, for good{reason}")
        advice = f"Create a new plan. To delete this one: {view.command('plan rm')}."
        yield Cause("cancelled", text, advice)
    elif status.state == "defining":
        text = sentence(f"{name} is not marked ready, so no worker claims its tasks")
        command = view.command("plan mark-ready")
        advice = f"Its author calls mark_ready. If the plan is complete, mark it ready: {command}."
        yield Cause("not_marked_ready", text, advice)
    elif status.state == "paused":
        text = sentence(f"{name} is paused, so no worker claims its tasks")
        yield Cause("paused", text, f"Resume it: {view.command('plan resume')}.")
    begins = status.not_before
    if view.runs and begins is not None and begins > time.time():
        text = sentence(f"{name} does not begin before {date_time(begins, True)}")
        yield Cause("not_before", text, when=begins)


# ---- its tasks, taken together


def empty(view: View) -> Iterator[Cause]:
    if view.status.state == "running" and not view.status.tasks:
        text = f"{_named(view)} has no unfinished task"
        yield Cause("empty", sentence(text), "A worker ends it soon, or takes added tasks.")


def dead_tasks(view: View) -> Iterator[Cause]:
    status = view.status
    if not status.dead:
        return
    letters = first_failures(view.client.transport, view.plan_path, NAMED)
    errors = "; ".join(f"task {int(n)} ({each.name}): {each.error}" for n, each in letters)
    if status.ended is not None:
        failed = f"{count(status.dead, 'task')} of {status.added:,} failed"
        text = f"{_named(view)} has ended, and {failed}"
    else:
        verb = "is" if status.dead == 1 else "are"
        cancelled = any(each.error.startswith("TaskCancelled") for _, each in letters)
        ended = "out of attempts or cancelled" if cancelled else "out of attempts"
        text = f"{status.dead:,} of {count(status.tasks, 'unfinished task')} {verb} {ended}"
        text += ", and nothing else can run" if status.state == "failed" else ""
    text += f" ({errors})" if errors else ""
    if status.dead == len(letters) and all(view.lacks_arguments(n) for n, _ in letters):
        advice = f"{ONLY_SKIPPED}: {view.command('task skip', letters[0][0])}."
    else:
        advice = f"Remove what made them fail, then retry them: {view.command('plan retry')}."
        notes = code_notes([view.task(number) for number, _ in letters], view.workers)
        advice = " ".join([advice, *(each.text for each in notes)])
    yield Cause("dead", sentence(text), advice)


def claims_of_workers_gone(view: View) -> Iterator[Cause]:
    living = {worker.id for worker in view.workers}
    held: dict[str, list[str]] = {}
    for number in view.in_state("running"):
        worker = view.places[number].worker
        if worker not in living:
            held.setdefault(worker, []).append(number)
    for numbers in islice(held.values(), NAMED):
        yield from causes_of(view, view.task(numbers[0]))


def runnable_tasks(view: View) -> Iterator[Cause]:
    """Why no worker takes the first runnable tasks, such as a lack of slots: each cause once."""
    runnable = view.in_state("runnable")
    # The first task of each queue as well: perhaps no worker serves that queue.
    queues = {view.places[number].queue: number for number in reversed(runnable)}
    first = list(dict.fromkeys([*runnable[:LOOKED_AT], *queues.values()]))
    found = [cause for number in first for cause in causes_of(view, view.task(number))]
    once: dict[str, Cause] = {}
    for cause in found:
        once.setdefault(cause.text if cause.code == "unserved_queue" else cause.code, cause)
    yield from once.values()


def delayed_tasks(view: View) -> Iterator[Cause]:
    due = {n: place.due for n, place in view.places.items() if place.due is not None}
    if due:
        first = min(due.values())
        verb = "is" if len(due) == 1 else "are"
        text = f"{count(len(due), 'task')} {verb} delayed (after a failure, or not before a time), "
        text += "the first until "
        yield Cause("delayed", sentence(text + date_time(first, True)), when=first)


def gated_tasks(view: View) -> Iterator[Cause]:
    numbers = view.in_state("gated")
    first = gates_of(view.client, view.plan_path, numbers[:NAMED])
    yield from (gate_cause(view, gate) for gate in first)
    if len(numbers) > NAMED:
        more = f"{count(len(numbers) - NAMED, 'more gate')} not listed here"
        yield Cause("more", sentence(more), f"{_listing(view)}.")
    if numbers and view.runs and not view.workers:
        yield from filter(None, [no_living_worker(view, view.task(numbers[0]))])


def claimed_tasks(view: View) -> Iterator[Cause]:
    living = {worker.id for worker in view.workers}
    workers = [view.places[number].worker for number in view.in_state("running")]
    mine = [worker for worker in workers if worker in living]
    if mine:
        named = ", ".join(sorted(set(mine))[:NAMED])
        verb = "is" if len(mine) == 1 else "are"
        text = f"{count(len(mine), 'task')} {verb} claimed by {count(len(set(mine)), 'worker')}"
        text += f" ({named})"
        yield Cause("running", sentence(text), f"Nothing has to be done: {_listing(view)}.")


def stuck(view: View) -> Iterator[Cause]:
    """Tasks are left and none can run, for example after damage or the death of an author."""
    if view.status.state != "running" or not view.status.tasks or view.places:
        return
    proof = dead_if_deadlocked(view.client.paths, view.plan_path)
    if view.client.transport.run(proof) == 0:
        text = f"{count(view.status.tasks, 'task')} of {_named(view)} are left, and none can run"
        yield Cause("stuck", sentence(text), f"{view.command('plan check')} says why.")


#: The functions that find causes in the tasks of a plan, in the order of the output.
CONTENT_CAUSES = (
    *(empty, dead_tasks, claims_of_workers_gone, runnable_tasks, delayed_tasks),
    *(gated_tasks, claimed_tasks, stuck),
)
#: The functions for plans in other states. In a cancelled plan only claimed tasks go on.
_CONTENT_OF = {"done": (), "defining": (), "cancelled": (claims_of_workers_gone, claimed_tasks)}


def _named(view: View) -> str:
    name = f" ({view.status.name})" if view.status.name else ""
    return f"plan {int(view.plan_path[-10:])}{name}"


def _listing(view: View) -> str:
    return f"{view.command('task ls')} lists them"
