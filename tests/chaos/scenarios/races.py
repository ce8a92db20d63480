"""For each broken variant of the protocol (mutant) the scenario that shows it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from zkplan import Plan
from zkplan.runtime.claims import RESULT

from ..cluster.link import LinkState, Loss
from ..cluster.process_state import is_stopped
from ..traffic.operator import Operator
from ..traffic.workloads import HELD_JOIN, LINE, PURE_LINE, SCENARIO_PLANS
from .scenario import Scenario, ScenarioRun

#: How long to wait for something that must not happen, where nothing tells that it did not.
GIVEN_S = 4.0
#: The bound of L2: an idle worker starts a task within this after its last dependency has ended.
SOON_S = 1.5
#: A session that a stopped process keeps while others start, on a busy machine too; one of 5 s may
#: end meanwhile, and then the race does not happen.
LASTING_S = 20.0
#: Shorter than that, as a process that is stopped meanwhile must keep its claim.
DECIDED_S = 12.0

FENCE = "commit fenced by owner only"
GUARD = "clearer without guard"
SHORT = "short histories"
PATIENT = "patient runs"
FENCE_ALONE = ("", FENCE, "no mark")


class MutantCase(NamedTuple):
    """A mutant by its name in tests/sim/mutants.py, and the invariants that must be violated.

    `unbroken`: the variants, the real protocol among them, that must pass the same scenario.
    """

    name: str
    scenario: Scenario
    shows: tuple[str, ...]
    unbroken: tuple[str, ...]


MUTANT_CASES: list[MutantCase] = []
Race = Callable[[ScenarioRun], None]


def _shows(
    mutant: str, plan: str, *shows: str, unbroken: tuple[str, ...] = ("",), **more: Any
) -> Callable[[Race], Race]:
    """The decorated race, on that plan, shows the mutant as a violation of one of `shows`."""

    def entered(race: Race) -> Race:
        MUTANT_CASES.append(MutantCase(mutant, Scenario(race, plan, **more), shows, unbroken))
        return race

    return entered


@_shows("publish left out", "join", "L3", altered="no check")
@_shows("publish left out", "join", "L2", soon_s=SOON_S)
@_shows("result without room forgotten", "join", "L3", altered="full at first")
@_shows("arguments in another order", "join", "S3")
@_shows("delivery without argument", "join", "L3")
@_shows("delivery that leaves the dep", "join", "L3")
@_shows("edge on a task of the same commit", "adding itself", "L3")
@_shows("wide delivery that loses adds", "wide adding", "L3")
@_shows("mark made with the result", "wide end", "S4")
@_shows("blob deleted with its first consumer", "shared", "S10", store=True)
@_shows("sweep that deletes kept results", "one", "S10", store=True)
@_shows("sweep that deletes parts of a history", "line", "S13", store=True, altered=SHORT)
@_shows("run without the fence", "pure line", "L3", "S7", altered=PATIENT)
@_shows(
    "part of a history that is in the store and in the tree",
    "line",
    "S13",
    store=True,
    altered=SHORT,
)
def undisturbed(play: ScenarioRun) -> None:
    """One worker, one plan, no fault."""
    play.start("author", "worker0")


# Alone this mutant breaks nothing: a commit deletes its task, and `started-N` is a second line of
# defence. The claim after a release or a hand-back has N > A; before its worker calls the function,
# it makes `started-N` under `check(claim)`. A stale commit that comes later cannot delete the task
# with that child; one that comes earlier takes the rival's claim, so that the mark is refused and
# the rival runs nothing. So the mark is left out as well.
@_shows(f"{FENCE}+no mark", "one", "S5", unbroken=FENCE_ALONE, session_s=LASTING_S)
def stale_commit(play: ScenarioRun) -> None:
    """A worker that lost its claim commits while its rival runs the task."""
    lost_to_a_rival(play, "task.after")
    plan = play.plan
    play.resume("worker0")
    is_decided(play, plan)
    play.resume("worker1")


@_shows(f"{FENCE}+no mark", "one", "S4", "S5", unbroken=FENCE_ALONE, session_s=LASTING_S)
def commit_before_the_rival_starts(play: ScenarioRun) -> None:
    """A worker that lost its claim commits when its rival has loaded the task, not started it."""
    lost_to_a_rival(play, "load.read")
    plan = play.plan
    play.resume("worker0")
    is_decided(play, plan)
    play.resume("worker1")
    # Nothing else waits for worker1: the plan may be done, and removed, before it goes on.
    play.during(GIVEN_S / 2, lambda: play.has_run("T", "worker1"))


def lost_to_a_rival(play: ScenarioRun, rivals: str) -> None:
    """worker0 has run the task and loses its session; its rival is stopped at the point `rivals`.

    The session does not end by its time-out, which is the rival's too: the rival would lose its
    claim as well, and there would be no claim for worker0 to take.
    """
    play.start("author")
    play.stop_at("worker0", "task.after")
    play.expire("worker0")
    play.stop_at("worker1", rivals)


def is_decided(play: ScenarioRun, plan: Plan) -> None:
    """Wait until the commit of worker0 was accepted or refused."""
    refused = f"so {RESULT}"
    play.during(DECIDED_S, lambda: plan.status().tasks == 0 or refused in play.log_of("worker0"))


@_shows("publish without compare-and-set", "join", "S8", session_s=LASTING_S)
def late_publication(play: ScenarioRun) -> None:
    """The worker of the last delivery publishes late: a check did it, and the task is claimed."""
    play.start("author")
    play.stop_at("worker0", "publish.before")
    play.plan.check()
    play.stop_at("worker1", "task.after")
    play.resume("worker0")
    play.during(GIVEN_S, lambda: len(play.runs("T")) > 1)
    play.resume("worker1")


# Without the background check, which would publish after 2 s and more.
@_shows("no pending record", "join", "L3", session_s=1.5, altered="no check")
@_shows(
    "pending record cleared without publishing", "join", "L3", session_s=1.5, altered="no check"
)
def death_before_publishing(play: ScenarioRun) -> None:
    """The worker of the last delivery dies before it publishes; only its pending record tells of
    it."""
    play.start("author")
    play.kill_at("worker0", "publish.before")
    play.start("worker1")


@_shows("claim without check of workers/ID", "one slow", "L1", session_s=1.5)
def claim_of_the_lost(play: ScenarioRun) -> None:
    """A claim is sent after its session has ended, and before the claims node is cleared."""
    play.start("author")
    play.stop_at("worker0", "claim.before")
    play.wait_unregistered("worker0")
    play.resume("worker0")


@_shows("claim without check of the plan's ready", "one slow", "S9", session_s=LASTING_S)
def claim_after_a_pause(play: ScenarioRun) -> None:
    """A claim is sent after the plan was paused."""
    play.start("author")
    play.stop_at("worker0", "claim.before")
    plan, operator = play.plan, Operator(play.client, play.cluster.journal)
    operator.pause(plan)
    play.resume("worker0")
    play.during(GIVEN_S, lambda: bool(play.runs("T")))
    operator.resume(plan)  # sees what is claimed


@_shows("release keeps N", "one", "S8", session_s=1.5)
def death_in_a_task(play: ScenarioRun) -> None:
    """A worker dies when it has run the task, before the commit."""
    play.start("author")
    play.kill_at("worker0", "task.after")
    play.start("worker1")


# Alone this mutant breaks nothing, as claims nodes are listed before workers, and a worker is
# registered together with its claims node. On a server that answers from a prefix of the writes, a
# worker that is missing then is gone. So the order of the two readings is broken as well.
@_shows(
    f"{GUARD}+claims nodes listed last",
    "one slow",
    "S8",
    unbroken=("claims nodes listed last", f"{GUARD}+claims nodes listed first"),
    session_s=LASTING_S,
)
def registration_unseen(play: ScenarioRun) -> None:
    """A worker takes another one for gone, which lives, and clears its claims node."""
    play.start("author")
    play.stop_at("worker1", "vacant.between")
    play.start("worker0")
    play.until(lambda: play.runs("T"), "the task runs")
    play.resume("worker1")


@_shows("load without looking for the claim afterwards", "join", "S3", session_s=1.5)
def late_load(play: ScenarioRun) -> None:
    """While a worker reads the arguments its claim is released, and a rival starts the task."""
    play.start("author")
    # The worker that delivered the arguments is gone, so the next one first loads their task.
    play.kill_at("worker2", "publish.before")
    play.stop_at("worker0", "load.between")
    play.stop_at("worker1", "task.after")
    rival = max(run.n for run in play.runs("T"))
    play.resume("worker0")
    # Only in the first plan: the author may make another one meanwhile.
    if play.during(GIVEN_S, lambda: any(run.n < rival for run in play.runs("T", most_plans=1))):
        play.violated(f"S3 T started as an attempt before {rival}, whose claim went while it read")
    play.resume("worker1")


@_shows("add without identity", "one", "S8")
def answer_to_an_add_lost(play: ScenarioRun) -> None:
    """An add is applied, its answer is lost, and it is sent again."""
    link = play.link("author")
    # By its number, as the proxy does not recognize a broken add. The first makes the plan.
    link.change(LinkState(lose=lambda step, number: "answer" if number == 2 else None))
    play.start("author", "worker0")
    play.until(lambda: link.lost, "an answer is lost")


@_shows("refused repetition taken as fenced", "join", "L3", altered="no check")
def answers_to_commits_lost(play: ScenarioRun) -> None:
    """The first commit loses its answer, and each second one after it; repetitions are refused."""
    link, commits = play.link("worker0"), count()

    def lose(step: str, number: int) -> Loss | None:
        return "answer" if step == "commit" and next(commits) % 2 == 0 else None

    link.change(LinkState(lose=lose))
    play.start("author", "worker0")
    play.until(lambda: link.lost, "an answer is lost")


@_shows("done without the version of adds", "late", "S7", session_s=LASTING_S)
def add_at_the_end(play: ScenarioRun) -> None:
    """A task is added after a worker has found none left, and before it ends the plan."""
    play.start("worker0", points="finish.between=stop")
    play.start("author")
    play.wait_stopped("worker0")
    play.allow_add(1)
    play.until(lambda: play.added(1), "the second add is acknowledged")
    play.resume("worker0")


@_shows("retry without its witness", "retried", "S8")
def two_retries(play: ScenarioRun) -> None:
    """A retry is sent after another operator's, and after the task has died again."""
    play.start("author", "worker0")
    plan = play.plan
    play.until(lambda: any(plan.dead()), "the task is dead")
    ((number, _),) = plan.dead()
    operator = play.operator("task", "retry", plan.number, number, points="retry.between=stop")
    play.until(lambda: is_stopped(operator.pid), "the operator has read the dead letter")
    play.retry(plan)
    play.until(lambda: [dead.n for _, dead in plan.dead()] == [1], "it is dead again")
    operator.send(signal.SIGCONT)
    play.until(lambda: not operator.is_running(), "the operator is done")
    play.during(GIVEN_S / 2, lambda: len(play.runs("T")) > 2)
    play.until(lambda: play.retry(plan), "it is tried once more")


