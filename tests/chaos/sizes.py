"""Plans of great size: tasks that record one short line each, and the checks of those lines."""

from __future__ import annotations

import functools
import hashlib
import os
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import zkplan

#: What a task returns: its key, the execution that made it, a digest of all that led to it.
Made = tuple[int, str, str]


class Sized(NamedTuple):
    """A plan to be: for each task, whose key is its place, the tasks that it needs."""

    needs: list[Sequence[int]]

    @property
    def digests(self) -> list[str]:
        found: list[str] = []
        for key, needed in enumerate(self.needs):
            found.append(digest_of(key, [found[other] for other in needed]))
        return found


def digest_of(key: int, digests: Sequence[str]) -> str:
    text = f"{key} {' '.join(digests)}"
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def groups(leaves: int, group: int) -> Sized:
    """Leaves, a join for each group of them, and one join of all joins."""
    needs: list[Sequence[int]] = [() for _ in range(leaves)]
    joins = [range(start, min(start + group, leaves)) for start in range(0, leaves, group)]
    return Sized([*needs, *joins, range(leaves, leaves + len(joins))])


def fan(width: int) -> Sized:
    """One task feeds so many, and all of those meet in one."""
    return Sized([(), *((0,) for _ in range(width)), range(1, width + 1)])


def diamond() -> Sized:
    """A small plan: one, two, one."""
    return Sized([(), (0,), (0,), (1, 2)])


def run(key: int, values: Sequence[Made], folder: str, plan: int = 0) -> Made:
    """Record who ran and whose values came, one line when it begins and one when it ends."""
    uid = uuid.uuid4().hex[:12]
    attempt = zkplan.current().attempt
    got = " ".join(f"{value[0]}:{value[1]}" for value in values)
    digest = digest_of(key, [value[2] for value in values])
    file = _file(folder, os.getpid())
    os.write(file, f"b {plan} {key} {attempt} {uid} {digest} {got}\n".encode())
    os.write(file, f"e {uid}\n".encode())
    return key, uid, digest


@functools.cache
def _file(folder: str, pid: int) -> int:
    # Nothing is buffered: what was written survives a SIGKILL.
    return os.open(f"{folder}/{pid}.runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def specs(sized: Sized, folder: Path, plan: int = 0) -> list[zkplan.TaskSpec]:
    made: list[zkplan.TaskSpec] = []
    for key, needed in enumerate(sized.needs):
        values = [made[other] for other in needed]
        made.append(zkplan.TaskSpec(run, (key, values, str(folder), plan)))
    return made


class Begun(NamedTuple):
    """One execution."""

    n: int
    uid: str
    digest: str
    got: dict[int, str]
    arguments: int


@dataclass
class Runs:
    """All executions of one plan, by task."""

    of: defaultdict[int, list[Begun]] = field(default_factory=lambda: defaultdict(list))
    ended: set[str] = field(default_factory=set)


def lines_in(folder: Path) -> int:
    """How many executions have begun or ended so far."""
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*.runs"))


def read(folder: Path) -> defaultdict[int, Runs]:
    """The executions of every plan."""
    found: defaultdict[int, Runs] = defaultdict(Runs)
    ended: set[str] = set()
    for path in sorted(folder.glob("*.runs")):
        for line in path.read_text().splitlines():
            kind, *words = line.split(" ")
            if kind == "e":
                ended.add(words[0])
                continue
            pairs = [word.split(":") for word in words[5:] if word]
            begun = Begun(
                int(words[2]), words[3], words[4], {int(k): u for k, u in pairs}, len(pairs)
            )
            found[int(words[0])].of[int(words[1])].append(begun)
    for runs in found.values():
        runs.ended = ended
    return found


def broken(sized: Sized, runs: Runs, kept: dict[int, str], losses: int) -> Iterator[str]:
    """What zkplan promises and did not keep. `kept` has the executions of the kept results.

    After `losses` lost workers no more tasks were repeated than those could hold.
    """
    digests = sized.digests
    committed: defaultdict[int, set[str]] = defaultdict(set)
    for key, uid in kept.items():
        committed[key].add(uid)
    for key, needed in enumerate(sized.needs):
        executions = runs.of.get(key, [])
        if not any(each.uid in runs.ended for each in executions):
            yield f"L3: task {key} never returned ({len(executions)} executions)"
        for each in executions:
            if each.got.keys() != set(needed) or each.arguments != len(needed):
                yield f"S3: task {key} had {len(each.got)} of {len(needed)} arguments"
            if each.digest != digests[key]:
                yield f"S3: task {key} had other arguments than the oracle"
            for other, uid in each.got.items():
                committed[other].add(uid)
        for n, count in Counter(each.n for each in executions).items():
            if count > 1:
                yield f"S8: task {key} ran {count} times as attempt {n}"
        if len(executions) > 1 + losses:
            yield f"S4: task {key} ran {len(executions)} times, {losses} workers were lost"
    for key in range(len(sized.needs)):
        yield from _commit_is_one(key, runs, committed[key])


def _commit_is_one(key: int, runs: Runs, uids: set[str]) -> Iterator[str]:
    by_uid = {each.uid: each for each in runs.of.get(key, [])}
    if len(uids) != 1:
        yield f"S4: task {key} was committed {len(uids)} times"
    for uid in uids:
        if uid not in by_uid or uid not in runs.ended:
            yield f"S4: the value of task {key} is of {uid}, which never returned"
        elif by_uid[uid].n != max(each.n for each in by_uid.values()):
            yield f"S5: task {key} was committed, though a later claim ran"
