"""Which results and failures are kept of a plan, and how many tasks it had. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from .evidence import PlanEvidence


def kept_is_what_is_to_be_kept(evidence: PlanEvidence) -> Iterator[str]:
    """S4: the results that went to nobody stand; all do where the plan keeps them."""
    yield from wrongly_kept(evidence, evidence.acknowledged, frozenset())


def wrongly_kept(evidence: PlanEvidence, certain: Set[str], standing: Set[str]) -> Iterator[str]:
    """What is kept and must not be, and the other way round.

    `certain` tasks were added, whatever became of open adds; those that are `standing` have not
    finished. What was added after a task had ended does not make it a dependency of anything.
    """
    workload, batches = evidence.plan.workload, evidence.plan.batches.values()
    possible = {key for batch in batches for key in batch.possible}
    answered = {key: batch.answered for batch in batches for key in batch.certain}
    ended = {each.key: each.ended or 0.0 for each in evidence.everything if each.returned}
    needed, maybe = set[str](), set[str]()
    for item in workload.items.values():
        if item.key in certain:
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
        elif key in needed and not workload.growing:
            yield f"the result of {key} is kept, though it has dependents"
        if count > 1:
            yield f"the result of {key} is kept {count} times"
    failed = Counter(evidence.remains.failed)
    for key in sorted(failed.keys() ^ evidence.dead):
        dead = "a" if key in evidence.dead else "no"
        yield f"task {key} has {failed[key] or 'no'} failure kept, and {dead} dead letter"
    yield from (f"the failure of {key} is kept {n} times" for key, n in failed.items() if n > 1)


def wrongly_counted(evidence: PlanEvidence, certain: Set[str]) -> Iterator[str]:
    """Whether as many tasks were ever added as were `certain` to be; an open add may count too."""
    most = len(evidence.plan.workload.items) if evidence.plan.has_open_add else len(certain)
    added = evidence.remains.added
    if not len(certain) <= added <= most:
        yield f"{added} tasks were added, {len(certain)} were acknowledged, {most} at most"
