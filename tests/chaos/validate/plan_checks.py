"""The checks of a plan of a chaos run, beside those of every run. Pure.

The numbers are those of the invariants in docs/internals/protocol.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ..traffic.waiter import WAIT_S
from ..traffic.workloads import parent_of
from .evidence import PlanEvidence


def arguments_are_undamaged(evidence: PlanEvidence) -> Iterator[str]:
    """S3: no byte of an argument has changed on the way."""
    for execution in evidence.everything:
        if execution.damaged:
            yield f"{execution} got damaged bytes from {execution.damaged}"


def all_is_under_its_own_number(evidence: PlanEvidence) -> Iterator[str]:
    """S4: a task runs, and its result is kept, under the number that its author was told."""
    numbers = evidence.numbers
    for execution in evidence.everything:
        number = numbers.setdefault(execution.key, execution.number)
        if execution.number != number:
            yield f"{execution} ran as task {execution.number}, and is task {number}"
    for kept in evidence.remains.kept:
        number = numbers.get(kept.key, kept.number)
        if kept.number != number:
            yield f"the kept result of {kept.key}, task {number}, is that of task {kept.number}"


def each_runs_where_its_queue_is_served(evidence: PlanEvidence) -> Iterator[str]:
    """S15: a task, and one run ahead, runs on a worker that serves its queue."""
    for execution in evidence.everything:
        if execution.queue not in execution.serves:
            yield f"{execution} is of the queue {execution.queue}, not of {execution.serves}"


def adds_are_whole(evidence: PlanEvidence) -> Iterator[str]:
    """S4: what was refused or never sent is nowhere; an atomic add is there wholly or not at all.

    There is what ran, what stands, what is dead, and what an operator has skipped.
    """
    there = {*evidence.executions, *evidence.standing, *evidence.dead, *evidence.skipped}
    known = {key for key in there if parent_of(key) is None}
    for number, batch in evidence.plan.batches.items():
        of_it = [key for key in batch.keys if key in known]
        known.difference_update(batch.keys)
        refused = [key for key in of_it if key not in batch.possible]
        if refused:
            yield f"add {number} was refused, and its task {refused[0]} is there"
        whole = evidence.ending == "removed" or len(of_it) in (0, len(batch.keys))
        if batch.state == "begun" and batch.atomic and not whole:
            yield f"of add {number}, which is atomic, {len(of_it)} of {len(batch.keys)} are there"
    yield from (f"task {key} was never added" for key in known)


def an_attempt_adds_with_its_commit(evidence: PlanEvidence) -> Iterator[str]:
    """Promise 8: a task added by a task was added by the execution that was committed."""
    for execution in evidence.everything:
        parent = parent_of(execution.key)
        if parent is None:
            continue
        winners = evidence.committed.get(parent)
        maker = evidence.by_uid.get(execution.by)
        if maker is None or maker.key != parent or not maker.returned:
            yield f"{execution} was added by {execution.by}, which is {maker}"
        elif winners is not None and execution.by not in winners:
            yield f"{execution} was added by {maker}, which was not committed"


def nothing_runs_before_it_is_ready(evidence: PlanEvidence) -> Iterator[str]:
    """S9: a plan is marked ready only after the adds that are to come before.

    After their answers; of an add that had none, after its begin.
    """
    plan = evidence.plan
    early = [each for n, each in plan.batches.items() if n < plan.workload.ready_after]
    ready = max((each.answered or each.begun for each in early), default=0.0)
    for execution in evidence.everything:
        if execution.began < ready:
            yield f"{execution} began before its plan was marked ready"


def kept_is_what_is_to_be_kept(evidence: PlanEvidence) -> Iterator[str]:
    """S4: the results that went to nobody stand, each once; all do where the plan keeps them.

    And of each dead task its failure. What was added after a task had ended does not make it a
    dependency of anything. The value of a skipped task may stand besides.
    """
    if evidence.ending == "removed":
        return
    certain, standing = evidence.certain, evidence.standing
    workload, batches = evidence.plan.workload, evidence.plan.batches.values()
    possible = {key for batch in batches for key in batch.possible}
    answered = {key: batch.answered for batch in batches for key in batch.certain}
    ended = {each.key: each.ended or 0.0 for each in evidence.everything if each.returned}
    needed, maybe = set[str](), set[str]()
    for item in workload.items.values():
        # What was skipped may have been cut from what it needs.
        if item.key in certain - evidence.skipped:
            at = answered.get(item.key, 0.0)  # what a task adds is added at once, with its edges
            needed |= {key for key in item.needs if ended.get(key, 0.0) >= at}
        if item.key.partition("/")[0] in possible:
            maybe.update(item.needs)
    counts = Counter(each.key for each in evidence.remains.kept)
    for key in certain - standing:
        is_sink = key not in maybe
        if evidence.fate(key) == "finished" and (is_sink or workload.growing) and key not in counts:
            yield f"the result of {key} is not kept"
    for key, count in counts.items():
        if key in standing or evidence.fate(key) != "finished":
            yield f"the result of {key} is kept, which has not finished"
        elif key in needed - evidence.skipped and not workload.growing:
            yield f"the result of {key} is kept, though it has dependents"
        if count > 1:
            yield f"the result of {key} is kept {count} times"
    failed = Counter(evidence.remains.failed)
    for key in sorted(failed.keys() ^ evidence.dead):
        dead = "a" if key in evidence.dead else "no"
        yield f"task {key} has {failed[key] or 'no'} failure kept, and {dead} dead letter"
    yield from (f"the failure of {key} is kept {n} times" for key, n in failed.items() if n > 1)


def counts_agree(evidence: PlanEvidence) -> Iterator[str]:
    """S7: as many tasks were ever added as were acknowledged; an open add may count too."""
    least, added = len(evidence.certain), evidence.remains.added
    most = len(evidence.plan.workload.items) if evidence.plan.has_open_add else least
    if evidence.ending != "removed" and not least <= added <= most:
        yield f"{added} tasks were added, {least} were acknowledged, {most} at most"


def tasks_start_soon(evidence: PlanEvidence) -> Iterator[str]:
    """L2: what is complete is published and claimed at once, not when some check finds it.

    Only where slots are always free: elsewhere histories do not tell who was idle.
    """
    for runs in evidence.executions.values():
        first = min(runs, key=lambda each: each.began, default=None)
        if first is None or not first.got:
            continue
        late_s = first.began - _last_end(evidence, first.got, first.began)
        if late_s > evidence.soon_s:
            yield f"{first} began {late_s:.1f} s after the last that it needs had ended"


def waiters_hear_the_truth(evidence: PlanEvidence) -> Iterator[str]:
    """S7: a waiter that was told `done` or `failed` was told it after the last commit, and rightly;
    no other end is true."""
    everybody = (uid for uids in evidence.committed.values() for uid in uids)
    last, letters = _last_end(evidence, everybody, 0.0), len(evidence.dead)
    reopened = [each for each in evidence.operations if each.what == "reopen"]
    for line in evidence.plan.waited:
        # An end before the plan was retried was true then.
        if any(each.answered is None or line["at"] < each.answered + WAIT_S for each in reopened):
            continue
        if line["state"] not in ("done", "failed"):
            yield f"a waiter heard that it is {line['state']}"
            continue
        if line["at"] < last:
            yield f"a waiter heard `done` {last - line['at']:.3f} s before the last commit"
        if (line["state"] == "failed") != line["failed"]:
            yield f"a waiter heard failed={line['failed']} of a plan that is {line['state']}"
        if line["failed"] != bool(letters):
            yield f"a waiter heard failed={line['failed']}, dead letters: {letters}"


def _last_end(evidence: PlanEvidence, uids: Iterable[str], default: float) -> float:
    """When the last of those executions ended, as far as they are known."""
    known = (evidence.by_uid[uid] for uid in uids if uid in evidence.by_uid)
    return max((each.ended or 0.0 for each in known), default=default)


def authors_hear_the_truth(evidence: PlanEvidence) -> Iterator[str]:
    """S7: of a plan that came to its end no author was told that it is cancelled, or gone."""
    if evidence.plan.cut_short:
        yield f"its author heard {evidence.plan.cut_short}"