@_shows("wide join that settles all its positions", "held join", "S4")
def join_defined_while_it_runs(play: ScenarioRun) -> None:
    """All dependencies of a wide join finish between two steps of its definition."""
    play.start("author", points="wide_join.between=stop:1:1")
    play.start("worker0", "worker1")
    play.wait_stopped("author")
    play.plan.mark_ready()
    play.until(lambda: play.count("end") >= HELD_JOIN, "what the join needs has run")
    play.until(lambda: play.plan.status().tasks == 1, "what the join needs has finished")
    play.resume("author")


@_shows("wide delivery without its mark", "wide", "S4", session_s=1.5)
def death_after_the_last_edge(play: ScenarioRun) -> None:
    """A worker that delivered a result along all edges dies before it deletes the task."""
    play.start("author")
    play.kill_at("worker0", "wide.delivered")
    play.start("worker1")


@_shows("reference before its blob", "one", "S10", session_s=1.5, store=True)
def death_after_a_commit(play: ScenarioRun) -> None:
    """A worker dies as soon as it has committed."""
    play.start("author")
    play.kill_at("worker0", "commit.made")
    play.start("worker1")


@_shows(
    "part of a history deleted before it is written",
    "line",
    "S13",
    session_s=1.5,
    store=True,
    altered=SHORT,
)
def death_while_a_history_moves(play: ScenarioRun) -> None:
    """A worker dies between the two steps that bring the oldest of a history to the store."""
    play.start("author")
    play.kill_at("worker0", "history.between")
    play.start("worker1")
    play.until(lambda: play.count("end") >= LINE, "all tasks have run")


