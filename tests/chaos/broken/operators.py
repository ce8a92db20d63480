"""Changes of plans that operators paused, cancelled or removed, and of a plan at rest."""

from __future__ import annotations

from ..faults.aim import EVERYBODY, Aim
from ..validate.evidence import PlanEvidence
from ..validate.operator_checks import StoppedPlan
from ..validate.plans import Execution
from ..validate.windows import Window
from . import attempts, plans
from .honest import NOW, cancelled, chain, needy, operation, operations_of, removed
from .table import row

WHOLE = "S1, S2 it rests whole"
STAYS = "S9 it stays cancelled"
NO_SERVER = "S9 waiters hear of it … heard ZooKeeperUnavailable"
PAUSED = "S9 nothing is claimed while paused … began in a paused plan"


def standing_of(plan: StoppedPlan) -> set[str]:
    assert isinstance(plan.standing, set)
    return plan.standing


# ---- cancelled plans


@row(cancelled, "S9 nothing is claimed afterwards … was claimed after its plan was cancelled")
@row(cancelled, claimed=True)
def a_task_begins_after_the_cancel(plan: StoppedPlan, claimed: bool = False) -> None:
    """Whether its claim stood before the operator knows who looked after the cancel."""
    one = plan.evidence.everything[-1]
    (cancel,) = operations_of(plan.evidence)
    cancel.answered = one.began - 0.1
    cancel.seen |= {"standing": [one.key], "entries": {one.key: one.n}}
    cancel.seen["claims"] = {one.key: one.n} if claimed else {}


@row(cancelled, "L3 every task stands or ended … is gone and never returned")
def a_task_is_lost_on_the_way(plan: StoppedPlan) -> None:
    standing_of(plan).remove(min(plan.certain & plan.standing))


@row(cancelled, "S4 adds are whole … task stranger was never added")
def a_task_stands_that_was_never_added(plan: StoppedPlan) -> None:
    standing_of(plan).add("stranger")


@row(cancelled, "S4 adds are whole … which is atomic", state="begun")
@row(cancelled, "S4 adds are whole … was refused, and its task", state="refused")
def half_of_an_add_is_there(plan: StoppedPlan, state: str) -> None:
    batch = plans.wide(plan.evidence)
    batch.state = state
    plan.evidence.plan.executions.pop(batch.keys[0], None)
    standing_of(plan).update(batch.keys[1:])
    standing_of(plan).discard(batch.keys[0])


@row(cancelled, "S7 counts agree")
def one_task_too_many_was_added(plan: StoppedPlan) -> None:
    plan.evidence.remains.added += 1


@row(cancelled, f"{STAYS} … `done` stands in a cancelled plan", name="done")
@row(cancelled, f"{STAYS} … `add-count` stands in a cancelled plan", name="add-count")
@row(cancelled, f"{STAYS} … lock-1 is left", name="lock-1")
@row(cancelled, name="task-0000000007")
def in_the_cancelled_plan_there_is(plan: StoppedPlan, name: str) -> None:
    plan.evidence.remains.plan.append(name)


@row(cancelled, f"{STAYS} … `results` is missing")
def a_child_of_the_cancelled_plan_is_missing(plan: StoppedPlan) -> None:
    plan.evidence.remains.plan.remove("outcomes")


@row(cancelled, f"{STAYS} … a cancelled plan was resumed")
def the_cancelled_plan_is_resumed(plan: StoppedPlan) -> None:
    operations_of(plan.evidence)[0].seen["resumed"] = True


@row(cancelled, f"{STAYS} … a waiter heard that it is done")
def a_waiter_hears_that_the_cancelled_plan_is_done(plan: StoppedPlan) -> None:
    plans.a_waiter_hears(plan.evidence, "done")


@row(cancelled, "S3 what waits has not run")
def a_task_runs_that_still_waits(plan: StoppedPlan) -> None:
    """As a join that its author had not defined wholly when it died."""
    assert isinstance(plan.unready, set)
    plan.unready.add(plan.evidence.everything[0].key)


@row(cancelled, "S4 kept is what is to be kept … though it has dependents")
def the_cancelled_plan_keeps_an_inner_result(plan: StoppedPlan) -> None:
    plans.an_inner_result_is_kept(plan.evidence)


@row(cancelled, "S4 kept is what is to be kept … which has not finished")
def the_cancelled_plan_keeps_the_result_of_a_task_that_stands(plan: StoppedPlan) -> None:
    plans.keep(plan.evidence, _execution(plan.evidence, min(plan.standing)))


def _execution(evidence: PlanEvidence, key: str) -> Execution:
    digest = evidence.expected.digests[key]
    return Execution(uid="x", key=key, n=0, worker="w", pid=2, began=0.0, digest=digest)


@row(cancelled, "S8 attempts are unique")
def an_attempt_number_comes_twice_in_a_cancelled_plan(plan: StoppedPlan) -> None:
    attempts.an_attempt_number_comes_twice(plan.evidence)


# ---- a cancelled plan at rest


