"""Which checks a plan of a chaos run has to pass, by what became of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from zkplan.testing.stress_promises import (
    arguments_are_exact,
    attempts_are_unique,
    nothing_acknowledged_is_lost,
    nothing_is_left,
    only_losses_and_failures_repeat,
    results_are_fixed_once,
    results_are_the_oracles,
    the_history_agrees,
    the_last_claim_commits,
    values_come_from_executions,
)

from . import operator_checks as of_operators
from . import plan_checks as of_plans
from .attempts import attempts_are_counted_right
from .evidence import PlanEvidence

Checks = tuple[tuple[str, Callable[[PlanEvidence], Iterator[str]]], ...]
EVERY: Checks = (
    ("S4", results_are_fixed_once),
    ("S4", values_come_from_executions),
    ("S5", the_last_claim_commits),
    ("S8", attempts_are_unique),
    ("S8", only_losses_and_failures_repeat),
    ("S8", attempts_are_counted_right),
    ("S3", arguments_are_exact),
    ("S3", of_plans.arguments_are_undamaged),
    ("S4", of_plans.all_is_under_its_own_number),
    ("S15", of_plans.each_runs_where_its_queue_is_served),
    ("S4", results_are_the_oracles),
    ("L3", nothing_acknowledged_is_lost),
    ("S4", of_plans.adds_are_whole),
    ("S4", of_plans.an_attempt_adds_with_its_commit),
    ("S4", of_plans.kept_is_what_is_to_be_kept),
    ("S7", of_plans.counts_agree),
    ("S9", of_plans.nothing_runs_before_it_is_ready),
    ("S9", of_operators.no_claim_is_late),
    ("S9", of_operators.nothing_is_claimed_while_paused),
    ("S9", of_operators.waiters_hear_of_it),
    ("S18", of_operators.a_decision_is_the_outcome),
    ("S8", of_operators.a_death_is_retried_once),
    ("S8", of_operators.a_retry_gives_all_attempts),
)
DONE: Checks = (
    ("S7", nothing_is_left),
    ("S13", the_history_agrees),
    ("L2", of_plans.tasks_start_soon),
    ("S7", of_plans.waiters_hear_the_truth),
    ("S7", of_plans.authors_hear_the_truth),
)
#: Cancelled or removed.
STOPPED: Checks = (
    ("S9", of_operators.nothing_is_claimed_afterwards),
    ("S4", of_operators.nothing_is_committed_afterwards),
    ("S9", of_operators.it_stays_cancelled),
    ("S3", of_operators.what_waits_has_not_run),
    ("S1", of_operators.every_task_is_in_one_place),
    ("S13", the_history_agrees),
    ("S2", of_operators.every_edge_has_two_ends),
)


def violations(evidence: PlanEvidence, without: Collection[str] = ()) -> list[str]:
    """Every broken promise of that plan, with the number of the invariant.

    The checks of the names in `without` are left out.
    """
    return [
        f"{number} {check.__name__.replace('_', ' ')}: {evidence.name}: {found}"
        for number, check in (*EVERY, *(DONE if evidence.ending == "done" else STOPPED))
        if check.__name__ not in without
        for found in check(evidence)
    ]


def committed_numbers(evidence: PlanEvidence) -> dict[str, int]:
    """The attempt number under which each task was committed, as far as anybody saw it."""
    by_uid = evidence.by_uid
    known = {key: uids & by_uid.keys() for key, uids in evidence.committed.items()}
    return {key: max(by_uid[uid].n for uid in uids) for key, uids in known.items() if uids}
