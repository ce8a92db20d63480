"""Load, crash, restart, check: again and again, on one folder, with the same sessions."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.tools import requests as ask
from tests.tools.rawclient import Answer as Frame
from tests.tools.rawsocket import Closed
from zkplan.cli.server import READY

from .audit import Found, Memory, Snapshot, settle, strangers, wrong_answers
from .clients import Address, Client, RawSession, Witness, Writer
from .server import CrashServer, Fault, random_kill
from .short_lived import Period, ShortSessions
from .writes import FOLDERS, REGISTER, ROOT, origin_of

_GONE_S_MAX = 20.0
_WRITERS = 4

#: How the lines begin that an open server says at its start.
_EXPECTED = (READY, "warning: this server is open", "and run code in workers")


class Load:
    """A server with clients, of which everything that was ever answered is remembered.

    Use `crash` (or `fail`) any number of times, then `finish`; `faults` must then be empty.
    """

    def __init__(self, folder: Path, seed: int, server: CrashServer) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.server = server
        self.random = random.Random(seed)
        self.faults: list[str] = []
        self.kills: Counter[str] = Counter()
        self.acknowledged = self.unknown = self.found_applied = 0
        self._memory = Memory()
        self._periods: list[Period] = []
        self._deleted: set[str] = set()
        self._clients: list[Client] = []
        self._begun = (0.0, 0.0)
        self._up(None)
        _make_folders(server.address)
        self._writers = [Writer(f"w{i}", seed + i, server.address) for i in range(_WRITERS)]
        self._witness = Witness(seed, server.address, [each.planner for each in self._writers])
        self.short_sessions = ShortSessions(seed, server.address)
        self._clients = [*self._writers, self._witness, self.short_sessions]

    def crash_at_random(self) -> None:
        """A kill at a moment, or a system call, chosen by the seed."""
        kind, fault, load_s = random_kill(self.random)
        self.crash(kind, fault, load_s)

    def crash(self, kind: str, fault: Fault | None, load_s: float) -> None:
        """Start, check, load the server for `load_s` seconds unless it dies before, kill it."""
        if not self._up(fault):
            self.kills[f"{kind}, not yet serving"] += 1
            self._up(None)
            self.check()
            self.server.stop()
            self._down()
            return
        self.check()
        self._load(load_s)
        if kind == "end" and self.server.is_running():
            self.server.stop()
        is_late = self.server.is_running()
        self.server.kill()
        self._down()
        if self.server.exit_code == -9:
            self.kills[f"{kind}, as at any moment" if is_late and fault else kind] += 1

    def fail(self, load_s: float, fault: Fault | None = None, before: tuple[str, ...] = ()) -> bool:
        """Load a server whose disk fails; whether it ended by itself, as it has to: saying why."""
        self.server.stop()
        self._down()
        is_up = self._up(fault, before)
        if is_up:
            self._load(load_s)
        is_ended = not self.server.is_running()
        code, said = self.server.exit_code, self.server.said
        complaints = [line for line in said.splitlines() if not line.startswith(_EXPECTED)]
        if is_ended and (code != 1 or len(complaints) != 1):
            self.faults.append(f"exit code {code} and {said!r}")
        self.server.kill()
        self._down()
        return is_ended

    def check_after_restart(self) -> None:
        """Start it and check."""
        self._up(None)
        self.check()

    def finish(self) -> None:
        """The last check, also of what a clean stop and start leave; then end everything."""
        self._up(None)
        self.check()
        clock = threading.Event()
        deadline = time.monotonic() + _GONE_S_MAX
        while any("/short/" in path for path in self.snapshot().nodes):
            if time.monotonic() > deadline:
                self.faults.append("nodes of sessions long dead are still there")
                break
            clock.wait(0.1)
        self.check()
        self.server.stop()
        if self.server.exit_code != 0:
            self.faults.append(f"a clean stop ended with {self.server.exit_code}")
        self._down()
        self._up(None)
        self.check()
        self.end()

    def end(self) -> None:
        """End the clients and the server."""
        for client in self._clients:
            client.pausing.set()
        for client in self._clients:
            client.end()
        self.server.kill()

    def check(self) -> None:
        """Hold the tree to all that is known; the clients rest, and go on from what is there."""
        for client in self._clients:
            client.wait_resting()
        snapshot = self._whole_snapshot()
        faults = self._check_shown(snapshot)
        at_least = self._seen_by_others(snapshot)
        changes = []
        for writer in self._writers:
            name, sent = writer.label, writer.sent
            faults += wrong_answers(name, sent) + self._memory.note_answers(name, sent)
            settled = settle(name, writer.planner.owned_before, sent, snapshot, at_least[name])
            faults += settled.faults
            changes.append(settled.changes)
            self._count(writer, settled.applied)
            writer.planner.go_on(settled.owned, settled.sequential)
            writer.planner.register_version = snapshot.nodes[REGISTER].stat.version
            writer.sent = []
            faults += _foreign_ephemerals(writer, snapshot)
        seen = max(client.seen_zxid for client in self._clients)
        faults += self._memory.note_snapshot(snapshot, seen, changes)
        faults += strangers(snapshot, [writer.label for writer in self._writers])
        for client in self._clients:
            faults += client.faults
            client.faults = []
        self.faults += faults

    def snapshot(self) -> Snapshot:
        """Read everything. Raises Closed."""
        return read_all(self.server.address)

    def _whole_snapshot(self) -> Snapshot:
        while True:
            try:
                snapshot = self.snapshot()
                break
            except (Closed, OSError):
                # The fault hit a write that this check itself makes.
                assert self.server.ends_within(30), "it hung up on a reader"
                self.kills["while it was read"] += 1
                self._down()
                self._up(None)
        names = [path.rpartition("/")[2] for path in snapshot.nodes if "/short/" in path]
        now_s = time.monotonic()
        periods = [*self._periods, Period(*self._begun, now_s)]
        self.faults += self.short_sessions.check(names, periods)
        return snapshot

    def _check_shown(self, snapshot: Snapshot) -> list[str]:
        """Sequential nodes that a reader was shown are there, or their deletion was asked for."""
        for writer in self._writers:
            for write, _ in writer.sent:
                self._deleted.update(step.path for step in write.steps if step.op == "delete")
        shown = {f"{ROOT}/seq/{name}" for name in self._witness.shown if name[-10:].isdigit()}
        faults = self._check_told(snapshot)
        lost = shown - snapshot.nodes.keys() - self._deleted
        untrue = {path for path in self._witness.gone - self._deleted if "/short/" not in path}
        self._witness.gone &= self._deleted
        faults += [f"a reader was shown {path}" for path in lost]
        return faults + [f"a watch told that {path} was deleted, by nobody" for path in untrue]

    def _check_told(self, snapshot: Snapshot) -> list[str]:
        """What a watch told of has happened: the node is a later one than was read before."""
        faults = []
        nodes, witness = snapshot.nodes, self._witness
        for path, zxid in witness.changed.items():
            is_true = nodes[path].stat.mzxid > zxid if path in nodes else path in self._deleted
            if not is_true:
                faults.append(f"a watch told that {path} had changed: {nodes.get(path)}")
        for path, zxid in witness.children_changed.items():
            if nodes[path].stat.pzxid <= zxid:
                faults.append(f"a watch told of other children: {path} {nodes[path]}")
        witness.changed, witness.children_changed = {}, {}
        return faults

    def _seen_by_others(self, snapshot: Snapshot) -> dict[str, int]:
        """The last request of each writer that somebody was shown the effect of."""
        texts = {*self._witness.shown, snapshot.nodes[REGISTER].data.decode()}
        gone, self._witness.gone, self._witness.shown = self._witness.gone, set(), set()
        last = {writer.label: -1 for writer in self._writers}
        for text in texts:
            try:
                origin, index = origin_of(text)
            except ValueError:
                continue  # a folder, a sequential node, one of a short session
            if origin in last:
                last[origin] = max(last[origin], index)
        for writer in self._writers:
            for write, _ in writer.sent:
                if any(step.op == "delete" and step.path in gone for step in write.steps):
                    last[writer.label] = max(last[writer.label], write.number)
        return last

    def _count(self, writer: Writer, applied: int) -> None:
        answered = sum(sent.answer is not None for sent in writer.sent)
        self.acknowledged += answered
        self.unknown += len(writer.sent) - answered
        self.found_applied += max(0, applied - answered)

    def _load(self, load_s: float) -> None:
        for client in self._clients:
            client.go()
        self.server.ends_within(load_s)

    def _up(self, fault: Fault | None, before: tuple[str, ...] = ()) -> bool:
        begun_s = time.monotonic()
        is_up = self.server.comes_up(fault, before)
        assert is_up or fault or before, f"it does not start: {self.server.said}"
        self._begun = (begun_s, time.monotonic())
        if not is_up:
            self._down()
        return is_up

    def _down(self) -> None:
        self._periods.append(Period(*self._begun, time.monotonic()))
        for client in self._clients:
            client.pausing.set()


@contextmanager
def _session(address: Address) -> Iterator[Callable[..., list[Frame]]]:
    """A function that gives answers; the session ends with the block. Raises Closed."""
    with closing(RawSession(address).connect()) as connection:
        yield lambda *asks: connection.ask(asks, 1)
        connection.ask((ask.CLOSE_SESSION,), 1)


def read_all(address: Address) -> Snapshot:
    """The folders, and all that is in them. Raises Closed."""
    with _session(address) as answers:
        folders = [f"{ROOT}/{folder}" for folder in FOLDERS]
        listed = answers(*map(ask.children2, folders))
        paths = [*folders, REGISTER]
        for folder, frame in zip(folders, listed, strict=True):
            paths += [f"{folder}/{name}" for name in frame.fields["names"]]
        frames = answers(*map(ask.get_data, paths))
    # A short session may have ended since its nodes were listed.
    nodes = {
        path: Found(frame.fields["data"], frame.fields["stat"])
        for path, frame in zip(paths, frames, strict=True)
        if frame.error == 0
    }
    return Snapshot(max(frame.zxid for frame in frames), nodes)


def _make_folders(address: Address) -> None:
    paths = [ROOT, REGISTER, *(f"{ROOT}/{folder}" for folder in FOLDERS)]
    with _session(address) as answers:
        frames = answers(*map(ask.create, paths))
    assert [frame.error for frame in frames] == [0] * len(paths), frames


def _foreign_ephemerals(writer: Writer, snapshot: Snapshot) -> list[str]:
    return [
        f"{path} belongs to {node.stat.ephemeral_owner:#x}, not to {writer.session_id:#x}"
        for path, node in snapshot.nodes.items()
        if path.startswith(f"{ROOT}/eph/{writer.label}-")
        and node.stat.ephemeral_owner != writer.session_id
    ]
