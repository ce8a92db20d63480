"""The server with a defect on purpose: python -m tests.crash.planted DEFECT server ...

So that the checks of this folder are known to find what they are for.
"""

from __future__ import annotations

import sys
from typing import Any

from zkplan.cli import main
from zkplan.embedded.server import Server
from zkplan.embedded.sessions import Sessions
from zkplan.embedded.storage import Storage


def answers_before_it_commits() -> None:
    def flush(self: Any) -> None:
        self._flush_is_due = False
        self._send()
        self._commit()

    _replace(Server, "_flush", flush)


def tells_watchers_before_it_commits() -> None:
    flush = Server._flush

    def leak(self: Any) -> None:
        early: list[tuple[Any, bytes | None]] = []
        late: list[tuple[Any, bytes | None]] = []
        for peer, frame in self.service.out:
            # Behind an answer it stays there: the order alone would give it away.
            is_behind = any(peer is other for other, _ in late)
            (early if _is_event(frame) and not is_behind else late).append((peer, frame))
        self.service.out = early
        self._send()
        self.service.out = late
        flush(self)

    _replace(Server, "_flush", leak)


def _is_event(frame: bytes | None) -> bool:
    return frame is not None and frame[4:8] == b"\xff\xff\xff\xff"


def commits_half_a_group() -> None:
    commit = Storage.commit

    def in_halves(self: Any, *, zxid: int, last_session: int, nodes: Any, sessions: Any) -> None:
        half, before = len(nodes) // 2, self._zxid
        commit(self, zxid=zxid, last_session=last_session, nodes=nodes[:half])
        self._zxid = before
        commit(self, zxid=zxid, last_session=last_session, nodes=nodes[half:], sessions=sessions)

    _replace(Storage, "commit", in_halves)


def forgets_sessions() -> None:
    restore = Sessions.restore

    def forget(self: Any, last_id: int, saved: Any, now_ms: int) -> None:
        restore(self, last_id, [], now_ms)

    _replace(Sessions, "restore", forget)


def _replace(owner: type, name: str, value: Any) -> None:
    assert hasattr(owner, name), f"{owner.__name__} has no {name} any more"
    setattr(owner, name, value)


DEFECTS = {
    defect.__name__: defect
    for defect in (
        answers_before_it_commits,
        tells_watchers_before_it_commits,
        commits_half_a_group,
        forgets_sessions,
    )
}

if __name__ == "__main__":
    DEFECTS[sys.argv.pop(1)]()
    main()
