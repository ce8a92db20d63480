"""`crash_at_every_step`: test how a plan ends if its worker dies at each of its transactions."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from kazoo.client import KazooClient

from ..basics.settings import Settings
from ..client import Client, connect_with
from ..embedded import EmbeddedServer
from ..errors import PlanError, WaitTimeout, ZkplanError, ZooKeeperError
from ..plan import Plan
from ..processes import WatchedProcess, same_imports, wait_unreaped
from ..protocol.requests import Check, Multi, Op, ReadChildren, Request
from ..transport import Transport
from ..transport.request_queue import Call, Done
from ..values.keyring import parse_keys
from ..views.deadlock import raise_in_vain
from ..worker import Worker

T = TypeVar("T")


def in_background(function: Callable[[], T]) -> Future[T]:
    """Call `function` on a daemon thread, so that an interrupted program does not wait for it."""
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, name="zkplan-background", daemon=True).start()
    return future


_POLL_S = 0.02
_END_S = 5.0
_RETRY_DELAY_S = 0.02
_STILL_S = 0.1


class Step(NamedTuple):
    """A moment at which the worker was killed: `when` is "before" or "after" a transaction.

    Before: the transaction was not sent, and all earlier ones were applied. After: the transaction
    was applied, and the worker did not use the answer. `what` names the first operations.
    """

    number: int
    when: str
    what: str

    def __str__(self) -> str:
        return f"killed {self.when} transaction {self.number} ({self.what})"


class Ending(NamedTuple):
    """How a plan ended ("drained" or the name of an error), and what `outcome` returned."""

    how: str
    outcome: Any

    def __str__(self) -> str:
        return f"{self.how}, {self.outcome!r}"


class Difference(NamedTuple):
    """A crash after which the plan ended differently than without a crash."""

    step: Step
    ending: Ending
    undisturbed: Ending

    def __str__(self) -> str:
        return f"{self.step}:\n  {self.ending}\n  instead of {self.undisturbed}"


@dataclass(frozen=True)
class CrashReport:
    """All steps at which the worker was killed, and the crashes that made a difference."""

    undisturbed: Ending
    steps: list[Step] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"{len(self.steps)} crashes, {len(self.differences)} differences"
        return "\n".join([counts, *map(str, self.differences)])


def kept_results(plan: Plan) -> dict[str, Any]:
    """The kept results of a plan by the number of their task; for a failure its text."""
    found: dict[str, Any] = {}
    for number in sorted(plan.client.transport.ask(ReadChildren(f"{plan.path}/results")) or ()):
        try:
            found[number] = plan.task(number).result(timeout=_END_S)
        except (ZooKeeperError, WaitTimeout):
            raise
        except Exception as error:  # perhaps raised by the task itself
            # Leave out the traceback, whose text differs between runs.
            found[number] = f"{type(error).__name__}: {error}"
    return found


def crash_at_every_step(
    build: Callable[[Client], Plan],
    *,
    outcome: Callable[[Plan], Any] = kept_results,
    timeout: float = 30.0,
) -> CrashReport:
    """Run a plan once for each moment at which its worker can die, and compare how it ended.

    `build` gets a client and returns the plan. It is called again for each run, must build the same
    plan each time, and must undo any effects of the tasks outside zkplan. A worker process with one
    slot is killed at the chosen moment; another process takes over and finishes the plan. `outcome`
    gets the ended plan and returns the value to compare, by default its kept results. If tasks have
    effects elsewhere, let `outcome` return those too. The server is an embedded one in memory.

        report = crash_at_every_step(build)
        assert not report.differences, report

    A plan that does not end within `timeout` seconds counts as ended with WaitTimeout. Differences
    are only reported. Raises as `build` and `outcome`, and ZkplanError if `build` returns no plan
    or an empty one, or a worker cannot start. A step takes about a fifth of a second, plus the
    delays between attempts; a plan made without `retry_delay` gets a short one here.
    """
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zkplan-crashes-")))
        forkserver = stack.enter_context(closing(_Forkserver(folder)))
        runs = _Runs(server.hosts, server.login, forkserver, build, outcome, timeout, folder)
        undisturbed = runs.run(0, False)
        report = CrashReport(undisturbed.ending)
        for number in range(1, len(undisturbed.transactions) + 1):
            for when in ("before", "after"):
                run = runs.run(number, when == "after")
                # The number of transactions varies, because finished tasks may share one. So the
                # last numbers may not occur.
                if run.died:
                    step = Step(number, when, run.transactions[number - 1])
                    report.steps.append(step)
                    if not _same(run.ending, undisturbed.ending):
                        report.differences.append(Difference(step, run.ending, undisturbed.ending))
        return report


class _Hasty(Client):
    """Its plans have a very short default delay between attempts."""

    def create_plan(self, *arguments: Any, **options: Any) -> Plan:
        """See Client."""
        # Not 0, because an attempt without a delay takes other transactions.
        return super().create_plan(*arguments, **{"retry_delay": _RETRY_DELAY_S} | options)


def _built(plan: object) -> Plan:
    """The plan that `build` returned. Raises ZkplanError if it has no tasks."""
    if not isinstance(plan, Plan):
        raise ZkplanError(f"build(client) must return the plan that it made, not {plan!r:.50}")
    if not plan.status().tasks:
        raise ZkplanError(f"build(client) returned {plan.path}, which has no tasks to crash in")
    return plan


def _same(one: Ending, other: Ending) -> bool:
    if one.how != other.how:
        return False
    try:
        return bool(one.outcome == other.outcome)
    except Exception:  # for example arrays, whose comparison is an array
        return repr(one.outcome) == repr(other.outcome)


class _Ran(NamedTuple):
    ending: Ending
    #: The operations of each transaction of the first worker.
    transactions: list[str]
    #: Whether that worker died as planned.
    died: bool


class _Will(NamedTuple):
    session: tuple[int, bytes] | None
    transactions: list[str]


@dataclass(repr=False)  # it holds a secret
class _Runs:
    """Runs of one plan, each under a root of its own."""

    hosts: str
    login: str
    forkserver: _Forkserver
    build: Callable[[Client], Plan]
    outcome: Callable[[Plan], Any]
    timeout_s: float
    folder: Path
    roots: Iterator[int] = field(default_factory=itertools.count)
    secret: str = field(default_factory=lambda: secrets.token_hex(32))

    def run(self, number: int, after: bool) -> _Ran:
        """Build the plan, let a worker die at transaction `number` (0: never), and let others
        finish the plan."""
        root = f"/crash-{next(self.roots):06d}"
        settings = Settings(hosts=self.hosts, root=root, secret=self.secret.encode())
        with connect_with(settings) as client:
            client.prepare()
            hasty = _Hasty(client.transport, root, client.keys)
            plan = _built(self.build(hasty))
            plan.mark_ready()
            deadline = time.monotonic() + self.timeout_s
            place = {"hosts": self.hosts, "root": root, "secret": self.secret, "login": self.login}
            how = in_background(lambda: _how_it_ends(plan, self.timeout_s))
            for worker in itertools.count():
                will = self.folder / f"{root[1:]}-{worker}"
                moment = {"number": number if worker == 0 else 0, "after": after}
                died = self.forkserver.run(how, **place, **moment, will=str(will))
                left = _read(will)
                if worker == 0:
                    transactions = left.transactions
                    as_planned = died and len(transactions) >= number > 0
                self._end_session(left)
                if not died or time.monotonic() > deadline:
                    break
            return _Ran(Ending(how.result(), self.outcome(plan)), transactions, as_planned)

    def _end_session(self, will: _Will) -> None:
        """End the session of a dead worker at once instead of waiting for its time-out."""
        if will.session is not None:
            logs_in = [("digest", self.login)]
            kazoo = KazooClient(self.hosts, client_id=will.session, auth_data=logs_in)
            kazoo.start()
            kazoo.stop()
            kazoo.close()


def _how_it_ends(plan: Plan, timeout_s: float) -> str:
    """Wait until a plan ends: "drained", or the name of an error."""
    try:
        _wait(plan, timeout_s)
    except (PlanError, WaitTimeout) as error:
        return type(error).__name__
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "drained"


def _wait(plan: Plan, timeout_s: float) -> None:
    """Plan.wait, but faster: that needs seconds to be sure that a plan with dead tasks is stuck."""
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > _STILL_S:
        with suppress(WaitTimeout):
            plan.wait(timeout=_STILL_S)
            return
        status = plan.status()
        if status.state == "failed":
            raise_in_vain(plan.client, status, status.dead)
    plan.wait(timeout=max(left_s, 0.0))


def _read(will: Path) -> _Will:
    lines = will.read_text().splitlines() if will.exists() else []
    facts = [json.loads(line) for line in lines]
    session = next(
        ((fact["session"], bytes.fromhex(fact["password"])) for fact in facts if "session" in fact),
        None,
    )
    return _Will(session, [fact["what"] for fact in facts if "what" in fact])


#: The program of the process that forks workers.
_SERVE = "from zkplan.testing.crashes import serve_orders; serve_orders()"


class _Forkserver:
    """The process that forks workers, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._socket, its = socket.socketpair()
        with its:
            self._process = WatchedProcess(
                [sys.executable, "-c", _SERVE, str(its.fileno())],
                folder / "log",
                same_imports(),
                pass_fds=[its.fileno()],
            )

    def run(self, plan: Future[str], **order: object) -> bool:
        """Run a worker until it has died (True), or the plan has ended (False, and the worker is
        killed)."""
        with suppress(BrokenPipeError):  # then `_answer` raises
            self._socket.sendall(json.dumps(order).encode() + b"\n")
        pid = int.from_bytes(self._answer(4), "big")
        died = True
        while not select.select([self._socket], [], [], _POLL_S)[0]:
            if died and plan.done():
                died = False
                os.kill(pid, signal.SIGKILL)
        self._answer(1)
        return died

    def _answer(self, size: int) -> bytes:
        with suppress(ConnectionResetError):
            if answer := self._socket.recv(size, socket.MSG_WAITALL):
                return answer
        raise ZkplanError(f"no workers can be started.{self._process.log_tail()}")

    def close(self) -> None:
        """End the process, and its worker."""
        self._socket.close()
        self._process.end(0)


