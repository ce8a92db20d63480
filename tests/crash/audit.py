"""Judges a tree found after a crash by all that was sent, answered and seen before it. Pure.

Requests of one session are applied in their order, so what a crash leaves of a writer's nodes is
what they were after some number of its requests, counted from the first: no fewer than were
answered, or than somebody had seen the effects of, and no more than were sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.tools.packing import Stat

from .writes import FOLDERS, REGISTER, ROOT, Own, Owned, Write, apply, origin_of

_SHOWN = 6


class Answer(NamedTuple):
    """How a request was answered."""

    error: int
    zxid: int
    path: str | None = None
    version: int | None = None


class Sent(NamedTuple):
    """A request and its answer; None: the connection was lost first."""

    write: Write
    answer: Answer | None


class Found(NamedTuple):
    """One node as it was read."""

    data: bytes
    stat: Stat


class Snapshot(NamedTuple):
    """The tree while nobody wrote: nodes by path, and the highest zxid in the answers."""

    zxid: int
    nodes: Mapping[str, Found]


class Settled(NamedTuple):
    """What of a writer's requests was applied: `applied` of them lead to what was found."""

    applied: int
    owned: Owned
    sequential: dict[str, str]
    #: Creates and deletes in each folder, at least and at most.
    changes: dict[str, tuple[int, int]]
    faults: list[str]


def settle(
    writer: str, before: Owned, sent: list[Sent], snapshot: Snapshot, at_least: int
) -> Settled:
    """Find how many of `sent` were applied; `before` is what the writer had when it began.

    `at_least` is the index of the last request that somebody saw the effect of, or -1.
    """
    found, sequential = _nodes_of(writer, snapshot)
    least = _count_known(sent, at_least)
    owned = dict(before)
    differing = {key for key in owned.keys() | found if _differs(owned.get(key), found.get(key))}
    changes = dict.fromkeys(FOLDERS, 0)
    matches: list[tuple[int, dict[str, int]]] = []
    at_the_least: list[str] = []
    for count in range(len(sent) + 1):
        if count:
            write, answer = sent[count - 1]
            if answer is None or answer.error == 0:
                apply(write.effects, owned, None if answer is None else answer.zxid)
                for effect in write.effects:
                    changes[_folder(effect.key)] += effect.changed is None
                    differs = _differs(owned.get(effect.key), found.get(effect.key))
                    (differing.add if differs else differing.discard)(effect.key)
        if count == least:
            at_the_least = sorted(differing)
            owned_at_the_least = dict(owned)
        if count >= least and not differing:
            matches.append((count, dict(changes)))
    after = {key: _own(node) for key, node in found.items()}
    if matches:
        totals = [total for _, total in matches]
        spans = {folder: _span(total[folder] for total in totals) for folder in FOLDERS}
        return Settled(matches[-1][0], after, sequential, spans, [])
    lines = [
        f"{key}: it had {owned_at_the_least.get(key)}, found {_shown(found.get(key))}"
        for key in at_the_least[:_SHOWN]
    ]
    fault = (
        f"{writer}: {len(sent)} requests since the last crash, the first {least} certainly "
        f"applied, but no number of them leads to what is there. After {least}: {lines}"
    )
    spans = dict.fromkeys(FOLDERS, (0, 1 << 60))
    return Settled(least, after, sequential, spans, [fault])


def wrong_answers(writer: str, sent: Iterable[Sent]) -> list[str]:
    """Requests that were answered as only a server can that forgot, or half did, an earlier one."""
    return [
        f"{writer}: {write} was answered with {answer.error}"
        for write, answer in sent
        if answer is not None and answer.error not in write.expected
    ]


