"""Find the cause that keeps one task from running: one function for each cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..basics.text import count, date_time
from ..protocol.layout import (
    DEFAULT_QUEUE,
    OWN_LIMIT,
    kind_in,
    limit_path,
    limits_in,
    parse_lease,
    queue_in,
)
from .deadlock import no_worker, refusal
from .dependencies import blocked_by, roots_of
from .gates import GateInfo, gates_of
from .history_search import decided_by
from .queues import resting
from .task_info import TaskInfo
from .why_facts import Cause, View, code_notes
from .workers import Held, held_longest, keys_fit

#: How many tasks a sentence names, and how many root causes are listed.
NAMED = 5

#: What a sentence adds about a task whose `run_if` accepts failures.
_RUN_IF = {
    "all_finished": "; it runs also if they fail for good (run_if=all_finished)",
    "any_failed": "; it runs only if one of them fails for good (run_if=any_failed)",
}

#: What is left to do with a task that was cancelled while it waited.
ONLY_SKIPPED = (
    "It was cancelled before its arguments came, so skip it (--value JSON) or add it anew"
)

Find = Callable[[View, TaskInfo], "Cause | None"]


def finished(view: View, task: TaskInfo) -> Cause | None:
    if task.state != "finished":
        return None
    ended = f"has failed for good: {task.last_error}" if task.failed else "has finished"
    if task.skipped:
        ended = "was skipped"
    if task.doubt:
        ended = f"has finished, or never was a task: {task.doubt}"
    text = sentence(f"{view.label(task.number)} {ended}")
    return Cause("finished", text, task=task.number)


def decided(view: View, task: TaskInfo) -> Cause | None:
    if task.state != "decided":
        return None
    text = (
        f"the outcome of {view.label(task.number)} is fixed, for example by a skip, and a worker "
        "delivers it"
    )
    return Cause("decided", sentence(text), "Its function does not run again.", task.number)


def dead(view: View, task: TaskInfo) -> Cause | None:
    if task.state != "dead":
        return None
    blocked, whole = blocked_by(view.client.transport, view.plan_path, task.number)
    more = "" if whole else "at least "
    blocks = f"and blocks {more}{count(blocked, 'other task')}"
    retry = view.command("task retry", task.number)
    if task._was_cancelled:
        by = decided_by(view.client.values, view.plan_path, task.number)
        told = f"was cancelled by an operator{f' ({by})' if by else ''}"
        text = f"{view.label(task.number)} {told}, {blocks}"
        advice = f"To let it run all the same, retry it: {retry}."
    else:
        told = f"is out of attempts ({task.attempts_used} used)"
        text = f"{view.label(task.number)} {told}, {blocks}; it failed with {task.last_error}"
        advice = f"Remove what made it fail, then retry it: {retry}."
    if view.lacks_arguments(task.number):
        advice = f"{ONLY_SKIPPED}: {view.command('task skip', task.number)}."
    else:
        advice = " ".join([advice, *(each.text for each in code_notes([task], view.workers))])
    return Cause("dead", sentence(text), advice, task.number)


def delayed(view: View, task: TaskInfo) -> Cause | None:
    if task.due is None or task.state != "delayed":
        return None
    if task.not_before is not None and task.due >= task.not_before > task.due - 1:
        text = f"{view.label(task.number)} may not run before {date_time(task.not_before, True)}"
        return Cause("not_before", sentence(text), "", task.number, when=task.not_before)
    error = f", after {task.last_error}" if task.last_error else ""
    text = (
        f"{view.label(task.number)} is delayed until {date_time(task.due, True)}, "
        f"when its next attempt may begin ({task.attempts_used} of {task.attempts} used){error}"
    )
    notes = code_notes([task], view.workers) if task.last_error else []
    advice = " ".join(each.text for each in notes if each.is_sure)
    return Cause("delayed", sentence(text), advice, task.number, when=task.due)


def gated(view: View, task: TaskInfo) -> Cause | None:
    if task.state != "gated":
        return None
    found = next(iter(gates_of(view.client, view.plan_path, [task.number])), None)
    return gate_cause(view, found) if found is not None else None


def gate_cause(view: View, gate: GateInfo) -> Cause:
    text = f"{view.label(gate.task)} waits for {gate.waits_for}"
    if gate.error:
        text += f"; worker {gate.worker} cannot look at it: {gate.error}"
    elif gate.looked is not None:
        text += f"; last looked at {date_time(gate.looked, True)} by worker {gate.worker}"
    else:
        text += "; no worker has looked at it yet"
    advice = "It takes no slot meanwhile, and opens by itself." if not gate.error else ""
    return Cause("gated", sentence(text), advice, gate.task, gate.worker, gate.looked)


def worker_gone(view: View, task: TaskInfo) -> Cause | None:
    if task.state != "running" or not _is_gone(view, task):
        return None
    text = (
        f"{view.label(task.number)} is claimed by {task.worker}, whose session has ended, so its "
        "result can no longer come"
    )
    advice = (
        "Wait a few seconds: another worker takes it over."
        if view.workers
        else f"{_capital(no_worker(view.client))}; it takes the task over."
    )
    return Cause("worker_gone", sentence(text), advice, task.number, task.worker or "")


def claimed(view: View, task: TaskInfo) -> Cause | None:
    if task.state != "running" or _is_gone(view, task):
        return None
    since = "" if task.since is None else f" since {date_time(task.since, True)}"
    text = f"{view.label(task.number)} is claimed by {task.worker}{since}"
    worker = next((each for each in view.workers if each.id == task.worker), None)
    if worker is not None and worker.claims > worker.slots:
        text += (
            f", which has claimed {worker.claims} tasks for {count(worker.slots, 'slot')}, so it "
            "may not have started"
        )
    else:
        text += ", and runs or is about to"
    advice = (
        "Nothing has to be done. If it takes too long, look into the log of that worker: "
        f"{view.command('task show', task.number)} shows what the task has logged."
    )
    return Cause("running", sentence(text), advice, task.number, task.worker or "", task.since)


def being_defined(view: View, task: TaskInfo) -> Cause | None:
    if task.state != "being defined":
        return None
    text = f"{view.label(task.number)} is not complete: its author is still adding it, or died"
    advice = f"If this does not change, run {view.command('plan check')}."
    return Cause("being_defined", sentence(text), advice, task.number)


def no_living_worker(view: View, task: TaskInfo) -> Cause | None:
    states = ("runnable", "delayed", "gated", "decided")
    if not view.runs or view.workers or task.state not in states:
        return None
    text = f"no worker is registered under {view.client.root}, so nothing takes the tasks"
    advice = f"Start one: `{view.client.command('worker')}`."
    return Cause("no_worker", sentence(text), advice)


def unserved_queue(view: View, task: TaskInfo) -> Cause | None:
    if not view.runs or not view.workers or task.state not in ("runnable", "delayed", "decided"):
        return None
    queue = _queue_of(view, task)
    if any(queue in worker.queues for worker in view.workers):
        return None
    text = f"no worker serves the queue {queue}, so nothing takes its tasks"
    advice = f"Start one: `{view.client.command(f'worker --queue {queue}')}`."
    return Cause("unserved_queue", sentence(text), advice)


def workers_at_rest(view: View, task: TaskInfo) -> Cause | None:
    """All workers of its queue are paused or draining."""
    if not view.runs or task.state not in ("runnable", "delayed", "decided"):
        return None
    text, advice = resting(view.client, _queue_of(view, task), view.workers)
    return Cause("workers_paused", sentence(text), sentence(advice)) if text else None


def _queue_of(view: View, task: TaskInfo) -> str:
    place = view.places.get(task.number)
    return queue_in(place.queue) if place is not None else task.queue or DEFAULT_QUEUE


def of_a_kind(view: View, task: TaskInfo) -> Cause | None:
    place = view.places.get(task.number)
    kind = kind_in(place.queue) if place is not None else ""
    if not kind or not view.runs or task.state not in ("runnable", "delayed"):
        return None
    text = (
        f"{view.label(task.number)} is of kind {kind}: it waits for a program that claims these, "
        "or for a worker that has a function of that kind"
    )
    advice = f"Start one: `{view.client.command('worker --serializer json --kinds MODULE')}`."
    return Cause("kind", sentence(text), advice, task.number)


def full_limit(view: View, task: TaskInfo) -> Cause | None:
    """One of the task's limits has no permit left, or does not exist any more."""
    place = view.places.get(task.number)
    states = ("runnable", "delayed", "decided")
    if not view.runs or place is None or task.state not in states:
        return None
    plan, limits = view.plan_path[-10:], {each.name: each for each in view.limits}
    for name in limits_in(place.queue):
        known = limit_path("", plan, name).rpartition("/")[2]
        told = f"the limit {name}" if name != OWN_LIMIT else "the plan's max_running"
        limit = limits.get(known)
        if limit is None:
            text = f"{told} does not exist any more, so no task that names it runs"
            advice = f"Set it: `{view.client.command(f'limit set {known} SIZE')}`."
            return Cause("no_limit", sentence(text), advice, task.number)
        if task.state != "delayed" and len(limit.held) >= limit.size:
            holders = ", ".join(
                f"task {int(each.task)} of plan {int(each.plan)}"
                for each in limit.held[:NAMED]
                if each.task.isdecimal() and each.plan.isdecimal()
            )
            held = "held" if limit.period is None else f"taken for {limit.period:g} s"
            text = f"{told} is full: {len(limit.held)} of {limit.size} permits are {held}"
            text += f" ({holders})" if holders else ""
            return Cause("limit_full", sentence(text), "Wait, or raise the limit.", task.number)
    return None


