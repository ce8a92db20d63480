"""What the workers run: a task that records what it got and gave, and obeys the nearest poke."""

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
from zkplan.stress.history import Recorder, recorder_here

from .held import HELD
from .workloads import Item, attempts_of, digest_of, pad_of

#: A result: key, digest, execution, attempt number, bytes that make it large.
Value = tuple[str, str, str, int, bytes]
POKES = "pokes"
#: Set in the environment of a worker whose tasks obey no pokes.
SPARED = "ZKPLAN_CHAOS_SPARED"
#: Set in the environment of a process that is to tell there which of its armed points have acted.
TOLD = "ZKPLAN_CHAOS_TOLD"
#: Of a process whose task exits; nothing else gives it.
EXIT_CODE = 7
_ANYBODY = "anybody"
#: In the environment of a process: what one thread uses up, the others miss.
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}
#: What of a process is limited, and how the system names what it has of it.
_MEMORY = {resource.RLIMIT_AS: "VmSize", resource.RLIMIT_DATA: "VmData"}
_MARGIN_BYTES = 1024 * 1024
_PIECES = (65_536, 4_096, 512, 128, 32)
_WITHOUT_MEMORY_S = 0.4


class PlannedFailure(Exception):
    """A task failed because its workload says so."""


def run(facts: dict[str, Any], values: Sequence[Value], plan: str, folder: str, by: str) -> Value:
    """Run the task of those facts; `by` is the execution that added it, empty for an author.

    Wrong arguments are recorded, not raised: the checker knows the oracle, this one does not.
    """
    item, here = Item.of(facts), zkplan.current()
    journal = recorder_here(folder)
    uid = uuid.uuid4().hex[:16]
    damaged = [value[0] for value in values if value[4] != pad_of(value[0], len(value[4]))]
    digest = digest_of(item.key, [(value[0], value[1]) for value in values])
    journal.write(
        "begin",
        plan=plan,
        key=item.key,
        number=here.task.number,
        n=here.attempt,
        a=here._job.claim.a,  # nobody is told how many attempts are used up
        worker=here.worker,
        pid=os.getpid(),
        uid=uid,
        by=by,
        digest=digest,
        got=[value[2] for value in values],
        keys=len({value[0] for value in values}),
        damaged=damaged,
    )
    try:
        obey_a_poke(Path(folder) / POKES, journal)
        threading.Event().wait(item.seconds)
        if item.doomed or here.attempt < item.fails:
            raise PlannedFailure(f"{item.key} attempt {here.attempt}")
        if item.adds:
            _add(item, here.task, plan, folder, uid)
    except BaseException as error:
        planned = isinstance(error, PlannedFailure)
        journal.write("raised", uid=uid, planned=planned, error=repr(error)[:300])
        raise
    journal.write("end", uid=uid, **HELD.noted())
    return item.key, digest, uid, here.attempt, pad_of(item.key, item.pad)


def spec(
    item: Item, tasks: dict[str, Any], plan: str, folder: str, by: str = ""
) -> zkplan.TaskSpec:
    """The task of an item; `tasks` has what it needs, by key. It is put there as well."""
    needed = [tasks[key] for key in item.needs]
    made = zkplan.TaskSpec(
        run, [item.facts(), needed, plan, folder, by], name=item.key, attempts=attempts_of(item)
    )
    tasks[item.key] = made
    return made


def _add(item: Item, me: zkplan.Task, plan: str, folder: str, uid: str) -> None:
    tasks: dict[str, Any] = {item.key: me}
    me.plan.add_tasks([spec(added, tasks, plan, folder, uid) for added in item.adds])


class Deed(NamedTuple):
    """What a process says that it has done, or does next."""

    pid: int
    did: str
    number: float = 0.0


Tell = Callable[..., None]


def teller(file: Path) -> Tell:
    """What appends the deeds of this process to that file, each in one write."""

    def tell(did: str, number: float = 0.0) -> None:
        with file.open("ab") as account:
            account.write(_line(did, number))

    return tell


def _line(did: str, number: float) -> bytes:
    return json.dumps([os.getpid(), did, number]).encode() + b"\n"