@_shows(
    "run that writes to the store",
    "pure line",
    "S10",
    altered=PATIENT,
    session_s=LASTING_S,
    store=True,
)
@_shows("check of blobs without the claims", "one", "S10", session_s=LASTING_S, store=True)
def check_before_the_commit(play: ScenarioRun) -> None:
    """An operator has a plan checked while a result lies in the store and is not committed."""
    play.start("author")
    play.stop_at("worker0", "commit.before")
    operator = play.operator("plan", "check", play.plan.number)
    play.until(lambda: not operator.is_running(), "the check is done")
    play.resume("worker0")


@_shows("run without check of the plan", "pure line", "S9", altered=PATIENT, session_s=LASTING_S)
def pause_before_a_run_is_committed(play: ScenarioRun) -> None:
    """A plan is paused after a worker has run all of a chain, and before it commits any of it."""
    has_run_ahead(play)
    plan, operator = play.plan, Operator(play.client, play.cluster.journal)
    operator.pause(plan)
    play.resume("worker0")
    play.until(lambda: plan.status().tasks < len(PURE_LINE), "the claimed task is committed")
    if plan.status().tasks < len(PURE_LINE) - 1:
        play.violated("S9 tasks that nobody had claimed were committed in a paused plan")
    operator.resume(plan)