@row(cancelled, f"{WHOLE} … in no place", places=())
@row(cancelled, f"{WHOLE} … is in ['runnable', 'later']", places=("runnable", "delayed"))
def a_task_at_rest_stands_in(plan: StoppedPlan, places: tuple[str, ...]) -> None:
    assert plan.snapshot is not None
    plan.snapshot.places["1"] = [*places]


@row(cancelled, f"{WHOLE} … name task-4, which is gone")
def an_index_names_a_task_that_is_gone(plan: StoppedPlan) -> None:
    assert plan.snapshot is not None
    plan.snapshot.places["4"] = ["runnable"]


@row(cancelled, f"{WHOLE} … has no prov-", provisions=())
@row(cancelled, f"{WHOLE} … two prov- name one dep-", provisions=("task-3/dep-1",) * 2)
@row(cancelled, f"{WHOLE} … a prov- names task-2/dep-9", provisions=("task-2/dep-9",))
def the_other_ends_of_edges_are(plan: StoppedPlan, provisions: tuple[str, ...]) -> None:
    assert plan.snapshot is not None
    plan.snapshot.provisions = [*provisions]


@row(cancelled, f"{WHOLE} … has a position with both dep- and arg-")
def an_edge_waits_though_its_value_is_there(plan: StoppedPlan) -> None:
    assert plan.snapshot is not None
    plan.snapshot.children["3"].append("arg-1")


# ---- removed plans


@row(removed, "S4 nothing is committed afterwards … which ended after the removal")
def a_value_is_got_that_was_made_after_the_removal(plan: StoppedPlan) -> None:
    maker = plan.evidence.by_uid[needy(plan.evidence).got[0]]
    operations_of(plan.evidence)[0].answered = (maker.ended or 0.0) - 0.1


@row(removed, "S9 nothing is claimed afterwards … after its plan was removed, without a claim")
@row(removed, claimed=True)
@row(removed, hit=True)
def a_task_begins_after_the_removal(
    plan: StoppedPlan, claimed: bool = False, hit: bool = False
) -> None:
    """Under a claim that is seen afterwards, or that a fault may have cost its worker."""
    seen = operations_of(plan.evidence)[0].seen
    one = max((e for e in plan.evidence.everything if not e.by), key=lambda each: each.began)
    later = [each for each in plan.evidence.everything if each.began > one.began]
    for each in later:
        plan.evidence.plan.executions.pop(each.key, None)
    seen["at"] = one.began - 0.1
    seen["numbers"] = [[one.number, one.n]] if claimed else []
    if hit:
        plan.evidence.history.windows.append(Window("a fault", 0.0))


# ---- what operators are told, and see


@row(cancelled, "S9 waiters hear of it … after cancel a waiter heard WaitTimeout")
def a_wait_for_a_cancelled_plan_goes_on(plan: StoppedPlan) -> None:
    operations_of(plan.evidence)[0].heard = "WaitTimeout"


@row(cancelled, NO_SERVER, begin=NOW, aim=Aim(names=["worker0"]))
@row(cancelled, NO_SERVER, begin=NOW - 60.0, end=NOW - 50.0)
@row(cancelled, NO_SERVER, begin=NOW + 6.0)
@row(cancelled, begin=NOW + 4.0)
def a_waiter_has_no_server_for_five_seconds(
    plan: StoppedPlan, begin: float, end: float = float("inf"), aim: Aim = EVERYBODY
) -> None:
    """A fault of that time is to blame; not one of a worker, for it cuts no link of an operator."""
    (cancel,) = operations_of(plan.evidence)
    cancel.heard, cancel.heard_at = "ZooKeeperUnavailable", NOW + 5.0
    plan.evidence.history.windows.append(Window("a fault", begin, aim, end))


@row(cancelled, "S9 no claim is late … after the cancel", of="cancel")
@row(cancelled, "S9 no claim is late … before the resume", of="resume")
def a_claim_is_younger_than_the_change(plan: StoppedPlan, of: str) -> None:
    if of == "resume":
        operations_of(plan.evidence).append(operation("resume", answered=None, outcome=""))
    operations_of(plan.evidence)[-1].seen["late"] = ["claims/claim"]


@row(chain, begins=0.6, ends=0.7, resumed=1.9)
@row(chain, PAUSED, begins=1.3, ends=1.4, resumed=2.1)
@row(chain, begins=-0.4, ends=1.4, resumed=1.6)
@row(chain, begins=-0.4, ends=1.4, resumed=-0.45)
@row(chain, PAUSED, begins=-0.4, ends=1.4)
def a_plan_is_paused(
    evidence: PlanEvidence, begins: float, ends: float, resumed: float | None = None
) -> None:
    """The second task ends 1.5 s after the first began, and the third begins 0.5 s later.

    A pause holds from its answer to the next resume. What was claimed before it may end in it.
    """
    start = min(each.began for each in evidence.everything)
    made = operation("pause", begun=start + begins, answered=start + ends, seen={"late": []})
    operations_of(evidence).append(made)
    if resumed is not None:
        at = start + resumed
        operations_of(evidence).append(operation("resume", begun=at, answered=at + 0.1))
