"""Histories in which every promise was kept, and all that the checker finds in one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from zkplan.testing.stress_promises import Kept

from .traffic.workloads import Workload, attempts_of, parent_of
from .validate.checks import violations
from .validate.evidence import PlanEvidence
from .validate.history import RunHistory
from .validate.operations import Operation
from .validate.plans import Batch, Execution, PlanHistory
from .validate.run_checks import standing_still, violations_of_run
from .validate.snapshot import DeadLetter, PlanRemains, PlanSnapshot

SESSION_S = 3.0
#: The one worker, and the one author.
WORKER, AUTHOR = 2, 1
#: Long after everything.
NOW = 1e6
#: What stands of a plan that is done.
DONE = ("add-ids", "dead", "done", "results", "ready", "runnable")


# ---- plans that are done


def done(shape: str, seed: int) -> Callable[[Path], PlanEvidence]:
    """One worker has run everything in order, undisturbed."""
    return lambda folder: _done(folder, shape, seed)


def _done(folder: Path, shape: str, seed: int) -> PlanEvidence:
    workload, history = Workload.make(seed, shape), RunHistory(folder)
    plan = PlanHistory(seed, workload, author_pid=AUTHOR, closed=True)
    history.plans[workload.name] = plan
    for number, batch in enumerate(workload.batches):
        keys = [item.key for item in batch]
        plan.batches[number] = Batch(keys, True, "done", numbers=[*map(_number, keys)])
    remains = PlanRemains(plan=[*DONE], added=len(workload.fates))
    at, needed = 0.0, {key for item in workload.items.values() for key in item.needs}
    for item in workload.items.values():
        fate = workload.fates.get(item.key)
        if fate in ("dead", "cut"):
            letter = DeadLetter(2, 3) if fate == "dead" else DeadLetter(0, 1)
            remains.letters[item.key] = letter
            remains.failed.append(item.key)
        if fate in (None, "cut"):
            continue
        raises = 3 if fate == "dead" else item.fails
        for n in range(raises + (fate == "finished")):
            at += 1.0
            plan.executions[item.key].append(
                Execution(
                    uid=f"{item.key}#{n}",
                    key=item.key,
                    n=n,
                    a=n % 3 if attempts_of(item) == 3 else n,
                    number=_number(item.key),
                    worker="worker",
                    pid=WORKER,
                    by=_uid(workload, parent_of(item.key)),
                    began=at,
                    digest=workload.digests[item.key],
                    got=[_uid(workload, key) for key in item.needs],
                    ended=at + 0.5,
                    raised="PlannedFailure" if n < raises else "",
                    planned=n < raises,
                )
            )
        if fate == "finished" and (workload.growing or item.key not in needed):
            digest, uid = workload.digests[item.key], _uid(workload, item.key)
            remains.kept.append(Kept(item.key, digest, uid, _number(item.key)))
    plan.path = "/z/plan-1"
    has_failed = bool(remains.letters)
    state = "failed" if has_failed else "done"
    plan.waited.append({"state": state, "failed": has_failed, "at": at + 1})
    return PlanEvidence(plan, remains, history, SESSION_S)


def _uid(workload: Workload, key: str | None) -> str:
    return f"{key}#{workload.items[key].fails}" if key else ""


def _number(key: str) -> str:
    return f"number of {key}"


adding = done("adding", 11)
drawn = done("random", 1)
chain = done("chain", 1)
hub = done("hub", 0)
failing = done("failing", 0)
diamonds = done("diamonds", 0)
pure = done("pure chain", 0)
#: Its second add is answered while the plan runs.
defined_late = done("held join", 0)
#: With a task of three attempts that is dead, and one that needs it.
doomed = done(
    "failing",
    next(s for s in range(100) if {"dead", "cut"} <= {*Workload.make(s, "failing").fates.values()}),
)


def prompt(folder: Path) -> PlanEvidence:
    """Where slots are always free."""
    return replace(chain(folder), soon_s=999.0)


def held(folder: Path) -> PlanEvidence:
    """Each task that fails five times has died once, and was retried."""
    evidence = done("held", 0)(folder)
    for key in often_failing(evidence):
        operations_of(evidence).append(retry(key, 2))
    return evidence


# ---- plans that operators ended


def cancelled(folder: Path) -> PlanEvidence:
    """Cancelled when half of what runs had run."""
    evidence = adding(folder)
    plan, remains = evidence.plan, evidence.remains
    order = sorted(evidence.everything, key=lambda each: each.began)
    for execution in order[len(order) // 2 :]:
        plan.executions.pop(execution.key, None)
    plan.waited.clear()
    left = set(plan.workload.fates) - set(plan.executions)
    # A task that an unfinished one adds does not exist.
    standing = {key for key in left if not any(key.startswith(f"{other}/") for other in left)}
    remains.kept = [each for each in remains.kept if each.key in plan.executions]
    remains.plan.remove("done")
    seen = {"at": NOW, "claims": {}, "entries": {}, "standing": [], "late": [], "resumed": False}
    operations_of(evidence).append(operation("cancel", seen=seen, heard="PlanCancelled"))
    found = replace(
        evidence, ending="cancelled", standing=standing, unready=set(), snapshot=resting()
    )
    remains.added = len(found.certain)
    return found


def checked(folder: Path) -> PlanEvidence:
    """Beside two plans, one checked and removed before it began, and one when it had ended."""
    found = adding(folder)
    for number, checked_at in ((2, 0.0), (3, NOW)):
        other = replace(found.plan, path=f"/z/plan-{number}", checked_at=checked_at)
        found.history.plans[f"chaos-{number + 10}"] = other
    return found


def removed(folder: Path) -> PlanEvidence:
    """Removed, when half of what runs had run."""
    found = cancelled(folder)
    seen = {"at": NOW, "numbers": [], "late": [], "resumed": False}
    operations_of(found)[:] = [operation("remove", seen=seen, heard="PlanNotFound")]
    return replace(found, ending="removed", remains=PlanRemains(), standing=set(), snapshot=None)


def resting() -> PlanSnapshot:
    """Task 1 feeds task 3, which has one edge more behind it; task 2 is dead."""
    snapshot = PlanSnapshot()
    snapshot.children = {
        "1": ["prov-0", "ready"],
        "2": ["arg-0", "ready"],
        "3": ["arg-0", "dep-1", "ready"],
    }
    snapshot.versions = {"1": (1, 0), "2": (2, 1), "3": (1, 2)}
    snapshot.places["1"] = ["runnable"]
    snapshot.places["2"] = ["dead"]
    snapshot.provisions = ["task-3/dep-1"]
    return snapshot


def operation(what: str, **facts: object) -> Operation:
    """One that was done long after everything, unless something else is said."""
    given: dict[str, object] = {"begun": NOW, "facts": {}, "answered": NOW, "outcome": "done"}
    return Operation("uid", what, "/z/plan-1", **{**given, **facts})  # type: ignore[arg-type]


def retry(key: str, n: int, a: int = 3, outcome: str = "done") -> Operation:
    return operation("retry", facts={"key": key, "n": n, "a": a}, outcome=outcome)


def skip(key: str, outcome: str = "done") -> Operation:
    return operation("skip", facts={"key": key}, outcome=outcome)


def operations_of(evidence: PlanEvidence) -> list[Operation]:
    return evidence.history.operations.of_plan[evidence.plan.workload.name]


# ---- what is found


def found_in(evidence: PlanEvidence) -> list[str]:
    """Everything that the checker says of it, and of the run that it belongs to."""
    # As a new one: what it has computed was changed since.
    found = [*violations(replace(evidence)), *violations_of_run(evidence.history)]
    return [*found, *standing_still(evidence.history).values()]


# ---- what is changed in many rows


def dead_key(evidence: PlanEvidence) -> str:
    return next(key for key, fate in evidence.expected.fates.items() if fate == "dead")


def often_failing(evidence: PlanEvidence) -> list[str]:
    """The tasks that have to be retried."""
    return [item.key for item in evidence.plan.workload.items.values() if item.fails == 5]


def find(evidence: PlanEvidence, **facts: object) -> Execution:
    """The first execution with those facts."""
    return next(
        each
        for each in evidence.everything
        if all(getattr(each, name) == value for name, value in facts.items())
    )


def needy(evidence: PlanEvidence, least: int = 1) -> Execution:
    """An execution with so many arguments."""
    return next(each for each in evidence.everything if len(each.got) >= least)


def winner(evidence: PlanEvidence) -> Execution:
    """The committed execution of a task that others need."""
    known = set(evidence.by_uid)
    key = min(key for key, uids in evidence.committed.items() if uids & known)
    return max(evidence.plan.executions[key], key=lambda each: each.n)


def again(execution: Execution, n: int, uid: str = "other") -> Execution:
    return replace(execution, n=n, uid=uid, began=execution.began + 0.1)