@_shows(
    "run that takes new edges with it",
    "pure line, grown",
    "S2",
    altered=PATIENT,
    session_s=LASTING_S,
)
def edge_to_a_task_of_a_run(play: ScenarioRun) -> None:
    """A task is added that needs one that has run and is not committed."""
    has_run_ahead(play)
    play.allow_add(1)
    play.until(lambda: play.added(1), "the second add is acknowledged")
    play.resume("worker0")


@_shows("fenced run that goes on", "pure line", "S2", "L3", altered=PATIENT, session_s=LASTING_S)
def run_behind_a_task_that_is_skipped(play: ScenarioRun) -> None:
    """The claimed task is skipped after its worker has run all of a chain. So its claim is gone,
    and its worker lives."""
    has_run_ahead(play)
    (task,) = play.plan.select(name=PURE_LINE[0].key)
    workload = SCENARIO_PLANS["pure line"]
    operator = Operator(play.client, play.cluster.journal)
    operator.skip(play.plan, task, PURE_LINE[0], workload.digests[PURE_LINE[0].key])
    play.resume("worker0")


def has_run_ahead(play: ScenarioRun) -> None:
    """worker0 has run all of the chain, and is stopped before it commits any of it."""
    play.start("author")
    play.stop_at("worker0", "commit.before")
    play.until(lambda: play.runs(PURE_LINE[-1].key), "the last one has run")
