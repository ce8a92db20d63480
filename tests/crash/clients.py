"""Clients that write, watch and vanish, each on a thread, from one crash to the next.

`go` lets one work until its connection is lost (or it is told to `rest`); what it sent and was told
is then read by the one who checks, while it rests.
"""

from __future__ import annotations

import contextlib
import random
import threading

from tests.tools import requests as ask
from tests.tools.packing import Ask
from tests.tools.rawclient import Answer as Frame
from tests.tools.rawclient import Event, RawConnection
from tests.tools.rawsocket import Closed

from .audit import Answer, Sent
from .writes import FOLDERS, NO_NODE, REGISTER, ROOT, Planner, Write, name_of

Address = tuple[str, int]
TIMEOUT_MS = 30_000
_REST_S_MAX = 60.0
_BURST_MAX = 40
_CREATED, _DELETED, _CHANGED = 1, 2, 3


class Client(threading.Thread):
    """Works from `go` to the loss of its connection, or to `rest`; then rests."""

    def __init__(self, name: str) -> None:
        super().__init__(name=f"crash-{name}", daemon=True)
        self.label = name
        #: What no server may do, seen by this client itself.
        self.faults: list[str] = []
        self.seen_zxid = 0
        self.pausing = threading.Event()
        self._going = threading.Event()
        self._resting = threading.Event()
        self._resting.set()
        self._ending = False
        self.start()

    def go(self) -> None:
        self.pausing.clear()
        self._resting.clear()
        self._going.set()

    def wait_resting(self) -> None:
        assert self._resting.wait(_REST_S_MAX), f"{self.label} still works"

    def end(self) -> None:
        self._ending = True
        self._going.set()
        self.join(_REST_S_MAX)

    def run(self) -> None:
        while True:
            self._going.wait()
            self._going.clear()
            if self._ending:
                break
            try:
                self.work()
            except Closed:
                pass  # the server died: that is what all this is about
            except Exception as error:
                self.faults.append(f"{self.label}: {error!r}")
            self._resting.set()

    def work(self) -> None:
        """One stretch; Closed where the server is gone."""
        raise NotImplementedError


class RawSession:
    """A session that outlives its connections."""

    def __init__(self, address: Address, timeout_ms: int = TIMEOUT_MS) -> None:
        self.address, self.timeout_ms = address, timeout_ms
        self.id, self.password, self.seen_zxid = 0, bytes(16), 0
        self._xid = 0

    def connect(self) -> RawConnection:
        """Attach, or begin. Raises Closed; AssertionError where the session is not given back."""
        try:
            connection = RawConnection(self.address)
        except OSError as error:
            raise Closed(str(error)) from error
        try:
            connection.greet(
                session=self.id,
                password=self.password,
                timeout_ms=self.timeout_ms,
                zxid=self.seen_zxid,
            )
            answer = connection.greeted()
            assert self.id in (0, answer.session), f"session {self.id:#x} became {answer}"
            assert answer.timeout_ms == self.timeout_ms, f"session {self.id:#x} became {answer}"
        except BaseException:
            connection.close()
            raise
        self.id, self.password = answer.session, answer.password
        return connection

    def ask(self, connection: RawConnection, asks: tuple[Ask, ...]) -> list[Event | Frame]:
        """Send all and record what comes; fewer answers than requests: the connection is lost."""
        connection.frames.clear()
        first, self._xid = self._xid + 1, self._xid + len(asks)
        with contextlib.suppress(Closed):
            connection.ask(asks, first)
        self.seen_zxid = max([self.seen_zxid, *(each.zxid for each in connection.frames)])
        return connection.frames


class Writer(Client):
    """One session that writes bursts; `sent` has what it sent since the last `go`."""

    def __init__(self, name: str, seed: int, address: Address) -> None:
        self.planner = Planner(name, seed)
        self.sent: list[Sent] = []
        self.session_id = 0
        self._session = RawSession(address)
        self._random = random.Random(seed)
        super().__init__(name)

    def work(self) -> None:
        with contextlib.closing(self._session.connect()) as connection:
            self.session_id = self._session.id
            while not self.pausing.is_set():
                writes = [self.planner.next() for _ in range(self._random.randint(1, _BURST_MAX))]
                frames = self._session.ask(connection, tuple(map(_ask, writes)))
                self.seen_zxid = self._session.seen_zxid
                answers = [frame for frame in frames if isinstance(frame, Frame)]
                for write, frame in zip(writes, answers, strict=False):
                    note(self, write, _answer(write, frame))
                for write in writes[len(answers) :]:
                    note(self, write, None)
                if len(answers) < len(writes):
                    return