class Memory:
    """What holds for the whole run, through all crashes."""

    def __init__(self) -> None:
        self._zxid = 0
        self._folders: dict[str, Stat] = {}
        self._made: dict[str, bytes] = {}
        self._sequence_floor = -1
        self._zxids: dict[int, str] = {}
        self._register: dict[int, bytes] = {}
        self._nodes: Mapping[str, Found] = {}

    def note_answers(self, writer: str, sent: Iterable[Sent]) -> list[str]:
        """Take in answers given since the last snapshot."""
        faults = []
        for write, answer in sent:
            if answer is None:
                continue
            who = f"{writer}-{write.number}"
            if self._zxids.setdefault(answer.zxid, who) != who:
                faults.append(f"zxid {answer.zxid} for {who} and {self._zxids[answer.zxid]}")
            if answer.zxid <= self._zxid:
                faults.append(f"{who}: zxid {answer.zxid} after {self._zxid} had been given")
            if answer.path is not None and answer.path.startswith(f"{ROOT}/seq/"):
                faults += self._note_sequential(answer.path, write.steps[0].values[1])
                if int(answer.path[-10:]) <= self._sequence_floor:
                    faults.append(f"{answer.path}: that number was given before the last crash")
            if answer.error == 0 and answer.version is not None:
                data = write.steps[0].values[1]
                if self._register.setdefault(answer.version, data) != data:
                    faults.append(f"{who}: version {answer.version} of the register twice")
        return faults

    def _note_sequential(self, path: str, data: bytes) -> list[str]:
        if self._made.setdefault(path, data) == data:
            return []
        return [f"{path} was given to {self._made[path]!r} and to {data!r}"]

    def note_snapshot(
        self, snapshot: Snapshot, seen_zxid: int, changes: Iterable[Mapping[str, tuple[int, int]]]
    ) -> list[str]:
        """Compare with all earlier snapshots and answers; `changes` is what each writer did."""
        faults = []
        if snapshot.zxid < max(seen_zxid, self._zxid):
            faults.append(f"zxid {snapshot.zxid} after {max(seen_zxid, self._zxid)} was seen")
        self._zxid = max(snapshot.zxid, seen_zxid, self._zxid)
        for path, node in snapshot.nodes.items():
            if "/seq/" in path:
                faults += self._note_sequential(path, node.data)
            if max(node.stat.czxid, node.stat.mzxid, node.stat.pzxid) > snapshot.zxid:
                faults.append(f"{path} is of the future: {node.stat} at zxid {snapshot.zxid}")
            before = self._nodes.get(path)
            is_same = before is not None and before.stat.mzxid == node.stat.mzxid
            if is_same and path.count("/") == 3 and before != node:
                faults.append(f"{path} was not written, yet went from {before} to {node}")
        self._nodes = snapshot.nodes
        numbers = [int(path[-10:]) for path in self._made]
        self._sequence_floor = max(numbers, default=-1)
        per_writer = list(changes)
        for folder in FOLDERS:
            if folder != "short":
                span = _sum(each[folder] for each in per_writer)
                faults += self._note_folder(snapshot, f"{ROOT}/{folder}", span)
        return faults + self._note_register(snapshot.nodes[REGISTER])

    def _note_folder(self, snapshot: Snapshot, path: str, span: tuple[int, int]) -> list[str]:
        stat = snapshot.nodes[path].stat
        before, self._folders[path] = self._folders.get(path), stat
        if before is None:
            return []
        faults = []
        # Each create and each delete of a child adds one.
        counted = stat.cversion - before.cversion
        if not span[0] <= counted <= span[1]:
            faults.append(f"{path} counts {counted} changes of children, {span} were made")
        children = sum(1 for other in snapshot.nodes if other.rpartition("/")[0] == path)
        if stat.num_children != children:
            faults.append(f"{path} says {stat.num_children} children and lists {children}")
        if stat.pzxid < before.pzxid or stat[:5] != before[:5]:
            faults.append(f"{path} went from {before} to {stat}")
        return faults

    def _note_register(self, node: Found) -> list[str]:
        version = node.stat.version
        highest = max(self._register, default=0)
        data = self._register.setdefault(version, node.data)
        if version < highest:
            return [f"the register is at version {version}, {highest} was acknowledged"]
        if data != node.data:
            return [f"version {version} of the register is {node.data!r}, it had been {data!r}"]
        return []


def strangers(snapshot: Snapshot, writers: Iterable[str]) -> list[str]:
    """Nodes that no writer has sent."""
    known = set(writers)
    return [
        f"nobody made {path}"
        for path in snapshot.nodes
        if path.count("/") == 3
        and "/short/" not in path
        and path.rpartition("/")[2].partition("-")[0] not in known
    ]


def _count_known(sent: list[Sent], at_least: int) -> int:
    known = 0
    for count, (write, answer) in enumerate(sent, 1):
        if answer is not None or write.number <= at_least:
            known = count
    return known


def _nodes_of(writer: str, snapshot: Snapshot) -> tuple[dict[str, Found], dict[str, str]]:
    found, sequential = {}, {}
    for path, node in snapshot.nodes.items():
        folder, _, name = path.rpartition("/")
        if folder == ROOT or name.partition("-")[0] != writer:
            continue
        if folder == f"{ROOT}/seq":
            origin, index = origin_of(node.data.decode())
            key = f"seq#{origin}-{index:07d}"
            # Twice the same request: the second gets a key that nobody expects.
            key = f"{key}#{name}" if key in found else key
            sequential[key] = path
        else:
            key = path
        found[key] = node
    return found, sequential


def _differs(own: Own | None, node: Found | None) -> bool:
    if own is None or node is None:
        return own is not None or node is not None
    stat = node.stat
    return (
        own.data != node.data
        or own.version != stat.version
        or own.is_ephemeral != bool(stat.ephemeral_owner)
        or own.czxid not in (None, stat.czxid)
        or own.mzxid not in (None, stat.mzxid)
    )


def _own(node: Found) -> Own:
    stat = node.stat
    return Own(node.data, stat.version, bool(stat.ephemeral_owner), stat.czxid, stat.mzxid)


def _shown(node: Found | None) -> str:
    return "nothing" if node is None else str(_own(node)._replace(data=node.data[:40]))


def _folder(key: str) -> str:
    return "seq" if key.startswith("seq#") else key.split("/")[2]


def _span(numbers: Iterable[int]) -> tuple[int, int]:
    known = list(numbers)
    return min(known), max(known)


def _sum(spans: Iterable[tuple[int, int]]) -> tuple[int, int]:
    known = list(spans)
    return sum(low for low, _ in known), sum(high for _, high in known)
