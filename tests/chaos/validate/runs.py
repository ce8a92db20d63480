"""What ran ahead of its claim: what nobody has accepted counts as never run. Pure.

An execution of a pure task that was run ahead is committed with those before it, or dropped. One
that was committed has to stand every check as if it were that of the only claim of its task.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from .plans import Execution


def without_dropped(
    executions: Mapping[str, list[Execution]], kept: Set[str], standing: Set[str]
) -> dict[str, list[Execution]]:
    """The executions without those that were run ahead and dropped.

    `kept` are those whose results are kept. Of a task that does not stand any more the last one
    that returned was committed, if none had a claim: nobody has to have got its result.
    """
    by_uid = {each.uid: each for runs in executions.values() for each in runs}
    waiting = list(kept)
    for key, runs in executions.items():
        claimed = [each for each in runs if not each.ahead]
        waiting += [uid for each in claimed for uid in each.got]
        returned = [each for each in runs if each.returned]
        if key not in standing and not claimed and returned:
            waiting.append(max(returned, key=lambda each: each.began).uid)
    accepted = set[str]()
    while waiting:
        uid = waiting.pop()
        if uid in by_uid and uid not in accepted:
            accepted.add(uid)
            waiting += by_uid[uid].got if by_uid[uid].ahead else ()
    found = {
        key: [each for each in runs if not each.ahead or each.uid in accepted]
        for key, runs in executions.items()
    }
    return {key: runs for key, runs in found.items() if runs}
