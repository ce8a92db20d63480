"""Changes of honest histories, for the table of all violations: those that take several steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

from zkplan.testing.stress_promises import Kept, Remains

from .faults.target import EVERYBODY, Target
from .honest import (
    AUTHOR,
    NOW,
    SESSION_S,
    WORKER,
    again,
    dead_key,
    find,
    needy,
    often_failing,
    operation,
    operations_of,
    retry,
    winner,
)
from .traffic.workloads import digest_of, parent_of
from .validate.checks import committed_numbers
from .validate.evidence import PlanEvidence, noticed_s
from .validate.history import RunHistory
from .validate.plans import Batch, Execution
from .validate.snapshot import DeadLetter
from .validate.windows import Window

#: A process that is not the honest worker's, and the name of the worker whose it is.
OTHER, NAME = 77, "worker0"
FOR_EVER = float("inf")
#: Who is told to stop loses nothing by it.
TOLD = Target(names=[NAME], hands_back=True)


def put(what: object, **facts: object) -> None:
    for name, value in facts.items():
        setattr(what, name, value)


def fault(e: PlanEvidence, begin: float, end: float = FOR_EVER, aim: Target = EVERYBODY) -> None:
    e.history.windows.append(Window("a fault", begin, aim, end))


def known_as(history: RunHistory, pid: int, name: str = NAME) -> None:
    """That process is one of a worker of that name."""
    history._workers.add(name)
    history._actors[pid].add(name)


def written(e: PlanEvidence, pid: int, event: str, at: float, /, **facts: Any) -> None:
    """That process wrote it, or the cluster where it is 0."""
    file = Path(f"worker-{pid}.jsonl" if pid else "cluster.jsonl")
    e.history.take({"event": event, "at": at, **facts}, file)


def add_run(e: PlanEvidence, run: Execution, **facts: Any) -> Execution:
    """One more execution, like that one but for those facts."""
    made = replace(run, **facts)
    e.plan.executions[made.key].append(made)
    return made


def run_ahead(e: PlanEvidence) -> Execution:
    """A committed execution had no claim of its own: the claim of one before it was its fence."""
    found = next(each for each in e.everything if each.got and e.plan.workload.items[each.key].pure)
    found.ahead = True
    return found


def drop_a_run(e: PlanEvidence) -> None:
    """Before it was committed, a task and the one behind it have run ahead in vain."""
    first = run_ahead(e)
    second = next(each for each in e.everything if first.uid in each.got)
    before = {"ahead": True, "began": first.began - 0.4, "ended": first.began - 0.3}
    add_run(e, first, uid="dropped", **before)
    add_run(e, second, uid="dropped too", **before | {"got": ["dropped"]})


def keep(e: PlanEvidence, made: Execution) -> None:
    e.remains.kept.append(Kept(made.key, made.digest, made.uid, made.number))


def change_kept(remains: Remains, **facts: str) -> None:
    """The first kept result has those facts."""
    remains.kept[0] = remains.kept[0]._replace(**facts)


# ---- values, commits and adds


def swap_numbers(e: PlanEvidence) -> None:
    """Of two results that are kept."""
    one, other, *_ = e.remains.kept
    e.remains.kept[0] = one._replace(number=other.number)
    e.remains.kept[1] = other._replace(number=one.number)


def tell_no_numbers(e: PlanEvidence) -> Execution:
    """As of tasks that a task has added, without an author to be told; gives a second execution."""
    for batch in e.plan.batches.values():
        batch.numbers = []
    return find(e, n=1)


def give_arguments_in_another_order(e: PlanEvidence) -> None:
    one = needy(e, 2)
    pairs = [(key, e.expected.digests[key]) for key in e.expected.needs[one.key]]
    assert digest_of(one.key, pairs) == one.digest
    one.digest = digest_of(one.key, pairs[::-1])


def key_of(e: PlanEvidence, fate: str) -> str:
    return next(key for key, found in e.expected.fates.items() if found == fate)


def wide(e: PlanEvidence) -> Batch:
    return next(batch for batch in e.plan.batches.values() if len(batch.keys) > 1)


def split_an_add(e: PlanEvidence, state: str = "begun") -> None:
    """All of it ran, or stands, but one task."""
    batch = wide(e)
    batch.state = state
    e.plan.executions.pop(batch.keys[0], None)
    if e.ending == "cancelled":
        assert isinstance(e.standing, set)
        e.standing.update(batch.keys[1:])
        e.standing.discard(batch.keys[0])


def refuse_after_the_first(e: PlanEvidence) -> None:
    """An add of several transactions was refused after one task, and none of its tasks runs."""
    batch = wide(e)
    put(batch, state="refused", added=1)
    for key in batch.keys:
        del e.plan.executions[key]


def refuse_for_the_store(e: PlanEvidence) -> None:
    """One more add is refused."""
    e.plan.batches[9] = Batch([], True, "refused", "StoreUnavailable('away')", answered=NOW)


def add_by(e: PlanEvidence, maker: str) -> None:
    added = next(each for each in e.everything if each.by)
    other = add_run(e, again(e.by_uid[added.by], 7), raised="died" * (maker == "failed"))
    added.by = "nobody" if maker == "nobody" else other.uid


def open_an_add(e: PlanEvidence, ran: bool = True, kept: bool = False, added: int = 0) -> None:
    """It has no answer: it may have happened or not. `kept`: the results that it may need."""
    last = e.plan.batches[max(e.plan.batches)]
    last.state = "begun"
    if not ran:
        for key in last.keys:
            e.plan.executions.pop(key)
        e.remains.kept = [each for each in e.remains.kept if each.key not in last.keys]
    whole = len(e.plan.workload.items) if ran else len(replace(e).certain)
    e.remains.added = whole + added
    needed = {need for key in last.keys for need in e.expected.needs[key]} - {*last.keys}
    for key in sorted(needed) if kept else ():
        keep(e, e.plan.executions[key][-1])


# ---- what is kept, when, and what is told


def keep_an_inner_result(e: PlanEvidence, answered: bool = False) -> None:
    """Who ended before the add was `answered` that needs it had no dependents."""
    kept = {each.key for each in e.remains.kept}
    keep(e, next(each for each in e.everything if each.key not in kept))
    if answered:
        last = e.plan.batches[max(e.plan.batches)]
        last.answered = max(each.ended or 0.0 for each in e.everything) + 1.0


def keep_what_only_a_commit_needs(e: PlanEvidence) -> None:
    """The tasks that a task adds get its result with its commit, without an edge."""
    pairs = [(key, need) for key, needs in e.expected.needs.items() for need in needs]
    needed = {need for key, need in pairs if parent_of(key) != need}
    keep(e, e.plan.executions[next(need for _, need in pairs if need not in needed)][-1])


def run_before_an_early_add(e: PlanEvidence, answered: bool) -> None:
    at = min(each.began for each in e.everything) + 0.1
    batch = e.plan.batches[e.plan.workload.ready_after - 1]
    batch.begun, batch.answered = (0.0, at) if answered else (at, 0.0)


def hear(e: PlanEvidence, state: str, at: float = NOW, failed: bool = False) -> None:
    e.plan.waited.append({"state": state, "failed": failed, "at": at})


def begin_late(e: PlanEvidence, fate: str, **facts: Any) -> None:
    """After its plan was checked a task of that fate begins again."""
    e.plan.committed = committed_numbers(e)
    e.plan.died = {key: letter.n for key, letter in e.remains.letters.items()}
    key = key_of(e, fate)
    got, digest = ["uid"] * len(e.expected.needs[key]), e.expected.digests[key]
    late = replace(winner(e), **{"key": key, "got": got, "digest": digest, **facts})
    e.history.late.append((e.plan.workload.name, late))


# ---- attempts


def repeat(e: PlanEvidence) -> Execution:
    """The committed execution has become a second one, after the first, which is given back."""
    return live(e, "0.0n 1.0r", key=winner(e).key)


def repeat_after_a_healed_fault(e: PlanEvidence, late_s: float) -> None:
    """A loss is noticed within a session and a little: what was healed before excuses nothing."""
    assert noticed_s(SESSION_S) < 2 * SESSION_S
    fault(e, -100.0, repeat(e).began - noticed_s(SESSION_S) - late_s)


def repeat_before_a_fault(e: PlanEvidence, after_s: float) -> None:
    """A commit is sent until it is answered, and no longer than some seconds after the end."""
    first = repeat(e)
    for each in (each for runs in e.plan.executions.values() for each in runs):
        if each is not first:
            each.began, each.ended = each.began + 100.0, (each.ended or 0.0) + 100.0
    e.plan.waited[0]["at"] += 100.0
    at = (first.ended or 0.0) + after_s
    fault(e, at, at + 1.0, Target(pids=[first.pid]))


def live(
    e: PlanEvidence,
    claims: str,
    letter: str = "",
    key: str = "",
    hit: Sequence[str] = (),
    poked_s: float | None = None,
    stopped_s: float = 0.01,
    retried: str | None = None,
) -> Execution:
    """Give the dead task, or the one of that key, other claims: `N.A` and how each ended.

    `f` failed, `s` had no store, `r` returned (as the last run did), `n` ended in no known way, `l`
    was killed, `b` was handed back by a worker told to stop so long after the begin, `c` returned,
    and its commit was refused. The dead letter is `N.A`, too.
    All the time faults `hit` actors of these names. A poke for memory came so long before the last
    claim. The outcome of a retry after claim 2 was `retried`. Gives the first claim back.
    """
    runs = e.plan.executions[key or dead_key(e)]
    last, runs[:] = runs[-1], []
    for before, claim in zip(count(claims.count(" "), -1), claims.split()):
        n, a, how = re.findall(r"\d+|[a-z]", claim)
        began = last.began - before / 10
        made = replace(last, n=int(n), a=int(a), began=began, ended=began + 0.05)
        if how != "r":
            failed = how == "f"
            put(made, uid=f"claim {n}", pid=70 + int(n), planned=failed)
            put(made, raised="PlannedFailure" * failed, ended=made.ended if how in "cfns" else None)
        if how == "s":
            put(made, raised="StoreUnavailable", handed_back=True)
        if how == "c":
            fault(e, began, began + 1.0, Target(pids=[made.pid], refuses=True))
        ends = {"l": e.history._kills, "b": e.history._stops}.get(how)
        if ends is not None:
            ends[made.pid].append(began + stopped_s)
        runs.append(made)
    if letter:
        e.remains.letters[last.key] = DeadLetter(*map(int, letter.split(".")))
    e.history._workers.add(NAME)
    for name in hit:
        fault(e, 0.0, aim=TOLD if name == "told" else Target(names=[name]))
    if poked_s is not None:
        # Of the process of claim 0, if that is known.
        e.history._pokes.append(("memory", last.began - poked_s, 70))
    if retried is not None:
        operations_of(e).append(retry(last.key, 2, outcome=retried))
    return runs[0]


def retry_twice(e: PlanEvidence, answer_lost: bool) -> None:
    operations_of(e).append(operations_of(e)[0])
    if answer_lost:
        fault(e, NOW)


def live_all_added(e: PlanEvidence, claims: str, letter: str) -> None:
    """As `live`, after all adds were answered."""
    first = live(e, claims, letter)
    for batch in e.plan.batches.values():
        batch.answered = first.began - 1.0


def live_twice(e: PlanEvidence, claims: str, **given: Any) -> None:
    """The second life of a task, after it died at claim 2, and was retried; it dies at claim 7."""
    key = often_failing(e)[0]
    operations_of(e).append(retry(key, 7))
    live(e, f"0.0f 1.1f 2.2f {claims}", key=key, **given)


# ---- operators


def begin_after_the_cancel(e: PlanEvidence, claimed: bool) -> None:
    one = e.everything[-1]
    (cancel,) = operations_of(e)
    cancel.answered = one.began - 0.1
    cancel.seen |= {"standing": [one.key], "entries": {one.key: one.n}}
    cancel.seen["claims"] = {one.key: one.n} if claimed else {}


def begin_after_the_removal(e: PlanEvidence, claimed: bool = False, hit: bool = False) -> None:
    seen = operations_of(e)[0].seen
    one = max((each for each in e.everything if not each.by), key=lambda each: each.began)
    for each in e.everything:
        if each.began > one.began:
            del e.plan.executions[each.key]
    seen |= {"at": one.began - 0.1, "numbers": [[one.number, one.n]] if claimed else []}
    if hit:
        fault(e, 0.0)


def wait_without_a_server(e: PlanEvidence, *given: Any) -> None:
    """For five seconds after the cancel. A fault of a worker cuts no link of an operator."""
    (cancel,) = operations_of(e)
    cancel.heard, cancel.heard_at = "ZooKeeperUnavailable", NOW + 5.0
    fault(e, *given)


def pause(e: PlanEvidence, begins: float, ends: float, resumed: float | None = None) -> None:
    """The second task ends 1.5 s after the first began, and the third begins 0.5 s later."""
    start = min(each.began for each in e.everything)
    made = operation("pause", begun=start + begins, answered=start + ends, seen={"late": []})
    operations_of(e).append(made)
    if resumed is not None:
        at = start + resumed
        operations_of(e).append(operation("resume", begun=at, answered=at + 0.1))


# ---- a whole run


def fail_unplanned(
    e: PlanEvidence, error: str, poke: str = "", planned: bool = False, later_s: float = 0.2
) -> None:
    """Before an attempt there was another one, that raised."""
    one = winner(e)
    facts = {**asdict(one), "uid": "raises", "plan": "chaos-11"}
    began = facts.pop("began") - 0.9
    one.n, one.a = one.n + 1, one.a + 1
    written(e, WORKER, "begin", began, **facts)
    if poke:
        written(e, WORKER, "poked", began, what=poke, pid=WORKER)
    written(e, WORKER, "raised", began + later_s, uid="raises", error=error, planned=planned)


def break_a_wait(
    e: PlanEvidence, error: str, killed: int = 0, at: float = 15.0, paused: str = ""
) -> None:
    """What an author half defined stands still, where it was lost meanwhile or stands still too."""
    e.plan.begun = 0.5
    if killed:
        written(e, 0, "ended", at, pid=killed, sent=at, why="killed", killed=True)
    if paused:
        written(e, 0, "started", 0.0, name="author", role="author", pid=AUTHOR)
        fault(e, 12.0, 19.0, Target(names=[paused]))
    written(e, 0, "wait broke", 20.0, plan="chaos-11", error=error)


def die_by_itself(e: PlanEvidence, *codes: int, pid: int = OTHER, healed_s: float = -1.0) -> None:
    """It ends with 1. A fault that ends processes with `codes` was healed so long before."""
    fault(e, NOW - 100.0, NOW - healed_s, Target(pids=[pid], codes=codes))
    found_dead(e)


def die_of_a_poke(
    e: PlanEvidence, *codes: int, pid: int = OTHER, poked_s: float = 0.5, alive_s: float = 0.0
) -> None:
    """It ends with 1 so long after a poke was taken; it wrote something so long after the poke."""
    at = NOW - poked_s
    fault(e, at - 1.0, at + 0.1, Target(poke="memory", codes=codes))
    written(e, pid, "poked", at, what="memory", pid=pid)
    e.history._heard[OTHER] = at + alive_s
    found_dead(e)


def found_dead(e: PlanEvidence) -> None:
    written(e, 0, "died", NOW, name=NAME, pid=OTHER, code=1, tail="the tail of its log")


def stand_still(e: PlanEvidence, tasks: int, seconds: float, ended: bool = False) -> None:
    """One worker of two tells nothing, or was killed, while so many tasks begin."""
    for name, pid in ((NAME, OTHER), ("worker1", OTHER + 1)):
        written(e, 0, "started", NOW, name=name, role="worker", pid=pid)
    if ended:
        written(e, 0, "ended", NOW, pid=OTHER, sent=NOW, why="killed", killed=True)
    for n in range(1, tasks + 1):
        facts = {**asdict(winner(e)), "pid": OTHER + 1, "plan": "chaos-5", "uid": str(n)}
        del facts["began"]
        written(e, OTHER + 1, "begin", NOW + seconds * n / tasks, **facts)