def refused(view: View, task: TaskInfo) -> Cause | None:
    """Workers have handed the task back, because they cannot decode it or reach the store."""
    if task.state != "runnable":
        return None
    told = refusal(view.client, f"{view.plan_path}/task-{task.number}")
    if not told:
        return None
    code = "store_away" if " waits for the store " in told else "undecodable"
    advice = (
        "Make the store reachable for that worker; the task then runs by itself."
        if code == "store_away"
        else "Give the workers the module, the secret or the Python version that it needs, and "
        "restart them; see `zkplan task show`."
    )
    return Cause(code, sentence(told), advice, task.number)


def keys_differ(view: View, task: TaskInfo) -> Cause | None:
    """No worker has registered with the key of this client."""
    if not view.runs or not view.workers or task.state != "runnable":
        return None
    ours = view.client.keys[0].name if view.client.keys else ""
    if any(keys_fit(view.client, worker) for worker in view.workers):
        return None
    text = f"no worker has the key {ours} (secret-files), so no worker runs what the key sealed"
    if not ours:
        text = "the workers run only what their keys (secret-files) seal, and this client has none"
    advice = "Give them and the author the same keys: `zkplan worker ls` shows who has which."
    return Cause("undecodable", sentence(text), advice, task.number)


def all_slots_busy(view: View, task: TaskInfo) -> Cause | None:
    if not view.runs or task.state != "runnable":
        return None
    queue = _queue_of(view, task)
    workers = [each for each in view.workers if each.state == "running" and queue in each.queues]
    if not workers:
        return None
    # A worker replaces the threads of functions that were given up, at most as many as its slots.
    lost = {each.id: max(0, each.abandoned - each.slots) for each in workers}
    if any(worker.claims + lost[worker.id] < worker.slots for worker in workers):
        return None
    slots, waiting = sum(worker.slots for worker in workers), view.status.runnable
    text = f"all {count(slots, 'slot')} of {count(len(workers), 'worker')} are busy"
    advice = "Wait, or start more workers."
    given_up = [worker for worker, number in lost.items() if number]
    if given_up:
        text += f", {sum(lost.values())} of them with functions that were given up and have not "
        text += f"returned ({_several(given_up)})"
        advice += f" Restart {_several(given_up)}."
    text += f"; {count(waiting, 'task')} of this plan {'is' if waiting == 1 else 'are'} runnable"
    ids = [worker.id for worker in workers[:NAMED]]
    held = view.client.transport.run(held_longest(view.client.paths, ids, NAMED))
    if not held:
        return Cause("slots_busy", sentence(text), advice)
    text += f". Longest busy: {_several([_holder(each) for each in held])}"
    first = held[0]
    stop = view.client.command(f"task cancel {int(first.plan)} {int(first.task)}")
    advice += f" To free a slot, cancel what is not needed: `{stop}`."
    return Cause("slots_busy", sentence(text), advice, worker=first.worker, when=first.since)


