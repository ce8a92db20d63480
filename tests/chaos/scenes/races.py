"""The scenes: for each broken variant of the protocol the race that shows it."""

from __future__ import annotations

import signal
from typing import NamedTuple

from zkplan import Plan
from zkplan.runtime.losses import RESULT

from ..actors.workloads import HELD_JOIN
from ..world.link import Weather
from ..world.proc import is_stopped
from .stage import Scene, Stage

#: How long something that must not happen is waited for, where nothing else tells that it did not.
GIVEN_S = 4.0
#: A worker with nothing else to do starts a task so soon after the last that it needs has ended.
SOON_S = 1.5
#: A session that whoever is stopped keeps while others are started, on a busy machine too: in 5 s
#: it may end meanwhile, and what is to be shown does not happen.
LASTING_S = 20.0
#: Shorter than that, for who is stopped meanwhile must keep its claim.
DECIDED_S = 12.0


def undisturbed(stage: Stage) -> None:
    """One worker, one plan, no fault."""
    stage.start("author", "worker0")


def stale_commit(stage: Stage) -> None:
    """Who lost its claim commits while the rival runs the task."""
    lost_to_a_rival(stage, "task.after")
    plan = stage.plan
    stage.go("worker0")
    is_decided(stage, plan)
    stage.go("worker1")


def commit_before_the_rival_starts(stage: Stage) -> None:
    """Who lost its claim commits while the rival has loaded the task and not started it."""
    lost_to_a_rival(stage, "load.read")
    plan = stage.plan
    stage.go("worker0")
    is_decided(stage, plan)
    stage.go("worker1")
    # Nothing else waits for it: a plan may be done, and removed, before it goes on.
    stage.during(GIVEN_S / 2, lambda: stage.has_run("T", "worker1"))


def lost_to_a_rival(stage: Stage, rivals: str) -> None:
    """The session of who has run the task ends, and a rival stands at that point of its own claim.

    Not by its time-out, which is the rival's too: it would lose its claim as well, and nobody owns
    what the other one commits.
    """
    stage.start("author")
    stage.start("worker0", points="task.after=stop")
    stage.stopped("worker0")
    stage.expire("worker0")
    stage.start("worker1", points=f"{rivals}=stop")
    stage.stopped("worker1")


def is_decided(stage: Stage, plan: Plan) -> None:
    """What worker0 commits was accepted or refused; on a busy machine that takes its time."""
    refused = f"so {RESULT}"
    stage.during(DECIDED_S, lambda: plan.status().tasks == 0 or refused in stage.log_of("worker0"))


def late_publication(stage: Stage) -> None:
    """Who made the last delivery publishes after an operator's check did; the task is claimed."""
    stage.start("author")
    stage.start("worker0", points="publish.before=stop")
    stage.stopped("worker0")
    stage.plan.check()
    stage.start("worker1", points="task.after=stop")
    stage.stopped("worker1")
    stage.go("worker0")
    stage.during(GIVEN_S, lambda: len(stage.runs("T")) > 1)
    stage.go("worker1")


def death_before_publishing(stage: Stage) -> None:
    """Who made the last delivery dies before it publishes; its pending record is all that tells."""
    stage.start("author")
    stage.start("worker0", points="publish.before=kill")
    stage.dead("worker0")
    stage.start("worker1")


def claim_of_the_lost(stage: Stage) -> None:
    """A claim is sent after its session has ended, and before the claims node is cleared."""
    stage.start("author")
    stage.start("worker0", points="claim.before=stop")
    stage.stopped("worker0")
    stage.gone("worker0")
    stage.go("worker0")


def claim_after_a_pause(stage: Stage) -> None:
    """A claim is sent after the plan was paused."""
    stage.start("author")
    stage.start("worker0", points="claim.before=stop")
    stage.stopped("worker0")
    plan = stage.plan
    plan.pause()
    stage.during(0.0)
    stage.go("worker0")
    stage.during(GIVEN_S)
    plan.resume()


