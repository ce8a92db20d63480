"""What the integration tests share: workers in threads and processes, evidence, waiting."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from kazoo.client import KazooClient

import zkplan
from zkplan.processes import WatchedProcess
from zkplan.protocol.layout import parse_claim
from zkplan.protocol.requests import ReadChildren
from zkplan.views.task_details import describe_task

TOP = Path(__file__).parents[2]
#: Hosts and root of a test.
Here: TypeAlias = tuple[str, str]
WAIT_S = 30.0
#: Of each ID that part which stays when it registers anew.
READY = re.compile(r"^worker (\S+-[0-9a-f]{8})\S* ready$", re.MULTILINE)
#: A pickle: its protocol, then a frame or, if it is short, one value. The two bytes of the protocol
#: alone are in one of some thousand digests.
PICKLE = re.compile(rb"\x80[\4\5](\x95.{3}\0{5}|[N\x88\x89)\]}]\x94?\.|K.\.)", re.DOTALL)
#: Runs a command in the checkout, with signals as at a terminal: a shell without job control starts
#: what runs in its background with SIGINT ignored, nohup ignores SIGHUP, and tests may run so.
IN_CHECKOUT = ("/usr/bin/env", "-C", str(TOP), "--default-signal=INT,HUP")


def secret_of(name: str) -> str:
    """A key as a line of a key file has it: for each name another one."""
    return f"{name}:{hashlib.sha256(name.encode()).hexdigest()}"


def key_file(folder: Path, *names: str) -> Path:
    """A file with the keys of these names, in their order."""
    file = folder / f"{'-'.join(names)}.keys"
    file.touch(0o600)
    file.write_text("".join(f"{secret_of(name)}\n" for name in names))
    return file


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = WAIT_S) -> Any:
    """The first true value of `condition`; fails after `timeout_s` seconds, naming `what`."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        pause.wait(0.01)


def wait_for_delayed(client: zkplan.Client, count: int) -> None:
    """Wait until `count` attempts are delayed. One that is still claimed is not runnable either."""
    later = ReadChildren(client.paths.delayed)
    wait_until(lambda: len(client.transport.ask(later) or ()) == count, f"{count} delayed")


@contextmanager
def working(
    hosts: str,
    root: str,
    threads: int = 4,
    *,
    grace: float = 10.0,
    of_worker: dict[str, Any] | None = None,
    **options: Any,
) -> Iterator[zkplan.Worker]:
    """A worker on threads of this process, registered; drained at the end of the block."""
    with zkplan.connect(hosts, root=root, **options) as client:
        worker = zkplan.Worker(client, threads, **(of_worker or {}))
        registered = threading.Event()
        worker.on_ready(lambda _: registered.set())
        worker.start()
        try:
            assert registered.wait(WAIT_S), "the worker did not register"
            yield worker
        finally:
            worker.stop(grace)


def run_python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """What Python with these arguments said; it finds zkplan, also where `cwd` is not the checkout.

    `env` adds to the environment.
    """
    given = {"cwd": TOP, "timeout": 100, **options}
    given["env"] = os.environ | {"PYTHONPATH": str(TOP)} | given.get("env", {})
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **given)