def _holder(held: Held) -> str:
    since = date_time(held.since, True)
    return f"task {int(held.task)} of plan {int(held.plan)} on {held.worker} since {since}"


def _several(names: list[str]) -> str:
    """The first of these names, for a sentence."""
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")


#: The functions that find the causes of a task that waits for no other, in the order of output.
TASK_CAUSES: tuple[Find, ...] = (
    *(finished, decided, dead, worker_gone, claimed, being_defined, delayed, gated),
    *(of_a_kind, no_living_worker, unserved_queue, workers_at_rest, full_limit, refused),
    *(keys_differ, all_slots_busy),
)


def causes_of(view: View, task: TaskInfo) -> list[Cause]:
    """The causes of a task that does not wait for others."""
    found = [cause for find in TASK_CAUSES if (cause := find(view, task)) is not None]
    if not found and view.runs:
        text = f"{view.label(task.number)} is {task.state}, and a worker with a free slot takes it"
        advice = "Ask again in a few seconds."
        found = [Cause("soon", sentence(text), advice, task.number)]
    return found


def waits(view: View, task: TaskInfo) -> Iterator[Cause]:
    """What a waiting task waits for, and the causes of the tasks at the ends of its chains."""
    chain = roots_of(view.client.transport, view.plan_path, task.number, view.places)
    shown = sorted(chain.direct, key=lambda number: _urgency(view, number))[:NAMED]
    named = ", ".join(f"{view.label(each)}, {view.task(each).state}" for each in shown)
    rest = chain.edges - len(shown)
    text = f"{view.label(task.number)} waits for {count(chain.edges, 'result')}"
    text += f", of {named}" if named else ""
    text += f", and of {rest:,} more" if named and rest > 0 else ""
    text += _RUN_IF.get(task.run_if or "", "")
    yield Cause("waits", sentence(text), "", task.number)
    roots = sorted(chain.roots, key=lambda number: _urgency(view, number))
    for root in roots[:NAMED]:
        yield from causes_of(view, view.task(root))
    if len(roots) > NAMED:
        more = f"{count(len(roots) - NAMED, 'more task')} that it waits for in the end"
        yield Cause("more", sentence(f"{more} are not listed here"), task=task.number)
    if not chain.whole:
        yield from _far(view, task, bool(roots))
    elif chain.unnamed or not roots:
        text = f"{view.label(task.number)} waits for a result that may never come: a broken edge"
        advice = f"Ask again; if this does not change, run {view.command('plan check')}."
        yield Cause("broken_edge", sentence(text), advice, task.number)


def _far(view: View, task: TaskInfo, some_known: bool) -> Iterator[Cause]:
    """Too many edges to follow. If only one task does not wait, all others wait for it."""
    if not some_known and len(view.places) == 1:
        yield from causes_of(view, view.task(*view.places))
        return
    text = (
        f"{view.label(task.number)} waits for too many tasks to follow all of its edges, so there "
        "may be other causes"
    )
    advice = f"For the causes of the whole plan: {view.command('plan why')}."
    yield Cause("far", sentence(text), advice, task.number)


def _urgency(view: View, number: str) -> tuple[bool, bool, str]:
    place = view.places.get(number)
    return place is None or place.state != "dead", place is None, number


def _is_gone(view: View, task: TaskInfo) -> bool:
    worker = task.worker or ""
    is_lease = parse_lease(worker) is not None
    return bool(worker) and not is_lease and all(each.id != worker for each in view.workers)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """`text`, even that of an exception, as one line with a capital and a full stop."""
    line = " ".join(text.split())
    return _capital(line if line.endswith((".", "!", "?", "…")) else f"{line}.")