class Witness(Client):
    """Reads and watches what the writers do: whatever it is shown must be there for ever."""

    def __init__(self, seed: int, address: Address, planners: list[Planner]) -> None:
        self._session = RawSession(address)
        self._random = random.Random(seed)
        self._planners = planners
        #: Names and data that it was shown: their requests had been applied.
        self.shown: set[str] = set()
        #: Paths that it was told are deleted.
        self.gone: set[str] = set()
        #: The mzxid, and the pzxid, which it was told are no longer those of a path.
        self.changed: dict[str, int] = {}
        self.children_changed: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self._listed: dict[str, int] = {}
        super().__init__("witness")

    def work(self) -> None:
        self._read, self._listed = {}, {}
        with contextlib.closing(self._session.connect()) as connection:
            while not self.pausing.wait(0.002):
                asks = tuple(self._some_ask() for _ in range(8))
                frames = self._session.ask(connection, asks)
                self.seen_zxid = self._session.seen_zxid
                waiting = iter(asks)
                for frame in frames:
                    if isinstance(frame, Frame):
                        self._take_answer(next(waiting), frame)
                    elif frame.path:
                        self._take_event(frame.kind, frame.path)
                if next(waiting, None) is not None:
                    return

    def _some_ask(self) -> Ask:
        planner = self._random.choice(self._planners)
        match self._random.randint(0, 3):
            case 0:
                # What is about to be created, where the guess is right.
                name = name_of(planner.writer, planner.next_index + self._random.randint(0, 60))
                return ask.exists(f"{ROOT}/{self._random.choice(FOLDERS)}/{name}", watch=True)
            case 1:
                return ask.children2(f"{ROOT}/{self._random.choice(FOLDERS[:5])}", watch=True)
            case _:
                path = self._random.choice([*planner.recent.copy()])
                return ask.get_data(path if path[-1] != "-" else REGISTER, watch=True)

    def _take_event(self, kind: int, path: str) -> None:
        if kind == _CREATED:
            self.shown.add(path.rpartition("/")[2])
        elif kind == _DELETED:
            self.gone.add(path)
        elif path not in (known := self._read if kind == _CHANGED else self._listed):
            self.faults.append(f"witness: told of {path} before the answer that set the watch")
        elif kind == _CHANGED:
            self.changed[path] = known[path]
        else:
            self.children_changed[path] = known[path]

    def _take_answer(self, asked: Ask, frame: Frame) -> None:
        fields = frame.fields
        if asked.op == "get" and frame.error == 0:
            self.shown.add(fields["data"].decode())
            self.shown.add(asked.path.rpartition("/")[2])
            self._read[asked.path] = fields["stat"].mzxid
        elif asked.op == "exists" and frame.error == 0:
            self._read[asked.path] = fields["stat"].mzxid
        elif asked.op == "children2":
            self.shown.update(fields["names"])
            self._listed[asked.path] = fields["stat"].pzxid
        elif frame.error not in (0, NO_NODE):
            self.faults.append(f"witness: {asked} was answered with {frame}")


def note(writer: Writer, write: Write, answer: Answer | None) -> None:
    """Remember a request and its answer, and what the answer teaches for the next ones."""
    writer.sent.append(Sent(write, answer))
    if answer is None:
        return
    if answer.path is not None and write.effects:
        writer.planner.sequential[write.effects[0].key] = answer.path
    if answer.version is not None:
        writer.planner.register_version = answer.version


def _ask(write: Write) -> Ask:
    return write.steps[0] if len(write.steps) == 1 else ask.multi(*write.steps)


def _answer(write: Write, frame: Frame) -> Answer:
    fields = frame.fields
    error = frame.error
    for result in fields.get("results") or ():
        if result[0] == "error" and result[2] not in (0, -2):
            error = result[2]
    path = fields.get("path") if write.steps[0].values[-1] == ask.SEQUENCE else None
    is_register = write.steps[0].path == REGISTER and error == 0
    version = fields["stat"].version if is_register else None
    return Answer(error, frame.zxid, path, version)