def zkplan_command(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """What `zkplan` with these words said; with the options of `run_python`."""
    return run_python("-m", "zkplan", *words, **options)


@contextmanager
def started(*command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process whose output is read, with signals as at a terminal; killed at the end."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    with subprocess.Popen([*IN_CHECKOUT, *command], **given) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


class Ran(NamedTuple):
    """What a command said that ran in this process, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Run: TypeAlias = Callable[..., Ran]
Told: TypeAlias = Callable[[str], None]


class WorkerProcess:
    """A `zkplan worker` process, which logs to a file; killed at the end of the block."""

    def __init__(self, hosts: str, root: str, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "zkplan", "worker", "--hosts", hosts, "--root", root]
        folder.mkdir(exist_ok=True)
        self.log = folder / f"worker-{time.monotonic_ns()}.log"
        self.process = WatchedProcess([*IN_CHECKOUT, *command, *options], self.log)

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")

    def wait_ready(self, count: int = 1) -> WorkerProcess:
        """Wait until `count` workers say that they are registered, and its supervisor knows.

        Who is in the tree may not know it yet: the answer is under way.
        """

        def ready() -> bool:
            assert self.process.is_running(), self.log.read_text()
            return len({*READY.findall(self.log.read_text(errors="replace"))}) >= count

        wait_until(ready, f"{count} workers are ready")
        return self

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.process.end(0)
        if error is not None:
            sys.stderr.write(self.log.read_text(errors="replace"))  # pytest shows it


@contextmanager
def plain_client(hosts: str, **options: Any) -> Iterator[KazooClient]:
    """A KazooClient without anything of zkplan: it sees what any other program would see."""
    client = KazooClient(hosts=hosts, **options)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def expire(client: zkplan.Client) -> None:
    """End the session of a client at the server, as if it had been silent for too long."""
    transport = client.transport
    with plain_client(transport.hosts, client_id=transport.client.client_id):
        pass


def tree(client: KazooClient, root: str) -> set[str]:
    """The paths of all znodes at and below `root`, relative to it."""
    found, todo = set(), [root]
    while todo:
        path = todo.pop()
        found.add(path[len(root) :])
        todo += [f"{path}/{name}" for name in client.get_children(path)]
    return found


def pickles_in(client: KazooClient, root: str) -> list[str]:
    """The paths of the znodes at and below `root` whose data has a pickle in it."""
    return [path for path in tree(client, root) if PICKLE.search(client.get(root + path)[0])]


def note(file: str | Path, line: str) -> None:
    """Append a line to a file in one write, so that notes of several processes never mix."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


def notes(file: str | Path) -> list[str]:
    """The lines noted so far."""
    path = Path(file)
    return path.read_text().splitlines() if path.exists() else []


def run_noted(file: str | Path, name: str, *_: Any) -> str:
    """As a task: note its name and the number of its claim; its result is its name."""
    note(file, f"{name} {zkplan.current().attempt}")
    return name


def die_once(file: str | Path, count: int) -> None:
    """In a task: kill the process of this worker where `count` lines are noted, but only one."""
    died = Path(f"{file}-died")
    if not died.exists() and len(notes(file)) >= count:
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def blocked_plan(client: zkplan.Client, znodes: KazooClient) -> zkplan.Plan:
    """A ready plan whose only task waits for what never comes."""
    plan = client.create_plan()
    task = plan.add_task(int)
    znodes.create(f"{task.path}/dep-0000000000")
    (entry,) = znodes.get_children(f"{plan.path}/runnable")
    znodes.delete(f"{plan.path}/runnable/{entry}")
    plan.mark_ready()
    return plan


def fail() -> None:
    """As a task."""
    raise ValueError("on purpose")


def is_running(pid: int) -> bool:
    """Whether the process exists; one that has ended and is not yet reaped does not count."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def pass_gate(gate: str, *_: Any) -> str:
    """As a task: tell that it runs, and end when the file exists."""
    Path(f"{gate}-reached").touch()
    return str(wait_until(lambda: Path(gate).exists() and "open", "the gate opens"))


def stall_nothing() -> None:
    """As a task: what the fixture `nothing_stalls` does, for the worker process that runs it."""
    from zkplan.runtime import claims as capacity
    from zkplan.runtime import shutdown

    capacity.STALLED_S, shutdown.SIGN_OFF_S = 1000.0, 30.0


def standing_claims(client: zkplan.Client) -> int:
    """All claims that stand, those of workers that have vanished too."""
    paths = client.paths
    claims_nodes = client.transport.ask(ReadChildren(paths.claims)) or ()
    names = [
        client.transport.ask(ReadChildren(paths.claims_of(claims_node))) or ()
        for claims_node in claims_nodes
    ]
    return sum(parse_claim(name) is not None for name in chain(*names))


def wait_for_notes(file: str | Path, count: int, timeout_s: float = WAIT_S) -> None:
    """Wait until `count` lines are noted. Not for more than there are: those may be all."""
    wait_until(lambda: len(notes(file)) >= count, f"{count} notes", timeout_s)


def described(task: zkplan.Task, people: bool = True, values: bool = False) -> dict[str, Any]:
    """The facts that `zkplan task show` prints."""
    return describe_task(task.plan.client, task.path, people, values)


class Bomb:
    """Whoever decodes its pickle makes the file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)
