"""Changes of the attempts of a task: their numbers, their counts, and what excuses a repetition."""

from __future__ import annotations

from dataclasses import replace

from ..faults.aim import EVERYBODY, Aim
from ..validate.evidence import DeadLetter, PlanEvidence, noticed_s
from ..validate.history import RunHistory
from ..validate.plans import Execution
from ..validate.windows import Window
from .honest import (
    SESSION_S,
    adding,
    again,
    dead_key,
    done,
    doomed,
    held,
    often_failing,
    operations_of,
    retry,
    winner,
)
from .table import row

COUNTED = "S8 attempts are counted right"
REPEATED = "S8 only losses and failures repeat … which nothing had disturbed"
RETRIED = "S8 a retry gives all attempts"
#: Other processes than that of the honest worker, as they have its name here.
OTHER, NAME = 77, "worker0"


def fault(
    evidence: PlanEvidence, begin: float, end: float = float("inf"), aim: Aim = EVERYBODY
) -> None:
    evidence.history.windows.append(Window("a fault", begin, aim, end))


def known_as(history: RunHistory, pid: int, name: str = NAME) -> None:
    """That process is one of a worker of that name."""
    history._workers.add(name)
    history._actors[pid].add(name)


def dying(evidence: PlanEvidence) -> list[Execution]:
    """The executions of the dead task; it has three attempts."""
    return evidence.plan.executions[dead_key(evidence)]


def dies(evidence: PlanEvidence, n: int, a: int) -> None:
    evidence.remains.letters[dead_key(evidence)] = DeadLetter(n, a)


# ---- repetitions


@row(adding, "S8 attempts are unique … was executed 2 times as attempt")
def an_attempt_number_comes_twice(evidence: PlanEvidence) -> None:
    one = winner(evidence)
    evidence.plan.executions[one.key].append(again(one, one.n))


def repeat(evidence: PlanEvidence) -> Execution:
    """The committed execution has become a second one, after another that ended just like it."""
    first = winner(evidence)
    evidence.plan.executions[first.key].append(
        replace(first, n=first.n + 1, a=first.a, uid="second", began=first.began + 0.6)
    )
    second = evidence.plan.executions[first.key][-1]
    for each in evidence.everything:
        each.got[:] = ["second" if uid == first.uid else uid for uid in each.got]
        each.by = "second" if each.by == first.uid else each.by
    evidence.remains.kept = [
        each._replace(uid="second") if each.uid == first.uid else each
        for each in evidence.remains.kept
    ]
    second.ended = second.began + 0.1
    return first


@row(adding, REPEATED)
def a_task_is_repeated_for_nothing(evidence: PlanEvidence) -> None:
    repeat(evidence)


@row(adding, REPEATED, healed_s=0.1)
@row(adding, healed_s=-0.1)
def a_task_is_repeated_after_a_loss_could_be_noticed_and(
    evidence: PlanEvidence, healed_s: float
) -> None:
    """A fault that was healed so long before excuses nothing."""
    assert noticed_s(SESSION_S) < 2 * SESSION_S
    fault(evidence, -100.0, repeat(evidence).began - noticed_s(SESSION_S) - healed_s)


@row(adding, after_s=5.0)
@row(adding, REPEATED, after_s=60.0)
def a_task_is_repeated_for_a_fault_after_its_end(evidence: PlanEvidence, after_s: float) -> None:
    """Its commit is sent until it is answered, and no longer than some seconds."""
    first = repeat(evidence)
    ended = first.ended or 0.0
    for each in (each for runs in evidence.plan.executions.values() for each in runs):
        if each is not first:
            each.began, each.ended = each.began + 100.0, (each.ended or 0.0) + 100.0
    evidence.plan.waited[0]["at"] += 100.0
    fault(evidence, ended + after_s, ended + after_s + 1.0, Aim(pids=[first.pid]))


# ---- hand-backs


def hand_back(evidence: PlanEvidence, stopped_s: float = 0.1) -> list[Execution]:
    """The second claim of the dead task is handed back, as its worker was told to stop."""
    runs = dying(evidence)
    second = replace(runs[1], uid="back", ended=None, raised="", planned=False, pid=OTHER)
    runs[1:] = [second, *(replace(each, n=each.n + 1) for each in runs[1:])]
    evidence.history._stops[OTHER].append(second.began + stopped_s)
    evidence.history._actors[OTHER].add(NAME)
    fault(evidence, second.began, aim=Aim(names=[NAME], hands_back=True))
    dies(evidence, 3, 3)
    return runs


