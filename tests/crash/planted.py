"""The server with a defect on purpose: python -m tests.crash.planted DEFECT server ...

So that the checks of this folder are known to find what they are for.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.embedded import planted_bugs  # noqa: F401  # two of the defects are among them
from tests.embedded.planting import around, planted
from zkplan.cli import main
from zkplan.embedded.server import Server
from zkplan.embedded.storage import Storage


@around(Server, "_flush")
def watchers_are_told_before_the_commit(flush: Any, self: Any) -> None:
    early: list[tuple[Any, bytes | None]] = []
    late: list[tuple[Any, bytes | None]] = []
    for peer, frame in self.service.out:
        # Behind an answer it stays there: the order alone would give it away.
        is_behind = any(peer is other for other, _ in late)
        is_event = frame is not None and frame[4:8] == b"\xff\xff\xff\xff"
        (early if is_event and not is_behind else late).append((peer, frame))
    self.service.out = early
    self._send()
    self.service.out = late
    flush(self)


@around(Storage, "commit")
def half_a_group_is_committed(
    commit: Any, self: Any, *, zxid: int, last_session: int, nodes: Any, sessions: Any
) -> None:
    changes = self._changes(nodes)
    half, self._changes = len(nodes) // 2, lambda given: given
    commit(self, zxid=zxid, last_session=last_session, nodes=changes[:half])
    commit(self, zxid=zxid, last_session=last_session, nodes=changes[half:], sessions=sessions)
    del self._changes


#: And what the check says of a server with it. Which half of a group is missing decides who notices
#: it: the nodes, or the counts of their parents. A request whose effect a watch told of counts as
#: applied: where that one is lost, no number of requests leads to what is there.
DEFECTS = {
    "answers leave before the commit": "no number of them leads to what is there",
    "watchers are told before the commit": "a watch told|no number of them leads to what is there",
    "half a group is committed": "no number of them leads to what is there|changes of children",
    "sessions are forgotten at a restart": "became",
}

if __name__ == "__main__":
    with planted(sys.argv.pop(1)):
        main()