def death_in_a_task(stage: Stage) -> None:
    """A worker dies when it has run the task, before the commit."""
    stage.start("author")
    stage.start("worker0", points="task.after=kill")
    stage.dead("worker0")
    stage.start("worker1")


def registration_unseen(stage: Stage) -> None:
    """A clearer takes a worker for gone that lives, and clears its claims node."""
    stage.start("author")
    stage.start("worker1", points="vacant.between=stop")
    stage.stopped("worker1")
    stage.start("worker0")
    stage.until(lambda: stage.runs("T"), "the task runs")
    stage.go("worker1")


def late_load(stage: Stage) -> None:
    """While a worker reads the arguments its claim is released, and a rival starts the task."""
    stage.start("author")
    # Who delivered the arguments is gone: the next worker's first load is that of their task.
    stage.start("worker2", points="publish.before=kill")
    stage.dead("worker2")
    stage.start("worker0", points="load.between=stop")
    stage.stopped("worker0")
    stage.start("worker1", points="task.after=stop")
    stage.stopped("worker1")
    rival = max(run.n for run in stage.runs("T"))
    stage.go("worker0")
    # The author makes another plan meanwhile, whose first attempt is none of this one.
    if stage.during(GIVEN_S, lambda: any(run.n < rival for run in stage.runs("T", most_plans=1))):
        stage.violated(f"S3 T started as an attempt before {rival}, whose claim went while it read")
    stage.go("worker1")


def answer_to_an_add_lost(stage: Stage) -> None:
    """An add is applied, its answer is lost, and it is sent again."""
    link = stage.link("author")
    # Told by its number: the first makes the plan, and a broken add does not look like one.
    link.change(Weather(lose=lambda step, number: "answer" if number == 2 else None))
    stage.start("author", "worker0")
    stage.until(lambda: link.lost, "an answer is lost")


def answers_to_commits_lost(stage: Stage) -> None:
    """Each commit is answered only the second time, when it is refused."""
    link = stage.link("worker0")
    link.change(Weather(lose_first="commit"))
    stage.start("author", "worker0")
    stage.until(lambda: link.lost, "an answer is lost")


def add_at_the_end(stage: Stage) -> None:
    """A task is added when a worker has found none left, before it ends the plan."""
    stage.start("worker0", points="finish.between=stop")
    stage.start("author")
    stage.stopped("worker0")
    stage.allow_add(1)
    stage.until(lambda: stage.added(1), "the second add is acknowledged")
    stage.go("worker0")


def two_retries(stage: Stage) -> None:
    """An operator's retry is sent after another one's, and after the task died again."""
    stage.start("author", "worker0")
    plan = stage.plan
    stage.until(plan.dead, "the task is dead")
    (number,) = plan.dead()
    operator = stage.operator("task", "retry", plan.number, number, points="retry.between=stop")
    stage.until(lambda: is_stopped(operator.pid), "the operator has read the dead letter")
    stage.retry(plan)
    stage.until(lambda: [dead.n for dead in plan.dead().values()] == [1], "it is dead again")
    operator.send(signal.SIGCONT)
    stage.until(lambda: not operator.is_running(), "the operator is done")
    stage.during(GIVEN_S / 2, lambda: len(stage.runs("T")) > 2)
    stage.until(lambda: stage.retry(plan), "it is tried once more")


def join_defined_while_it_runs(stage: Stage) -> None:
    """Between two steps of a wide join everything that it waits for finishes."""
    stage.start("author", points="wide_join.between=stop:1:1")
    stage.start("worker0", "worker1")
    stage.stopped("author")
    stage.plan.mark_ready()
    stage.until(lambda: stage.ended() >= HELD_JOIN, "what the join needs has run")
    stage.until(lambda: stage.plan.status().tasks == 1, "what the join needs has finished")
    stage.go("author")


