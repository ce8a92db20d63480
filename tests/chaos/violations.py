"""The table of all violations: an honest history, one change, and what must be found then.

The rows of stress runs are in violations_of_stress.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import changes as to
from .changes import NAME, OTHER, put
from .faults.target import Target
from .honest import (
    AUTHOR,
    NOW,
    adding,
    again,
    cancelled,
    chain,
    checked,
    dead_key,
    defined_late,
    diamonds,
    doomed,
    drawn,
    failing,
    find,
    held,
    hub,
    needy,
    often_failing,
    operation,
    operations_of,
    prompt,
    pure,
    removed,
    retry,
    skip,
    winner,
)
from .validate.evidence import PlanEvidence
from .validate.plans import Batch
from .validate.snapshot import DeadLetter

Row = tuple[Callable[[Path], Any], Callable[[Any], object], str]
STUCK = "PlanStuck: /z/plan-1 can never drain: one task remains and cannot run; task-1: "
HALF = f"{STUCK}is still being defined (a join too wide for one transaction)"
NOWHERE = "is complete, and nowhere"
NO_MEMORY = repr(OSError(12, "Cannot allocate memory"))
NO_THREAD = repr(RuntimeError(f"no thread: {NO_MEMORY}"))
GONE = "PlanNotFound('there is no plan /z/plan-1')"
NO_FOLDER = 'StoreUnavailable("add-1 is not written to the store: its folder plan-1 was deleted")'
NO_ANSWER = "heard ZooKeeperUnavailable"
LOST = "nothing had disturbed"
AFTER_3 = "died after 3 attempts"
LATE = operation("resume", answered=None, outcome="", seen={"late": ["claims/claim"]})


def _refuse_for_a_fault_of_the_store(e: PlanEvidence) -> None:
    to.fault(e, NOW - 1, aim=Target(store=True))
    to.refuse_for_the_store(e)


#: By its check: an honest history, a change, and a piece of the violation that must be found.
#: Without a piece nothing may be found: it is no violation.
TABLE: dict[str, list[Row]] = {
    # ---- of every plan
    "S4 results are fixed once": [
        (adding, lambda e: to.keep(e, to.add_run(e, again(winner(e), 9))), "was committed 2 times"),
        (pure, to.drop_a_run, ""),
    ],
    "S4 values come from executions": [
        (adding, lambda e: needy(e).got.__setitem__(0, "nobody"), "which nobody made"),
        (adding, lambda e: put(e.by_uid[needy(e).got[0]], ended=None), "which never returned"),
        (adding, lambda e: put(e.by_uid[needy(e).got[0]], ended=NOW), "had ended"),
        (adding, lambda e: to.change_kept(e.remains, uid="nobody"), "which is None"),
        (adding, lambda e: to.change_kept(e.remains, uid=winner(e).uid), "the kept result of"),
        (adding, lambda e: put(e.by_uid[e.remains.kept[0].uid], ended=None), "the kept result of"),
        (drawn, lambda e: needy(e, 2).got.reverse(), "in place of one of"),
    ],
    "S5 the last claim commits": [
        (adding, lambda e: to.add_run(e, winner(e), n=9, uid="late"), "had a later claim"),
        (
            pure,
            lambda e: to.add_run(e, to.run_ahead(e), ahead=False, n=1, uid="late"),
            "had a later",
        ),
    ],
    "S3 arguments are exact": [
        (adding, lambda e: needy(e).got.pop(), "of 1 arguments"),
        (adding, lambda e: put(needy(e), digest="wrong"), "had other arguments"),
        (adding, lambda e: to.add_run(e, winner(e), key="x", uid="x"), "is of no task"),
        (drawn, to.give_arguments_in_another_order, "in another order"),
    ],
    "S3 arguments are undamaged": [(adding, lambda e: needy(e).damaged.append("x"), "got damaged")],
    "S4 all is under its own number": [
        (adding, lambda e: to.change_kept(e.remains, number="another"), "is that of task another"),
        (drawn, to.swap_numbers, "the kept result of"),
        (drawn, lambda e: put(e.everything[1], number=e.everything[0].number), "ran as task"),
        (doomed, lambda e: put(to.tell_no_numbers(e), number="another"), "ran as task another"),
        (doomed, to.tell_no_numbers, ""),
    ],
    "S15 each runs where its queue is served": [
        (adding, lambda e: put(winner(e), queue="side"), "is of the queue side"),
        (adding, lambda e: put(winner(e), serves=["side"]), "not of ['side']"),
    ],
    "S18 a decision is the outcome": [
        (adding, lambda e: operations_of(e).append(skip(winner(e).key)), "was skipped, and"),
        (adding, lambda e: operations_of(e).append(skip(winner(e).key, "refused")), ""),
    ],
    "S4 results are the oracles": [
        (adding, lambda e: to.change_kept(e.remains, result="wrong"), "the kept result of")
    ],
    "L3 nothing acknowledged is lost": [
        (adding, lambda e: e.plan.executions.pop(e.remains.kept[-1].key), "never returned"),
        (doomed, lambda e: e.remains.letters.pop(dead_key(e)), "must be dead and has no dead"),
        (doomed, lambda e: to.add_run(e, winner(e), key=to.key_of(e, "cut")), "ran, though"),
        (hub, to.refuse_after_the_first, "never returned (0 executions)"),
        (cancelled, lambda e: e.standing.remove(min(e.certain & e.standing)), "never returned"),
    ],
    "S4 adds are whole": [
        (adding, lambda e: put(e.plan.batches[0], state="refused"), "was refused, and its task"),
        (adding, to.split_an_add, "which is atomic"),
        (adding, lambda e: e.plan.batches.clear(), "was never added"),
        (hub, lambda e: put(to.wide(e), state="refused", added=1), "was refused, and its task"),
        (cancelled, to.split_an_add, "which is atomic"),
        (cancelled, lambda e: to.split_an_add(e, "refused"), "was refused, and its task"),
        (cancelled, lambda e: e.standing.add("stranger"), "task stranger was never added"),
    ],
    "S4 adds are refused rightly": [
        (hub, lambda e: put(to.wide(e), state="refused", error="ResultNotKept('T')"), "can be had"),
        (hub, lambda e: e.plan.batches.update({9: Batch([], True, "refused", "PlanDrained")}), ""),
    ],
    "S10 adds are refused only without a store": [
        (hub, to.refuse_for_the_store, "and no fault had hit"),
        (hub, _refuse_for_a_fault_of_the_store, ""),
    ],
    "S4 an attempt adds with its commit": [
        (adding, lambda e: to.add_by(e, "nobody"), "was added by nobody, which is None"),
        (adding, lambda e: to.add_by(e, "failed"), "was added by other, which is"),
        (adding, lambda e: to.add_by(e, "other"), "which was not committed"),
    ],
    "S4 kept is what is to be kept": [
        (adding, lambda e: e.remains.kept.pop(0), "is not kept"),
        (adding, lambda e: e.remains.kept.append(e.remains.kept[0]), "is kept 2 times"),
        (adding, to.keep_an_inner_result, "is kept, though it has dependents"),
        (adding, to.keep_what_only_a_commit_needs, "is kept, though it has dependents"),
        (diamonds, to.keep_an_inner_result, "is kept, though it has dependents"),
        (defined_late, lambda e: to.keep_an_inner_result(e, answered=True), ""),
        (diamonds, lambda e: to.open_an_add(e, ran=False, kept=True), ""),
        (diamonds, lambda e: to.open_an_add(e, ran=False), ""),
        (adding, lambda e: e.remains.failed.append("0"), "1 failure kept, and no dead letter"),
        (doomed, lambda e: to.change_kept(e.remains, key=dead_key(e)), "has not finished"),
        (doomed, lambda e: e.remains.failed.remove(dead_key(e)), "no failure kept, and a dead"),
        (doomed, lambda e: e.remains.failed.append(dead_key(e)), "is kept 2 times"),
        (cancelled, to.keep_an_inner_result, "though it has dependents"),
        (cancelled, lambda e: to.change_kept(e.remains, key=min(e.standing)), "has not finished"),
    ],
    "S7 counts agree": [
        (adding, lambda e: put(e.remains, added=e.remains.added + 1), "were added"),
        (adding, lambda e: put(e.remains, added=e.remains.added - 1), "were added"),
        (drawn, to.open_an_add, ""),
        (drawn, lambda e: to.open_an_add(e, added=1), "were added"),
        (drawn, lambda e: to.open_an_add(e, ran=False), ""),
        (drawn, lambda e: to.open_an_add(e, ran=False, added=-1), "were added"),
        (cancelled, lambda e: put(e.remains, added=e.remains.added + 1), "were added"),
    ],
    "S9 nothing runs before it is ready": [
        (adding, lambda e: to.run_before_an_early_add(e, answered=True), "was marked ready"),
        (adding, lambda e: to.run_before_an_early_add(e, answered=False), "was marked ready"),
    ],
    # ---- of attempts
    "S8 attempts are unique": [
        (adding, lambda e: to.add_run(e, winner(e), uid="x"), "was executed 2 times as attempt"),
        (cancelled, lambda e: to.add_run(e, winner(e), uid="x"), "was executed 2 times as"),
    ],
    "S8 only losses and failures repeat": [
        (adding, to.repeat, LOST),
        (adding, lambda e: to.repeat_after_a_healed_fault(e, 0.1), LOST),
        (adding, lambda e: to.repeat_after_a_healed_fault(e, -0.1), ""),
        (adding, lambda e: to.repeat_before_a_fault(e, 60.0), LOST),
        (adding, lambda e: to.repeat_before_a_fault(e, 5.0), ""),
        (doomed, lambda e: to.live(e, "0.0f 1.1b 2.1f 3.2f", "3.3"), ""),
        (doomed, lambda e: to.live(e, "0.0f 1.1b 2.1f 3.2f", "3.3", stopped_s=-5.0), LOST),
        (doomed, lambda e: to.live(e, "0.0f 1.1n 2.1f 3.2f", "3.3"), LOST),
    ],
    "S8 attempts are counted right": [
        (doomed, lambda e: to.live(e, "0.0f 1.1b 2.2f", "2.3"), "with 2 attempts used up, not [1]"),
        # Who cannot use the store uses up no attempt.
        (doomed, lambda e: to.live(e, "0.0s 1.0f 2.1s 3.1f 4.2f", "4.3"), ""),
        (doomed, lambda e: to.live(e, "0.0s 1.1f 2.2f", "2.3"), "with 1 attempts used up, not [0]"),
        # The first loss after failures is free, for nobody noted the start; the next one is not.
        (doomed, lambda e: to.live(e, "0.0f 1.1l 2.1f 3.2f", "3.3"), ""),
        (doomed, lambda e: to.live(e, "0.0f 1.1l 2.2f", "2.3"), "began with 2 attempts"),
        (doomed, lambda e: to.live(e, "0.0f 1.1l 2.1l 3.2f", "3.3"), ""),
        (doomed, lambda e: to.live(e, "0.0f 1.1l 2.1l 3.1f 4.2f", "4.3"), "began with 1 attempts"),
        # An attempt may be lost whose worker noted the start, and of which nobody tells.
        (doomed, lambda e: to.live(e, "0.0f 1.1b 2.1f", "4.3"), AFTER_3),
        (doomed, lambda e: to.live(e, "0.0f 1.1b 2.1f", "4.3", hit=["author"]), AFTER_3),
        (doomed, lambda e: to.live(e, "0.0f 1.1b 2.1f", "4.3", hit=["told"]), AFTER_3),
        (doomed, lambda e: to.live(e, "0.0f 1.1b 2.1f", "4.3", hit=[NAME]), ""),
        (doomed, lambda e: to.live(e, "0.0f 1.1b 2.1f", "3.3", hit=[NAME]), "died"),
        # No fault excuses that a task dies too early, or goes on: who is lost leaves it alive.
        (doomed, lambda e: to.live(e, "0.0f 1.1f 2.2n", "2.3"), "attempts used up, after"),
        (doomed, lambda e: to.live(e, "0.0f 1.1f", "2.3"), AFTER_3),
        (doomed, lambda e: to.live(e, "0.0f 1.1f", "1.3"), "died with 3 attempts"),
        (doomed, lambda e: to.live(e, "0.0f 1.1f", "1.2"), "died with 2 attempts"),
        (doomed, lambda e: to.live(e, "0.0f 1.1f", "2.3", hit=[NAME]), AFTER_3),
        (doomed, lambda e: to.live(e, "0.0f 1.1f", "1.3", hit=[NAME]), "died with 3 attempts"),
        (doomed, lambda e: to.live(e, "0.0f 1.1f", "1.2", hit=[NAME]), "died with 2 attempts"),
        (doomed, lambda e: to.live_all_added(e, "0.0f 1.1f 2.2f", "3.3"), "its last attempt"),
        # Its failure goes to tasks that were added when it died.
        (doomed, lambda e: to.live(e, "0.0f 1.1f 2.2f", "3.3"), ""),
        (doomed, lambda e: to.live(e, "0.0f 1.1f 2.2f", "3.1"), "its last attempt"),
        (doomed, lambda e: to.live(e, "0.0f 1.1f 2.2f 3.3f", "3.3"), "3 attempts used up of 3"),
        (failing, lambda e: put(find(e, a=1, raised=""), a=0), "0 attempts used up, not [1]"),
        # Only a retry that may have happened starts to count anew, and then that is looked at.
        (doomed, lambda e: to.live(e, "0.0f 1.7f 2.2f", retried="refused"), "began with 7"),
        (doomed, lambda e: to.live(e, "0.0f 1.7f 2.2f", retried="gone"), "began with 7"),
        # Who lacks memory, for a moment, may fail once without its end, or without a line.
        (doomed, lambda e: to.live(e, "0.0f 1.1f", "2.3", poked_s=0.1), ""),
        (doomed, lambda e: to.live(e, "0.0f 1.1f", "2.2", poked_s=0.1), "used up of 3, its last"),
        # A result that the server refused to commit is a failure.
        (adding, lambda e: to.live(e, "0.0c 1.1r", key="0"), ""),
        (adding, lambda e: to.live(e, "0.0c 1.2r", key="0"), "began with 2"),
        (adding, lambda e: to.live(e, "0.0n 1.1r", key="0"), "began with 1"),
        (adding, lambda e: to.live(e, "1.1r", key="0"), "began with 1"),
        (adding, lambda e: to.live(e, "1.1r", key="0", poked_s=0.3), ""),
        (adding, lambda e: to.live(e, "1.1r", key="0", poked_s=60.0), "began with 1"),
        (adding, lambda e: to.live(e, "1.2r", key="0", poked_s=0.3), "began with 2"),
        (adding, lambda e: to.live(e, "0.0l 1.1r", key="0"), "began with 1"),
        (adding, lambda e: to.live(e, "0.0l 1.1r", key="0", poked_s=0.3), ""),
        (adding, lambda e: to.live(e, "0.0l 1.1r", key="0", poked_s=60.0), "began with 1"),
        (adding, lambda e: to.live(e, "0.0l 1.2r", key="0", poked_s=0.3), "began with 2"),
    ],
    "S8 a retry gives all attempts": [
        (doomed, lambda e: to.live(e, "0.0f 1.7f 2.2f", retried="done"), "began with 7"),
        (doomed, lambda e: to.live(e, "0.0f 1.7f 2.2f", retried=""), "began with 7"),
        (doomed, lambda e: operations_of(e).append(retry(to.key_of(e, "cut"), 0, 1, "")), ""),
        (held, lambda e: operations_of(e)[0].facts.update(n=1), "and another claim followed"),
        (held, lambda e: operations_of(e)[0].facts.update(n=9), "0 attempts used up, not [3]"),
        (held, lambda e: operations_of(e).append(retry(often_failing(e)[0], 1, 3, "refused")), ""),
        # In a second life starts are noted: one loss uses up one attempt.
        (held, lambda e: to.live_twice(e, "3.0f 4.1f 9.0r"), AFTER_3),
        (held, lambda e: to.live_twice(e, "3.0f 4.1f 9.0r", hit=["author"]), AFTER_3),
        (held, lambda e: to.live_twice(e, "3.0f 4.1f 9.0r", hit=["author", NAME]), ""),
        (held, lambda e: to.live_twice(e, "3.0f 9.0r", hit=["author", NAME]), AFTER_3),
    ],
    "S8 a death is retried once": [
        (held, lambda e: to.retry_twice(e, answer_lost=False), "was retried 2 times"),
        (held, lambda e: to.retry_twice(e, answer_lost=True), ""),
    ],
    # ---- of plans that are done
    "S7 nothing is left": [
        (adding, lambda e: e.remains.plan.append("task-0000000007"), "task-0000000007 is left"),
        (adding, lambda e: e.remains.plan.append("lock-1"), "lock-1 is left"),
        (adding, lambda e: e.remains.plan.append("add-count"), "add-count is left"),
        (adding, lambda e: e.remains.plan.remove("done"), "`done` is missing"),
        (adding, lambda e: e.remains.plan.remove("results"), "`results` is missing"),
        (adding, lambda e: e.remains.runnable.append("x"), "runnable: x is left"),
        (adding, lambda e: e.remains.delayed.append("x"), "delayed: x is left"),
        (adding, lambda e: e.remains.claims.append("x"), "claims: x is left"),
        (adding, lambda e: e.remains.letters.update({"0": DeadLetter(0, 1)}), "must be finished"),
    ],
    "L2 tasks start soon": [
        (prompt, lambda e: put(max(e.everything, key=lambda x: x.began), began=NOW), "had ended")
    ],
    "S7 waiters hear the truth": [
        (adding, lambda e: to.hear(e, "done", at=1.0), "before the last commit"),
        (adding, lambda e: to.hear(e, "done", failed=True), "heard failed=True, dead letters: 0"),
        (doomed, lambda e: to.hear(e, "done", failed=False), "heard failed=False"),
        (adding, lambda e: to.hear(e, "cancelled"), "heard that it is cancelled"),
        (adding, lambda e: to.hear(e, "gone"), "heard that it is gone"),
    ],
    "S7 authors hear the truth": [
        (adding, lambda e: put(e.plan, cut_short="PlanCancelled('chaos')"), "PlanCancelled")
    ],
    "S4: chaos-": [
        (adding, lambda e: to.begin_late(e, "finished", n=-1), ""),
        (adding, lambda e: to.begin_late(e, "finished", n=0), "after attempt 0 was"),
        (doomed, lambda e: to.begin_late(e, "dead", n=2), ""),
        (doomed, lambda e: to.begin_late(e, "dead", n=3), "after the task was out of attempts"),
        (doomed, lambda e: to.begin_late(e, "cut", n=0), "after the task was out of attempts"),
    ],
    "S3: chaos-": [
        (adding, lambda e: to.begin_late(e, "finished", n=-1, digest="x"), "had other arguments"),
        (adding, lambda e: to.begin_late(e, "finished", n=-1, damaged=["x"]), "got damaged bytes"),
    ],
    # ---- of plans that operators touched
    "S9 nothing is claimed afterwards": [
        (cancelled, lambda e: to.begin_after_the_cancel(e, claimed=False), "after its plan was"),
        (cancelled, lambda e: to.begin_after_the_cancel(e, claimed=True), ""),
        (removed, to.begin_after_the_removal, "after its plan was removed, without a claim"),
        (removed, lambda e: to.begin_after_the_removal(e, claimed=True), ""),
        (removed, lambda e: to.begin_after_the_removal(e, hit=True), ""),
    ],
    "S4 nothing is committed afterwards": [
        (removed, lambda e: put(operations_of(e)[0], answered=1.0), "ended after the removal")
    ],
    "S9 it stays cancelled": [
        (cancelled, lambda e: e.remains.plan.append("done"), "`done` stands in a cancelled plan"),
        (
            cancelled,
            lambda e: e.remains.plan.append("add-count"),
            "`add-count` stands in a cancelled plan",
        ),
        (cancelled, lambda e: e.remains.plan.append("lock-1"), "lock-1 is left"),
        (cancelled, lambda e: e.remains.plan.append("task-0000000007"), ""),
        (cancelled, lambda e: e.remains.plan.remove("results"), "`results` is missing"),
        (cancelled, lambda e: operations_of(e)[0].seen.update(resumed=True), "plan was resumed"),
        (cancelled, lambda e: to.hear(e, "done"), "a waiter heard that it is done"),
    ],
    "S3 what waits has not run": [
        (cancelled, lambda e: e.unready.add(winner(e).key), "still waits for an edge")
    ],
    "S1 every task is in one place": [
        (cancelled, lambda e: e.snapshot.places.pop("1"), "is in no place"),
        (cancelled, lambda e: e.snapshot.places["1"].append("delayed"), "['runnable', 'delayed']"),
        (cancelled, lambda e: e.snapshot.places["4"].append("runnable"), "name task-4"),
    ],
    "S2 every edge has two ends": [
        (cancelled, lambda e: e.snapshot.provisions.pop(), "has no prov-"),
        (cancelled, lambda e: e.snapshot.provisions.append("task-2/dep-9"), "names task-2/dep-9"),
        (cancelled, lambda e: e.snapshot.provisions.append("task-3/dep-1"), "two prov- name"),
        (cancelled, lambda e: e.snapshot.children["3"].append("arg-1"), "both dep- and arg-"),
    ],
    "S9 waiters hear of it": [
        (cancelled, lambda e: put(operations_of(e)[0], heard="WaitTimeout"), "heard WaitTimeout"),
        (
            cancelled,
            lambda e: to.wait_without_a_server(e, NOW, NOW, Target(names=[NAME])),
            NO_ANSWER,
        ),
        (cancelled, lambda e: to.wait_without_a_server(e, NOW - 60.0, NOW - 50.0), NO_ANSWER),
        (cancelled, lambda e: to.wait_without_a_server(e, NOW + 6.0), NO_ANSWER),
        (cancelled, lambda e: to.wait_without_a_server(e, NOW + 4.0), ""),
    ],
    "S9 no claim is late": [
        (cancelled, lambda e: operations_of(e)[0].seen.update(late=["x"]), "made after the cancel"),
        (cancelled, lambda e: operations_of(e).append(LATE), "made before the resume"),
    ],
    "S9 nothing is claimed while paused": [
        (chain, lambda e: to.pause(e, 0.6, 0.7, resumed=1.9), ""),
        (chain, lambda e: to.pause(e, 1.3, 1.4, resumed=2.1), "began in a paused plan"),
        (chain, lambda e: to.pause(e, -0.4, 1.4, resumed=1.6), ""),
        (chain, lambda e: to.pause(e, -0.4, 1.4, resumed=-0.45), ""),
        (chain, lambda e: to.pause(e, -0.4, 1.4), "began in a paused plan"),
    ],
    # ---- of a whole run
    "- 0 attempt 0 (raises on worker, pid 2) raised what was not planned": [
        (adding, lambda e: to.fail_unplanned(e, "NameError('x')"), "NameError('x')"),
        (adding, lambda e: to.fail_unplanned(e, "PlannedFailure('T')", planned=True), ""),
        (adding, lambda e: to.fail_unplanned(e, "MemoryError()", "memory"), ""),
        (adding, lambda e: to.fail_unplanned(e, NO_MEMORY, "memory"), ""),
        (adding, lambda e: to.fail_unplanned(e, NO_THREAD, "memory"), ""),
        (adding, lambda e: to.fail_unplanned(e, "NameError('x')", "memory"), "NameError"),
        (adding, lambda e: to.fail_unplanned(e, "MemoryError()", "fork"), "MemoryError"),
        (adding, lambda e: to.fail_unplanned(e, "MemoryError()"), "MemoryError"),
        (adding, lambda e: to.fail_unplanned(e, "MemoryError()", "memory", later_s=60.0), "Memory"),
        (removed, lambda e: to.fail_unplanned(e, NO_FOLDER), ""),
        (cancelled, lambda e: to.fail_unplanned(e, NO_FOLDER), "its folder plan-1 was deleted"),
        (removed, lambda e: to.fail_unplanned(e, GONE), ""),
        (cancelled, lambda e: to.fail_unplanned(e, GONE), "PlanNotFound"),
        (checked, lambda e: to.fail_unplanned(e, GONE.replace("1", "2")), ""),
        (checked, lambda e: to.fail_unplanned(e, GONE.replace("1", "3")), "PlanNotFound"),
    ],
    "- a wait for chaos-11 broke": [
        (adding, lambda e: to.break_a_wait(e, HALF), "PlanStuck: /z/plan-1 can never drain"),
        (adding, lambda e: to.break_a_wait(e, HALF, killed=AUTHOR, at=0.2), "PlanStuck"),
        (adding, lambda e: to.break_a_wait(e, HALF, killed=OTHER), "PlanStuck"),
        (adding, lambda e: to.break_a_wait(e, HALF, killed=AUTHOR), ""),
        (adding, lambda e: to.break_a_wait(e, STUCK + NOWHERE, killed=AUTHOR), "PlanStuck"),
        (adding, lambda e: to.break_a_wait(e, f"{HALF}; task-2: {NOWHERE}", AUTHOR), "PlanStuck"),
        (adding, lambda e: to.break_a_wait(e, "PlanStuck: ", killed=AUTHOR), "PlanStuck"),
        (adding, lambda e: to.break_a_wait(e, "PlanError" + HALF[9:], AUTHOR), "PlanError"),
        (adding, lambda e: to.break_a_wait(e, HALF, paused="another"), "PlanStuck"),
        (adding, lambda e: to.break_a_wait(e, HALF, paused="author"), ""),
    ],
    "- worker0 (pid 77) ended by itself, with 1": [
        (adding, lambda e: to.die_by_itself(e), "tail"),
        (adding, lambda e: to.die_by_itself(e, 7), "tail"),
        (adding, lambda e: to.die_by_itself(e, 1), ""),
        (adding, lambda e: to.die_by_itself(e, 1, pid=OTHER + 1), "tail"),
        (adding, lambda e: to.die_by_itself(e, 1, healed_s=0.1), "tail"),
        (adding, lambda e: to.die_of_a_poke(e, 7, 1), ""),
        (adding, lambda e: to.die_of_a_poke(e, 7), "tail"),
        (adding, lambda e: to.die_of_a_poke(e, 1, pid=OTHER + 1), "tail"),
        # It may be found dead late, while the run waits for servers; but not if it went on.
        (adding, lambda e: to.die_of_a_poke(e, 1, poked_s=60.0), ""),
        (adding, lambda e: to.die_of_a_poke(e, 1, poked_s=3600.0), "tail"),
        (adding, lambda e: to.die_of_a_poke(e, 1, poked_s=60.0, alive_s=30.0), "tail"),
        (adding, lambda e: to.die_of_a_poke(e, 1, poked_s=9.0, alive_s=8.5), ""),
    ],
    "worker0 (77) stands still": [
        (adding, lambda e: to.stand_still(e, 2100, 150.0), "2100 tasks began since"),
        (adding, lambda e: to.stand_still(e, 1900, 150.0), ""),
        # One that died is not found dead while the cluster mends servers.
        (adding, lambda e: to.stand_still(e, 2100, 90.0), ""),
        (adding, lambda e: to.stand_still(e, 2100, 150.0, ended=True), ""),
    ],
}