def account_in(file: Path) -> list[Deed]:
    """The deeds that were told there so far."""
    if not file.exists():
        return []
    return [Deed(*json.loads(line)) for line in file.read_text().splitlines()]


def tell_of_points(tell: Tell) -> None:
    """From now on each point that acts is told before, as `point action`."""
    # Workers of an earlier commit, which run this too, have no points.
    from zkplan.protocol import failpoints

    failpoints.tell = lambda name, action: tell(f"{name} {action}")


class Poke(NamedTuple):
    """What the next task that begins has to do: a file until it is taken, then another one.

    Where it is given only later, a draft is there first. What its process has done then is in the
    last.
    """

    draft: Path
    file: Path
    taken: Path
    told: Path

    def account(self) -> list[Deed]:
        return account_in(self.told)

    def was_taken(self) -> bool:
        return self.taken.exists()

    def give(self) -> None:
        self.draft.rename(self.file)

    def take_back(self) -> None:
        self.draft.unlink(missing_ok=True)
        self.file.unlink(missing_ok=True)


def poke(folder: Path, what: str, argument: str = "", pid: int | None = None) -> Poke:
    """Have the next task that begins, maybe only in that process, do something nasty."""
    made = prepared_poke(folder, what, argument, pid)
    made.give()
    return made


def prepared_poke(folder: Path, what: str, argument: str = "", pid: int | None = None) -> Poke:
    """One that is still to be given."""
    draft = folder / f"poke-{uuid.uuid4().hex[:8]}"
    draft.write_text(argument)
    name = f"{what}.{_ANYBODY if pid is None else pid}.{draft.name}"
    taken, told = folder / f"taken-{name}", folder / f"told-{name}"
    return Poke(draft, folder / POKES / name, taken, told)


def obey_a_poke(pokes: Path, journal: Recorder) -> None:
    """Do what one of the pokes says that is meant for this process, if there is one."""
    for name in [] if SPARED in os.environ else os.listdir(pokes):
        what, whom, _ = name.split(".")
        taken = pokes.parent / f"taken-{name}"
        if whom not in (_ANYBODY, str(os.getpid())):
            continue
        try:
            os.rename(pokes / name, taken)
        except FileNotFoundError:
            continue  # another task was nearer
        argument = taken.read_text()
        journal.write("poked", what=what, pid=os.getpid())
        _act(what, argument, pokes.parent / f"told-{name}")
        return


def _act(what: str, argument: str, told: Path) -> None:
    tell = teller(told)
    match what:
        case "arm":
            from zkplan.protocol import failpoints

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
            # A function called through PyDLL keeps the interpreter lock.
            ctypes.PyDLL(None).usleep(int(float(argument) * 1e6))
            tell("held the interpreter", time.monotonic() - began)
        case "fork":
            tell("forked", _fork(float(argument)))
        case "memory":
            _tell_of_memory(told)


def _fork(seconds: float) -> int:
    """A child that outlives its parent's task holds what it inherited: sockets and descriptors."""
    child = os.fork()
    if child == 0:
        threading.Event().wait(seconds)
        os._exit(0)
    return child


def _tell_of_memory(told: Path) -> None:
    """Use it up; what is told at the first refusal is made before, for then it could not be."""
    line = _line("refused", 1)
    account = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    use_up_memory(_WITHOUT_MEMORY_S, lambda: os.write(account, line))
    os.close(account)


def use_up_memory(seconds: float, tell: Callable[[], object]) -> int:
    """Leave the process no memory for so long, whatever its threads ask for; how often it got none.

    `tell` is called at the first time: the process may not live long enough to tell of the last.
    What is left is filled with pieces that become smaller and smaller, again and again, for other
    threads give some back. They miss it only where all threads have one heap (`ONE_HEAP`): one of
    their own has its addresses from the start, and no limit refuses these.
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
                pause.wait(0.001)  # for the others to find that there is none
            except MemoryError:
                refused += 1
    except MemoryError:
        refused += 1  # even what looks at the clock
    finally:
        held = None  # first: to lift a limit takes memory
        for kind, limit in limits.items():
            resource.setrlimit(kind, limit)
    return refused


def _used(name: str) -> int:
    """How much of it the process has, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024