@row(doomed)
@row(doomed, COUNTED + " … began with 2 attempts used up, not [1]", costs=1)
@row(doomed, REPEATED, stopped_s=-5.0)
@row(doomed, REPEATED, stopped_s=5.0, ended_s=0.5)
def a_claim_is_handed_back(
    evidence: PlanEvidence, costs: int = 0, stopped_s: float = 0.1, ended_s: float = 0.0
) -> None:
    """It costs no attempt. A stop after the function had ended, and the grace, gives nothing."""
    runs = hand_back(evidence, stopped_s)
    if costs:
        runs[2].a = 2
        del runs[3]
        dies(evidence, 2, 3)
    if ended_s:
        runs[1].ended = runs[1].began + ended_s


# ---- losses


@row(doomed, loss=1, costs=0)
@row(doomed, COUNTED + " … began with", loss=1, costs=1)
@row(doomed, loss=2, costs=1)
@row(doomed, COUNTED + " … began with", loss=2, costs=0)
def after_a_failure_workers_are_lost(evidence: PlanEvidence, loss: int, costs: int) -> None:
    """The first loss is free, for nobody had noted the start, and the second is not."""
    runs, right = dying(evidence), loss - 1
    one = replace(runs[1], ended=None, raised="", planned=False)
    lost = [
        replace(one, n=at, uid=f"lost{at}", pid=70 + at, began=one.began - 0.4 + at / 10)
        for at in range(1, loss + 1)
    ]
    rest = [replace(each, n=each.n + loss, a=each.a + right) for each in runs[1:]]
    runs[1:] = [*lost, *(rest[:-1] if right else rest)]
    for each in lost:
        evidence.history._kills[each.pid].append(each.began + 0.05)
    dies(evidence, runs[-1].n, 3)
    runs[loss + 1].a += costs - right


@row(doomed, COUNTED + " … died after 3 attempts", aim=None)
@row(doomed, COUNTED + " … died after 3 attempts", aim=Aim(names=["author"]))
@row(doomed, COUNTED + " … died after 3 attempts", aim=Aim(names=[NAME], hands_back=True))
@row(doomed, aim=Aim(names=[NAME]))
@row(doomed, COUNTED + " … died", aim=Aim(names=[NAME]), n=3)
def the_last_attempt_is_lost_before_its_first_line(
    evidence: PlanEvidence, aim: Aim | None, n: int = 4
) -> None:
    """Its worker noted the start in ZooKeeper, and a fault must have hit it. No number is free."""
    runs = hand_back(evidence)
    runs.pop()
    dies(evidence, n, 3)
    known_as(evidence.history, OTHER)
    if aim is not None:
        fault(evidence, runs[-1].began, aim=aim)


# ---- deaths


@row(doomed, COUNTED + " … task … died", n=2, a=3)
@row(doomed, COUNTED + " … task … died", n=1, a=3)
@row(doomed, COUNTED + " … task … died", n=1, a=2)
@row(doomed, COUNTED + " … task … died", n=2, a=3, hit=True)
@row(doomed, COUNTED + " … task … died", n=1, a=3, hit=True)
@row(doomed, COUNTED + " … task … died", n=1, a=2, hit=True)
def a_task_dies_after_two_attempts_of_three(
    evidence: PlanEvidence, n: int, a: int, hit: bool = False
) -> None:
    """No fault excuses that: who is lost leaves the task alive."""
    dying(evidence).pop()
    dies(evidence, n, a)
    if hit:
        known_as(evidence.history, OTHER)
        fault(evidence, 0.0, aim=Aim(names=[NAME]))


@row(doomed, COUNTED + " … its last attempt, and another claim followed", runs=3)
@row(doomed, COUNTED + " … began with 3 attempts used up of 3", runs=4)
def a_task_goes_on_after_its_last_attempt(evidence: PlanEvidence, runs: int) -> None:
    """Neither fault excuses its worker: one was over long before, one hit an author."""
    last = dying(evidence)[-1]
    if runs == 4:
        dying(evidence).append(replace(last, n=3, a=3, uid="fourth", began=last.began + 1.0))
    dies(evidence, 3, 3)
    fault(evidence, -60.0, -50.0)
    fault(evidence, 1.0, aim=Aim(names=["author"]))


