"""The checks of plans that operators paused, cancelled, removed or retried. Pure.

A plan of which an author defined a part is cancelled by an operator, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from zkplan.protocol.layout import parse_task
from zkplan.testing.stress_promises import strangers

from ..traffic.workloads import REOPENED
from .attempts import miscounted
from .evidence import PlanEvidence
from .operations import Operation, What
from .plans import Execution
from .snapshot import DeadLetter, PlanSnapshot

_HEARD = {"cancel": {"PlanCancelled"}, "remove": {"PlanCancelled", "PlanNotFound"}}


def _done(evidence: PlanEvidence, what: What) -> list[Operation]:
    """The operations of that kind that were told so."""
    return [each for each in evidence.operations if each.what == what and each.outcome == "done"]


def nothing_is_claimed_afterwards(evidence: PlanEvidence) -> Iterator[str]:
    """S9, promise 10: what begins after the answer began under a claim that stood before.

    A claim that is not seen any more was lost where its task has a larger number meanwhile, and
    ended where its task is gone.
    """
    for operation in (*_done(evidence, "cancel"), *_done(evidence, "remove")):
        seen = operation.seen
        if not seen:
            continue
        for execution in evidence.everything:
            if operation.what == "cancel" and execution.began > (operation.answered or 0.0):
                yield from _unless_claimed(execution, operation)
            elif execution.began > seen["at"]:
                yield from _unless_held(evidence, execution, operation)


def _unless_claimed(execution: Execution, operation: Operation) -> Iterator[str]:
    seen, key = operation.seen, execution.key
    known = max(seen["claims"].get(key, -1), seen["entries"].get(key, 0) - 1)
    if key in seen["standing"] and execution.n > known:
        yield f"{execution} was claimed after its plan was cancelled"


def _unless_held(
    evidence: PlanEvidence, execution: Execution, operation: Operation
) -> Iterator[str]:
    number = evidence.numbers.get(execution.key)
    claimed = [number, execution.n] if number else None
    before = execution.began - evidence.noticed_s
    lost = evidence.history.disturbed(execution.pid, before, execution.began)
    if claimed is not None and claimed not in operation.seen["numbers"] and not lost:
        yield f"{execution} began after its plan was removed, without a claim"


def nothing_is_committed_afterwards(evidence: PlanEvidence) -> Iterator[str]:
    """S4: nobody gets a value of an execution that ended after its plan was removed."""
    removed = [each.answered or 0.0 for each in _done(evidence, "remove")]
    removed_at = min(removed, default=float("inf"))
    for execution in evidence.everything:
        for uid in execution.got:
            maker = evidence.by_uid.get(uid)
            if maker is not None and (maker.ended or 0.0) > removed_at:
                yield f"{execution} got a value of {maker}, which ended after the removal"


def it_stays_cancelled(evidence: PlanEvidence) -> Iterator[str]:
    """S7, S9: a cancelled plan is never done, takes no adds, and cannot be resumed."""
    if evidence.ending == "cancelled":
        names = [name for name in evidence.remains.plan if parse_task(name) is None]
        forbidden = [name for name in ("done", "add-count") if name in names]
        yield from (f"`{name}` stands in a cancelled plan" for name in forbidden)
        yield from strangers([name for name in names if name not in forbidden], "")
        heard = {line["state"] for line in evidence.plan.waited} - {"cancelled"}
        yield from (f"a waiter heard that it is {state}" for state in sorted(heard))
    if any(each.seen.get("resumed") for each in evidence.operations):
        yield "a cancelled plan was resumed"


def what_waits_has_not_run(evidence: PlanEvidence) -> Iterator[str]:
    """S3: a task begins when its last edge has been delivered, and when it is wholly defined."""
    for key in sorted(evidence.unready):
        for execution in evidence.executions.get(key, ())[:1]:
            yield f"{execution} ran, and the task still waits for an edge or its author"


def every_task_is_in_one_place(evidence: PlanEvidence) -> Iterator[str]:
    """S1: waiting for edges, runnable, later, claimed or dead: one of them, and once."""
    snapshot = evidence.snapshot or PlanSnapshot()
    for number, names in snapshot.children.items():
        if "incomplete" in names:
            continue  # its author has not defined it wholly, or died meanwhile
        places = [place for place in snapshot.places.get(number, ()) if place != "pending"]
        if any(name.startswith("dep-") for name in names):
            places.append("waiting")
        if len(places) != 1:
            version, k = snapshot.versions[number]
            yield f"task-{number} ({version} of {k} edges) is in {places or 'no place'}"
    for number, places in snapshot.places.items():
        if number not in snapshot.children and set(places) & {"runnable", "delayed", "claimed"}:
            yield f"{places} name task-{number}, which is gone"


def every_edge_has_two_ends(evidence: PlanEvidence) -> Iterator[str]:
    """S2: a `dep-` for each `prov-`, and no position with both a `dep-` and an `arg-`."""
    snapshot = evidence.snapshot or PlanSnapshot()
    yield from (f"{edge} has no prov-" for edge in set(snapshot.edges) - set(snapshot.provisions))
    yield from (f"a prov- names {edge}" for edge in set(snapshot.provisions) - set(snapshot.edges))
    if len(set(snapshot.provisions)) != len(snapshot.provisions):
        yield "two prov- name one dep-"
    for number, names in snapshot.children.items():
        positions = [name[4:] for name in names if name.startswith(("dep-", "arg-"))]
        if len(set(positions)) != len(positions):
            yield f"task-{number} has a position with both dep- and arg-: {names}"


def no_claim_is_late(evidence: PlanEvidence) -> Iterator[str]:
    """S9: no claim was made after the transaction that paused or cancelled the plan."""
    for operation in evidence.operations:
        when = "before the resume" if operation.what == "resume" else f"after the {operation.what}"
        for claim in operation.seen.get("late", ()):
            yield f"{claim} was made {when}, while nothing may be, by the server's own order"


def nothing_is_claimed_while_paused(evidence: PlanEvidence) -> Iterator[str]:
    """S9, promise 10: between the answer to a pause and the next resume nothing is claimed.

    Of the whole time, and also where the plan came to its end in it. A claim is younger than the
    end of what gave its task a value, or added it.
    """
    for pause in _done(evidence, "pause"):
        answered = pause.answered or 0.0
        resumes = (
            each.begun
            for each in evidence.operations
            if each.what == "resume" and (each.answered or float("inf")) > pause.begun
        )
        until = min(resumes, default=float("inf"))
        for execution in evidence.everything:
            if not answered < execution.began < until:
                continue
            makers = [evidence.by_uid.get(uid) for uid in (*execution.got, execution.by)]
            late = [each for each in makers if each and (each.ended or 0.0) > answered]
            if late:
                yield f"{execution} began in a paused plan, after {late[0]} had ended in it"


def waiters_hear_of_it(evidence: PlanEvidence) -> Iterator[str]:
    """Who waits for a plan that is cancelled or removed is told so.

    Unless a fault of the servers may have kept them from whoever waited.
    """
    for operation in (*_done(evidence, "cancel"), *_done(evidence, "remove")):
        if not operation.heard:
            continue
        allowed = set(_HEARD[operation.what])
        until = operation.heard_at or operation.answered or operation.begun
        if evidence.history.disturbed(0, operation.begun - evidence.noticed_s, until):
            allowed.add("ZooKeeperUnavailable")
        if evidence.plan.workload.shape in ("failing", "held", REOPENED):
            allowed.add("PlanFailed")
        if operation.what == "remove":
            allowed |= {"done", "PlanFailed"}  # it may have been done before
        if any(each.what == "remove" for each in evidence.operations):
            allowed.add("PlanNotFound")
        if operation.heard not in allowed:
            yield f"after {operation.what} a waiter heard {operation.heard}"


def a_decision_is_the_outcome(evidence: PlanEvidence) -> Iterator[str]:
    """S18: of a task that was skipped, by the answer, nothing else goes along the edges."""
    for skip in _done(evidence, "skip"):
        for uid in evidence.committed.get(skip.facts["key"], set()) - evidence.skips.keys():
            yield f"task {skip.facts['key']} was skipped, and {evidence.by_uid[uid]} was committed"


def a_death_is_retried_once(evidence: PlanEvidence) -> Iterator[str]:
    """S8: of several who retry one death one is told that it did, unless an answer was lost."""
    disturbed = evidence.history.disturbed
    done: defaultdict[tuple[str, int], list[Operation]] = defaultdict(list)
    for each in _done(evidence, "retry"):
        done[each.facts["key"], each.facts["n"]].append(each)
    for (key, n), several in done.items():
        lost = any(disturbed(0, each.begun, each.answered or 0.0) for each in several)
        if len(several) > 1 and not lost:
            yield f"attempt {n} of task {key}, its last, was retried {len(several)} times"


def a_retry_gives_all_attempts(evidence: PlanEvidence) -> Iterator[str]:
    """S8: between two deaths of a task it has all its attempts, as always with growing numbers."""
    deaths: defaultdict[str, dict[DeadLetter, float]] = defaultdict(dict)
    for each in evidence.operations:
        # Where failures travel, a retry of one task is refused, also one whose answer is still to
        # come.
        for key, n, a in each.died if each.may_have_happened else ():
            if each.outcome or evidence.fate(key) != "cut":
                deaths[key].setdefault(DeadLetter(n, a), each.begun)
    for key, known in deaths.items():
        last = evidence.remains.letters.get(key)
        if last is not None:
            known.setdefault(last, float("inf"))
        yield from miscounted(evidence, key, known)