# ---- Fork workers that die at a chosen moment, one at a time, on order.
#
# The process has no threads and has imported zkplan, so a worker starts in milliseconds. Orders are
# lines of JSON on an inherited socket: {"hosts", "root", "secret", "number", "after", "will"}
# starts a worker. Each order gets two answers: the process id in four bytes, and one byte when the
# process has ended. Until the next order no other process gets this id, so a kill by id is safe.


#: Long, because `_Runs` ends the sessions itself.
SESSION_TIMEOUT_S = 30.0
_ANSWERS_S = 10.0
_OPS_SHOWN = 3


class DyingTransport(Transport):
    """Ends its process at one transaction: before it is sent, or after its answer.

    The transport writes each transaction to the file `will`, one line of JSON each. With `number` 0
    it never ends the process.
    """

    def __init__(self, client: KazooClient, root: str, number: int, after: bool, will: str) -> None:
        super().__init__(client, owns=True)
        self._root, self._number, self._after = root, number, after
        self._will = os.open(will, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._numbers = itertools.count(1)
        self._unanswered = 0
        self._answers = threading.Condition()

    def submit(self, request: Request, done: Done) -> Call:
        """See Transport. Transactions are numbered in the order in which they are submitted."""
        if type(request) is not Multi:
            return super().submit(request, done)
        number = next(self._numbers)
        self.write(what=describe(request.ops, self._root))
        if number == self._number and not self._after:
            # Earlier transactions must be applied first, or one step would differ between runs.
            with self._answers:
                self._answers.wait_for(lambda: self._unanswered == 0, _ANSWERS_S)
            die()

        def answered(answer: Any, error: BaseException | None) -> None:
            if number == self._number:
                die()
            with self._answers:
                self._unanswered -= 1
                self._answers.notify_all()
            done(answer, error)

        with self._answers:
            self._unanswered += 1
        return super().submit(request, answered)

    def write(self, **facts: object) -> None:
        """Add a line to the will."""
        os.write(self._will, json.dumps(facts).encode() + b"\n")


def die() -> NoReturn:
    """End this process with SIGKILL, so that it sends nothing more and cleans nothing up."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL did not end the process")


def describe(ops: Sequence[Op], root: str) -> str:
    """
    >>> from zkplan.protocol.requests import Check, Create, Delete
    >>> describe([Check("/r/c"), Create("/r/d"), Create("/r/e"), Delete("/r/f")], "/r")
    'create d, create e, delete f'
    """
    writes = [op for op in ops if type(op) is not Check]
    shown = [f"{type(op).__name__.lower()} {op.path[len(root) + 1 :]}" for op in writes]
    more = len(shown) - len(shown[:_OPS_SHOWN])
    shown = shown[:_OPS_SHOWN]
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _work(
    hosts: str, login: str, root: str, secret: str, number: int, after: bool, will: str
) -> None:
    kazoo = KazooClient(hosts, timeout=SESSION_TIMEOUT_S, auth_data=[("digest", login)])
    kazoo.start()
    transport = DyingTransport(kazoo, root, number, after, will)
    session, password = kazoo.client_id
    transport.write(session=session, password=password.hex())
    Worker(Client(transport, root, parse_keys(secret, "the order")), threads=1).run()


def _fork(order: dict[str, Any]) -> tuple[int, int]:
    """The process id of a new worker, and a descriptor: closing it ends the worker."""
    ours, ends = os.pipe()
    pid = os.fork()
    if pid:
        os.close(ours)
        return pid, ends
    try:
        os.close(ends)
        # Its own session, so that signals to the group of this process do not reach the worker.
        os.setsid()
        threading.Thread(target=lambda: os.read(ours, 1) or die(), daemon=True).start()
        _work(**order)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def serve_orders() -> None:
    """Serve orders until the end of the input."""
    with socket.socket(fileno=int(sys.argv[1])) as starter, starter.makefile("rb") as orders:
        starter.set_inheritable(False)
        for order in orders:
            pid, ends = _fork(json.loads(order))
            starter.sendall(pid.to_bytes(4, "big"))
            wait_unreaped(pid)
            starter.sendall(b".")
            os.close(ends)
            # Reap the worker only with the next order, so that its id stays its own until then.
            orders.peek(1)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
