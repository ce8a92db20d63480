"""S1 and S3: the place of a task fits the version of its `ready`, its edges and its arguments."""

from __future__ import annotations

from .story import Meant, Violation


def judge_standing(
    task: Meant, version: int, k: int, deps: int, arguments: int, incomplete: bool
) -> None:
    """`deps` and `arguments` are how many of each stand below the task."""
    where = f"{task.name} at version {version} of K={k}, {task.places}"
    if version <= k:
        if task.places:
            raise Violation(f"S1 {where}: waiting and somewhere else")
        if version < k and not incomplete and deps != k - version:
            raise Violation(f"S1 {where}: {deps} edges are open")
        if version == k:
            if deps or incomplete:
                raise Violation(f"S1 {where}: complete, with {deps} edges open")
            if not task.pending_records:
                raise Violation(f"S1 {where}: complete, and no pending record names it")
        return
    if version > k + 1:
        raise Violation(f"S1 {where}: published twice")
    if task.is_lost and not task.places:
        return
    if len(task.places) != 1:
        raise Violation(f"S1 {where}: not in exactly one place")
    if deps or (arguments != len(task.deps) and not task.cut):
        raise Violation(f"S3 {where}: {arguments} of {len(task.deps)} arguments")
