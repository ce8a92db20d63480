"""The function of every task: it records its arguments and result, and obeys a poke.

A poke is a file by which a fault has the next task that begins do harm to its own process.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import zkplan
from zkplan.protocol import failpoints
from zkplan.testing.stress_tasks import Recorder, recorder_here

from .controls import DEFAULT, LIMIT, served_here
from .memory import FOOTPRINT
from .workloads import Item, attempts_of, digest_of, pad_of

#: A result: key, digest, execution, attempt number, bytes that make it large.
Value = tuple[str, str, str, int, bytes]
POKES = "pokes"
#: Environment variable of a worker whose tasks obey no pokes.
LONG_LIVED = "ZKPLAN_CHAOS_LONG_LIVED"
#: Environment variable: the file in which a process tells which armed points have acted.
TOLD = "ZKPLAN_CHAOS_TOLD"
#: The exit code of a process whose task exits; nothing else uses it.
EXIT_CODE = 7
_ANYBODY = "anybody"
#: Environment of a process: all threads share one heap, so one thread can use up everything.
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}
#: The limits that are set, and the lines of /proc/self/status with the present amounts.
_MEMORY = {resource.RLIMIT_AS: "VmSize", resource.RLIMIT_DATA: "VmData"}
_MARGIN_BYTES = 1024 * 1024
_PIECES = (65_536, 4_096, 512, 128, 32)
_WITHOUT_MEMORY_S = 0.4


class PlannedFailure(Exception):
    """A task failed because its workload says so."""


def run(facts: dict[str, Any], values: Sequence[Value], plan: str, folder: str, by: str) -> Value:
    """Run the task of those facts; `by` is the execution that added it, empty for an author.

    Wrong arguments are recorded and not raised: only the checks know what is right.
    """
    item, here = Item.of(facts), zkplan.current()
    # What the public API does not tell: the attempts that are used up, and all of a pure task.
    claim, is_ahead = here._job.claim, here._job.leader is not None
    journal = recorder_here(folder)
    uid = uuid.uuid4().hex[:16]
    damaged = [value[0] for value in values if value[4] != pad_of(value[0], len(value[4]))]
    digest = digest_of(item.key, [(value[0], value[1]) for value in values])
    journal.write(
        "begin",
        plan=plan,
        key=item.key,
        number=claim.task,
        n=claim.n,
        a=claim.a,
        ahead=is_ahead,
        worker=here.worker,
        pid=os.getpid(),
        uid=uid,
        by=by,
        queue=item.queue,
        serves=served_here(),
        digest=digest,
        got=[value[2] for value in values],
        damaged=damaged,
    )
    try:
        obey_a_poke(Path(folder) / POKES, journal)
        threading.Event().wait(item.seconds)
        if item.doomed or claim.n < item.fails:
            raise PlannedFailure(f"{item.key} attempt {claim.n}")
        if item.adds:
            _add(item, here.task, plan, folder, uid)
    except BaseException as error:
        how = {
            "planned": isinstance(error, PlannedFailure),
            "handed_back": isinstance(error, zkplan.StoreUnavailable),
        }
        journal.write("raised", uid=uid, **how, error=repr(error)[:300])
        raise
    journal.write("end", uid=uid, **FOOTPRINT.noted())
    return item.key, digest, uid, claim.n, pad_of(item.key, item.pad)


def spec(
    item: Item, tasks: dict[str, Any], plan: str, folder: Any, by: str = "", keyed: bool = False
) -> zkplan.TaskSpec:
    """The task of an item, added to `tasks`, where the tasks that it needs are by key.

    `folder` may be a constant of the plan. `keyed`: an add of the same task finds it.
    """
    needed = [tasks[key] for key in item.needs]
    # Only what is not by default: an earlier zkplan does not know them.
    controls: dict[str, Any] = {"queue": item.queue} if item.queue != DEFAULT else {}
    if item.limited:
        controls["limits"] = [LIMIT]
    if keyed:
        controls["key"] = item.key
    made = zkplan.TaskSpec(
        *(run, [item.facts(), needed, plan, folder, by]),
        name=item.key,
        attempts=attempts_of(item),
        pure=item.pure,
        **controls,
    )
    tasks[item.key] = made
    return made


def _add(item: Item, me: zkplan.Task, plan: str, folder: str, uid: str) -> None:
    tasks: dict[str, Any] = {item.key: me}
    me.plan.add_tasks([spec(added, tasks, plan, folder, uid) for added in item.adds])


class Deed(NamedTuple):
    """What a process has told that it did, or is about to do."""

    pid: int
    did: str
    number: float = 0.0


Tell = Callable[..., None]


def teller(file: Path) -> Tell:
    """A function that appends the deeds of this process to that file, each in one write."""

    def tell(did: str, number: float = 0.0) -> None:
        with file.open("ab") as account:
            account.write(_line(did, number))

    return tell


def _line(did: str, number: float) -> bytes:
    return json.dumps([os.getpid(), did, number]).encode() + b"\n"


def account_in(file: Path) -> list[Deed]:
    """The deeds in that file so far."""
    if not file.exists():
        return []
    return [Deed(*json.loads(line)) for line in file.read_text().splitlines()]


def tell_of_points(tell: Tell) -> None:
    """From now on each armed point tells `point action` before it acts."""
    failpoints.notify = lambda name, action: tell(f"{name} {action}")


class Poke:
    """What the next task that begins, in any process or in one, has to do, once it is given."""

    def __init__(self, folder: Path, what: str, argument: str = "", pid: int | None = None) -> None:
        self._name = f"{what}.{_ANYBODY if pid is None else pid}.{uuid.uuid4().hex[:8]}"
        self._folder, self._argument = folder, argument
        self._file = folder / POKES / self._name
        #: Where its process tells what it has done.
        self.told = folder / f"told-{self._name}"

    def give(self) -> Poke:
        draft = self._folder / f"draft-{self._name}"
        draft.write_text(self._argument)
        draft.rename(self._file)
        return self

    def take_back(self) -> None:
        self._file.unlink(missing_ok=True)

    def was_taken(self) -> bool:
        return (self._folder / f"taken-{self._name}").exists()

    def account(self) -> list[Deed]:
        return account_in(self.told)


def obey_a_poke(pokes: Path, journal: Recorder) -> None:
    """Do what a poke for this process says, if there is one."""
    for name in [] if LONG_LIVED in os.environ else os.listdir(pokes):
        what, whom, _ = name.split(".")
        taken = pokes.parent / f"taken-{name}"
        if whom not in (_ANYBODY, str(os.getpid())):
            continue
        try:
            os.rename(pokes / name, taken)
        except FileNotFoundError:
            continue  # another task took it
        argument = taken.read_text()
        journal.write("poked", what=what, pid=os.getpid())
        _act(what, argument, pokes.parent / f"told-{name}")
        return


def _act(what: str, argument: str, told: Path) -> None:
    tell = teller(told)
    match what:
        case "arm":
            tell_of_points(tell)
            failpoints.arm(argument)
        case "exit":
            tell("exits")
            os._exit(EXIT_CODE)
        case "segfault":
            tell("segfaults")
            ctypes.string_at(0)
        case "stop":
            tell("stops")
            os.kill(os.getpid(), signal.SIGSTOP)
        case "hold interpreter":
            began = time.monotonic()
            # A call through PyDLL keeps the interpreter lock.
            ctypes.PyDLL(None).usleep(int(float(argument) * 1e6))
            tell("held the interpreter", time.monotonic() - began)
        case "fork":
            tell("forked", _fork(float(argument)))
        case "memory":
            _tell_of_memory(told)


def _fork(seconds: float) -> int:
    """Leave a child that holds the inherited sockets; its process ID."""
    child = os.fork()
    if child == 0:
        threading.Event().wait(seconds)
        os._exit(0)
    return child


def _tell_of_memory(told: Path) -> None:
    """Use up the memory; the line to tell is made before, as it could not be made later."""
    line = _line("refused", 1)
    account = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    use_up_memory(_WITHOUT_MEMORY_S, lambda: os.write(account, line))
    os.close(account)


def use_up_memory(seconds: float, tell: Callable[[], object]) -> int:
    """Leave the process no memory for `seconds`; how often an allocation was refused.

    `tell` is called at the first refusal, as the process may not survive for long. The room up to
    the limit is filled with smaller and smaller pieces, again and again, since other threads free
    some. All threads must share a heap (`ONE_HEAP`): no limit refuses the memory that a heap of
    their own has already.
    """
    limits = {kind: resource.getrlimit(kind) for kind in _MEMORY}
    until, refused = time.monotonic() + seconds, 0
    held: object = None
    pause = threading.Event()
    for kind, name in _MEMORY.items():
        resource.setrlimit(kind, (_used(name) + _MARGIN_BYTES, limits[kind][1]))
    try:
        while time.monotonic() < until:
            for size in _PIECES:
                try:
                    while True:
                        held = (bytes(size), held)
                except MemoryError:
                    if not refused:
                        tell()
                    refused += 1
            try:
                pause.wait(0.001)  # let other threads meet the lack of memory
            except MemoryError:
                refused += 1
    except MemoryError:
        refused += 1  # reading the clock takes memory too
    finally:
        held = None  # first, as lifting a limit takes memory
        for kind, limit in limits.items():
            resource.setrlimit(kind, limit)
    return refused


def _used(name: str) -> int:
    """The present amount, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024
