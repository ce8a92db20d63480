"""What may differ between two servers, taken out of answers and put into requests.

The program's root node, zxids from its beginning on, sessions by their first appearance, wall-clock
times by whether they are of now, and lists whose order no server promises.
"""

from __future__ import annotations

import time
from typing import Any

from tests.tools.packing import RESULTS, Ask, Stat
from tests.tools.rawclient import Answer, Event

_NOW_S = 300.0


class Translation:
    """Between the values of a program and those of one server."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.zxid = 0
        self.top = (0, 0)
        self.sessions: dict[int, str] = {0: "none"}

    def begin(self, answers: list[Answer]) -> None:
        """Take the answers to a ping and to exists("/") as the point where all begins."""
        ping, exists = answers
        self.zxid = ping.zxid
        stat: Stat = exists.fields["stat"]
        self.top = (stat.cversion, stat.num_children)

    # -- into requests

    def outward(self, ask: Ask) -> Ask:
        """The request with the root node's real path and the server's own zxids."""
        values = list(ask.values)
        if ask.op in ("set_watches", "set_watches2"):
            values[0] = self.zxid_outward(values[0])
        if ask.op != "auth":
            values = [self.value_outward(value) for value in values]
        return ask._replace(values=tuple(values))

    def value_outward(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.outward_path(value)
        if isinstance(value, bytes) and value.startswith(b"~"):
            return self.root.encode() + value[1:]
        if isinstance(value, Ask):
            return self.outward(value)
        if isinstance(value, tuple) and value and isinstance(value[0], str | Ask):
            return tuple(map(self.value_outward, value))
        return value

    def outward_path(self, path: str) -> str:
        return self.root + path[1:] if path.startswith("~") else path

    def zxid_outward(self, zxid: int) -> int:
        return self.zxid + zxid

    # -- out of answers

    def session_name(self, session: int) -> str:
        return self.sessions.setdefault(session, f"session {len(self.sessions)}")

    def event(self, event: Event) -> tuple[Any, ...]:
        path = self.path(event.path)
        return (event.xid, event.zxid, event.error, event.kind, event.state, path, event.rest)

    def answer(self, ask: Ask, answer: Answer) -> tuple[Any, ...]:
        """The answer's header and fields, and the size of its frame."""
        fields = [self.field(kind, value) for kind, value in answer.fields.items()]
        size: int | None = len(answer.body)
        if ask.op in ("children", "children2") and ask.values[0] == "/" and fields:
            # The root node holds what other programs left there.
            fields[0] = [name for name in fields[0] if name in ("zookeeper", "~")]
            size = None
        if ask.op in ("exists", "get", "get_acl", "children2") and ask.values[0] == "/" and fields:
            fields[-1] = self.without_history(fields[-1])
        if ask.op == "count" and ask.values[0] == "/" and fields:
            fields = ["all nodes"]
        if ask.op in ("multi", "multi_read") and fields:
            fields = [self.top_results(ask, fields[0])]
            size = None if any(part.values[:1] == ("/",) for part in ask.values[0]) else size
        rest = answer.rest
        if ask.op in ("multi", "multi_read") and answer.error:
            # Permitted difference: what an error of the whole request carries besides.
            size, rest = None, b""
        zxid = self.zxid_inward(answer.zxid)
        return (answer.xid, zxid, answer.error, fields, size, rest)

    def top_results(self, ask: Ask, results: list[Any]) -> list[Any]:
        """The results of a multi, with those about the root node's shared state taken out."""
        parts = [*ask.values[0], None]
        return [
            (result[0], "about the root node")
            if part is not None and part.values[:1] == ("/",) and result[0] in (4, 8)
            else result
            for part, result in zip(parts, results, strict=False)
        ]

    def without_history(self, stat: tuple[Any, ...]) -> tuple[Any, ...]:
        named = Stat(*stat)
        cversion, children = named.cversion - self.top[0], named.num_children - self.top[1]
        return tuple(named._replace(cversion=cversion, num_children=children))

    def field(self, kind: str, value: Any) -> Any:
        if value is None:
            return None
        match kind:
            case "path":
                return self.path(value)
            case "stat":
                return self.stat(value)
            case "names":
                return sorted(map(self.name, value))
            case "acls" | "identities":
                return sorted(value, key=repr)
            case "results":
                return [self.result(result) for result in value]
            case _:
                return value

    def result(self, result: tuple[Any, ...]) -> tuple[Any, ...]:
        code, error, *values = result
        kinds = RESULTS.get(code, "int").split()
        return (code, error, *map(self.field, kinds, values))

    def path(self, path: str | None) -> str | None:
        if path is not None and (path == self.root or path.startswith(self.root + "/")):
            return "~" + path[len(self.root) :]
        return path

    def name(self, name: str) -> str:
        return (
            str(self.path(name)) if name.startswith("/") else name if name != self.root[1:] else "~"
        )

    def stat(self, stat: Stat) -> tuple[Any, ...]:
        owner = stat.ephemeral_owner
        return tuple(
            stat._replace(
                czxid=self.zxid_inward(stat.czxid),
                mzxid=self.zxid_inward(stat.mzxid),
                pzxid=self.zxid_inward(stat.pzxid),
                ctime=of_now(stat.ctime),
                mtime=of_now(stat.mtime),
                ephemeral_owner=self.sessions.get(owner, owner),  # type: ignore[arg-type]
            )
        )

    def zxid_inward(self, zxid: int) -> Any:
        """Counted from the program's beginning; what was before is 'earlier', but 0 and -1 stay."""
        if zxid in (0, -1):
            return ("exactly", zxid)
        return zxid - self.zxid if zxid > self.zxid else "earlier" if zxid < self.zxid else 0


def of_now(time_ms: int) -> Any:
    """Whether a wall-clock time is of this test; 0 and negative ones stay."""
    if time_ms <= 0:
        return time_ms
    return "now" if abs(time.time() - time_ms / 1000) < _NOW_S else "earlier"