@row(done("failing", 0), COUNTED + " … began with")
def an_attempt_of_an_ordinary_task_is_not_counted(evidence: PlanEvidence) -> None:
    """It has more than it can need, and so would never die of a miscount."""
    runs = evidence.plan.executions.values()
    next(each for each in runs if len(each) > 1 and not each[-1].raised)[-1].a -= 1


@row(doomed, COUNTED, outcome="refused")
@row(doomed, COUNTED, outcome="gone")
@row(doomed, RETRIED, outcome="done")
@row(doomed, RETRIED, outcome="")
def an_attempt_is_miscounted_and_a_retry_was(evidence: PlanEvidence, outcome: str) -> None:
    """Only a retry that may have happened starts to count anew, and then that is looked at."""
    dying(evidence)[1].a = 7
    operations_of(evidence).append(retry(dead_key(evidence), 2, outcome=outcome))


# ---- memory


@row(doomed, COUNTED + " … died after 3 attempts", lacked=False, a=3)
@row(doomed, lacked=True, a=3)
@row(doomed, COUNTED + " … died with 2 attempts used up of 3", lacked=True, a=2)
def the_last_attempt_tells_nothing_and_memory_was(
    evidence: PlanEvidence, lacked: bool, a: int
) -> None:
    """Who lacks memory may fail for good; it is the last of its attempts all the same."""
    last = dying(evidence).pop()
    dies(evidence, last.n, a)
    if lacked:
        evidence.history._pokes.append(("memory", last.began - 0.1, OTHER))


@row(adding, COUNTED, line=False)
@row(adding, COUNTED, line=True)
@row(adding, line=False, poked_s=0.3)
@row(adding, line=True, poked_s=0.3)
@row(adding, COUNTED, line=False, poked_s=60.0)
@row(adding, COUNTED, line=True, poked_s=60.0)
@row(adding, COUNTED, line=False, poked_s=0.3, more=1)
@row(adding, COUNTED, line=True, poked_s=0.3, more=1)
def an_attempt_is_used_up_of_which_nobody_tells(
    evidence: PlanEvidence, line: bool, poked_s: float | None = None, more: int = 0
) -> None:
    """Who lacks memory may fail without its end, or without a line; for a moment, and once."""
    one = winner(evidence)
    runs = evidence.plan.executions[one.key]
    if line:
        robbed = replace(one, uid="robbed", pid=OTHER, began=one.began - 0.2, ended=None)
        runs.insert(0, robbed)
    one.n, one.a = one.n + 1, one.a + 1 + more
    poke = Aim(poke="memory")
    evidence.history.windows.append(Window("task eats memory", one.began - 0.4, poke, one.began))
    known_as(evidence.history, OTHER)
    if poked_s is not None:
        evidence.history._pokes.append(("memory", one.began - poked_s, OTHER))


# ---- retries


@row(held, RETRIED, n=1)
@row(held, RETRIED, n=9)
@row(held, n=1, outcome="refused")
def a_death_is_retried_that_was_none(evidence: PlanEvidence, n: int, outcome: str = "done") -> None:
    made = retry(often_failing(evidence)[0], n, outcome=outcome)
    operations_of(evidence)[: int(outcome == "done")] = [made]


@row(held, "S8 a death is retried once … was retried 2 times")
@row(held, answer_lost=True)
def a_death_is_retried_twice(evidence: PlanEvidence, answer_lost: bool = False) -> None:
    operations_of(evidence).append(operations_of(evidence)[0])
    if answer_lost:
        fault(evidence, operations_of(evidence)[0].begun)


@row(held, RETRIED, aims=())
@row(held, RETRIED, aims=("author",))
@row(held, aims=("author", NAME))
@row(held, RETRIED, aims=("author", NAME), fewer=1)
def an_attempt_of_a_second_life_is_lost_before_its_first_line(
    evidence: PlanEvidence, aims: tuple[str, ...], fewer: int = 0
) -> None:
    """In that life starts are noted. One loss uses up one attempt, and a fault must explain it."""
    key = often_failing(evidence)[0]
    runs = evidence.plan.executions[key]
    # Claims 3 and 4 failed, one of 5 to 7 was lost: the task died again, and claim 9 ran at last.
    runs[5:] = [replace(runs[5], n=9, a=0)]
    del runs[4 : 4 + fewer]
    operations_of(evidence).append(retry(key, 7))
    known_as(evidence.history, OTHER)
    for name in aims:
        fault(evidence, runs[-1].began - 0.5, runs[-1].began - 0.1, Aim(names=[name]))