def death_after_the_last_edge(stage: Stage) -> None:
    """Who delivered a result along all its edges dies before the task is gone."""
    stage.start("author")
    stage.start("worker0", points="wide.delivered=kill")
    stage.dead("worker0")
    stage.start("worker1")


class Catch(NamedTuple):
    """A broken variant, by its name in tests/sim/mutants.py, and what shows it in a scene.

    `unbroken`: what the same scene is played with to show that it blames nobody else.
    """

    name: str
    scene: Scene
    shows: tuple[str, ...]
    unbroken: tuple[str, ...] = ("",)


FENCE = "commit fenced by owner only"
GUARD = "clearer without guard"
_DEATH = Scene(death_before_publishing, "join", session_s=1.5, altered="no check")
CATCHES = (
    # Alone it is in nobody's way where a task that was claimed before is marked when it starts.
    Catch(
        f"{FENCE}+no mark", Scene(stale_commit, "one", LASTING_S), ("S5",), ("", FENCE, "no mark")
    ),
    Catch(
        f"{FENCE}+no mark",
        Scene(commit_before_the_rival_starts, "one", LASTING_S),
        ("S4", "S5"),
        ("", FENCE, "no mark"),
    ),
    Catch("publish left out", Scene(undisturbed, "join", altered="no check"), ("L3",)),
    Catch("publish left out", Scene(undisturbed, "join", soon_s=SOON_S), ("L2",)),
    Catch("publish without compare-and-set", Scene(late_publication, "join", LASTING_S), ("S8",)),
    Catch("no pending record", _DEATH, ("L3",)),
    Catch("pending record cleared without publishing", _DEATH, ("L3",)),
    Catch("claim without check of workers/ID", Scene(claim_of_the_lost, "one slow", 1.5), ("L1",)),
    Catch(
        "claim without check of the plan's ready",
        Scene(claim_after_a_pause, "one slow", LASTING_S),
        ("S9",),
    ),
    Catch("release keeps N", Scene(death_in_a_task, "one", 1.5), ("S8",)),
    # Alone it is in nobody's way where claims nodes are listed before workers, on a server that
    # does not lag behind itself: the README says why.
    Catch(
        f"{GUARD}+claims nodes listed last",
        Scene(registration_unseen, "one slow", LASTING_S),
        ("S8",),
        ("claims nodes listed last", f"{GUARD}+claims nodes listed first"),
    ),
    Catch("load without looking for the claim afterwards", Scene(late_load, "join", 1.5), ("S3",)),
    Catch("add without identity", Scene(answer_to_an_add_lost, "one"), ("S8",)),
    Catch(
        "refused repetition taken as fenced",
        Scene(answers_to_commits_lost, "join", altered="no check"),
        ("L3",),
    ),
    Catch(
        "result without room forgotten",
        Scene(undisturbed, "join", altered="full at first"),
        ("L3",),
    ),
    Catch("arguments in another order", Scene(undisturbed, "join"), ("S3",)),
    Catch("delivery without argument", Scene(undisturbed, "join"), ("L3",)),
    Catch("delivery that leaves the dep", Scene(undisturbed, "join"), ("L3",)),
    Catch("done without the version of adds", Scene(add_at_the_end, "late", LASTING_S), ("S7",)),
    Catch("retry without its witness", Scene(two_retries, "retried"), ("S8",)),
    Catch(
        "wide join that settles all its positions",
        Scene(join_defined_while_it_runs, "held join"),
        ("S4",),
    ),
    Catch("edge on a task of the same commit", Scene(undisturbed, "adding itself"), ("L3",)),
    Catch("wide delivery that loses adds", Scene(undisturbed, "wide adding"), ("L3",)),
    Catch("wide delivery without its mark", Scene(death_after_the_last_edge, "wide", 1.5), ("S4",)),
    Catch("mark made with the result", Scene(undisturbed, "wide end"), ("S4",)),
)
