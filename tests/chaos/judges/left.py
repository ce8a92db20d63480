"""What has to stand of a plan, and nothing else: its fixed children and its outcomes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from zkplan.protocol.layout import PLAN_FIXED

from .case import Case


def kept_is_what_is_to_be_kept(case: Case) -> Iterator[str]:
    """S4: the results that went to nobody stand; all do where the plan keeps them."""
    yield from wrongly_kept(case, case.acknowledged, set())


def wrongly_kept(case: Case, certain: set[str], standing: set[str]) -> Iterator[str]:
    """What is kept and must not be, and the other way round.

    `certain` tasks were added, whatever became of open adds; those that are `standing` have not
    finished. What was added after a task had ended does not make it a dependency of anything.
    """
    workload, batches = case.plan.workload, case.plan.batches.values()
    possible = {key for batch in batches for key in batch.possible}
    answered = {key: batch.answered for batch in batches for key in batch.certain}
    ended = {each.key: each.ended or 0.0 for each in case.everything if each.returned}
    needed, maybe = set[str](), set[str]()
    for item in workload.items.values():
        if item.key in certain:
            at = answered.get(item.key, 0.0)  # what a task adds is added at once, with its edges
            needed |= {key for key in item.needs if ended.get(key, 0.0) >= at}
        if item.key.partition("/")[0] in possible:
            maybe.update(item.needs)
    counts = Counter(each.key for each in case.left.kept)
    for key in certain - standing:
        is_sink = key not in maybe
        if case.fate(key) == "finished" and (is_sink or workload.growing) and key not in counts:
            yield f"the result of {key} is not kept"
    for key, count in counts.items():
        if key in standing or case.fate(key) != "finished":
            yield f"the result of {key} is kept, which has not finished"
        elif key in needed and not workload.growing:
            yield f"the result of {key} is kept, though it has dependents"
        if count > 1:
            yield f"the result of {key} is kept {count} times"
    failed = Counter(case.left.failed)
    for key in sorted(failed.keys() ^ case.left.dead.keys()):
        dead = "a" if key in case.left.dead else "no"
        yield f"task {key} has {failed[key] or 'no'} failure kept, and {dead} dead letter"
    yield from (f"the failure of {key} is kept {n} times" for key, n in failed.items() if n > 1)


def wrongly_counted(case: Case, certain: set[str]) -> Iterator[str]:
    """Whether as many tasks were ever added as were `certain` to be; an open add may count too."""
    is_open = any(batch.state == "begun" for batch in case.plan.batches.values())
    most = len(case.plan.workload.items) if is_open else len(certain)
    added = case.left.added
    if not len(certain) <= added <= most:
        yield f"{added} tasks were added, {len(certain)} were acknowledged, {most} at most"


def strangers(names: list[str], besides: str) -> Iterator[str]:
    """The children of a plan that zkplan has not made, or has not removed."""
    expected = {*PLAN_FIXED, "ready"} - {"add-count"}
    yield from (f"{name} is left" for name in names if name not in expected | {besides})
    yield from (f"`{name}` is missing" for name in sorted(expected - set(names)))


def nothing_is_left(case: Case) -> Iterator[str]:
    """S6, S7: of a done plan nothing is left but its fixed children, outcomes and dead letters."""
    left = case.left.remains
    yield from strangers(left.plan, "done")
    if "done" not in left.plan:
        yield "`done` is missing"
    for kind in ("runnable", "delayed", "claims"):
        yield from (f"{kind}: {name} is left" for name in getattr(left, kind))
    for key in case.left.dead:
        if case.fate(key) not in ("dead", "cut"):
            yield f"task {key} has a dead letter, the oracle says: {case.fate(key)}"
