"""Seeded runs with somebody who may write the tree and has no key: he moves, replays and forges.

He may stop, lose and delay what he likes, so the other invariants do not hold here. S20 does: the
clients use only what a holder of the key has sealed for its place. Judged is each use: a plan that
is looked at (it runs, as its owners say), a task that is about to run (its definition and
arguments), and an end or an outcome that is reported to those who wait. Failed plans are retried:
that takes their ends and failures back.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from zkplan.embedded import operations as server
from zkplan.errors import ZkplanError
from zkplan.protocol.core import claim as claiming
from zkplan.protocol.core import commit as committing
from zkplan.protocol.core import end_claims as ending
from zkplan.protocol.core import load
from zkplan.protocol.core import plan_life as control
from zkplan.protocol.core import plans_and_queues as look
from zkplan.protocol.core import workers as membership
from zkplan.protocol.core.add import NewTask
from zkplan.protocol.core.commit_part import Part
from zkplan.protocol.core.edges import outcome_in
from zkplan.protocol.core.load import Loaded
from zkplan.protocol.core.plan_indexes import list_active
from zkplan.protocol.core.plans_and_queues import readable_record
from zkplan.protocol.features import author as authoring
from zkplan.protocol.features.retry import reopen
from zkplan.protocol.fields import Unproven, require_proven
from zkplan.protocol.formats import ENVELOPE
from zkplan.protocol.layout import Paths
from zkplan.protocol.records import Dead, PlanRecord, State, control_from_bytes
from zkplan.protocol.requests import Create, Delete, Op, ReadChildren, ReadData, SetData
from zkplan.protocol.transactions import NO_ALLOWANCE, Registration

from .network import Client, Fiber, Network
from .sealing import Sealing
from .story import Violation

ROOT = "/z"
STEPS = 900
#: How likely the outsider acts between two requests of the others: one of these.
ACTS = (0.006, 0.02, 0.06, 0.2)
#: What the operator sets a plan to; None: he marks it ready.
STATES: tuple[State | None, ...] = ("paused", *(3 * ("running", None)), "cancelled")
Script = Generator[Any, Any, None]
#: How a failure begins.
FAILURE = ENVELOPE + b"E"
FORGED = (b'{"state":"running"}', b'{"when":1.0,"failed":0}', b"forged", b"")


class Run:
    """One run: authors, an operator, two workers, one who waits, and the outsider."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.network = Network(self.rng, ROOT)
        self.tree, self.paths = self.network.tree, Paths(ROOT)
        self.network.sealing = Sealing(seed, ROOT, self.network.read_now, alone=False)
        self.network.observer = self
        #: What honest clients wrote, by path and by the life of the plan.
        self.truth: dict[tuple[str, int], bytes] = {}
        #: What honest clients wrote, in order, and last into each znode as it is sealed.
        self.written: list[tuple[str, bytes]] = []
        self.last: dict[str, bytes] = {}
        #: What the outsider has seen: path and data.
        self.recorded: list[tuple[str, bytes]] = []
        self.clients: list[Client] = []
        self.judged = 0
        self._often = self.rng.choice(ACTS)
        #: Some of his deeds at a time: rare meetings need the others out of the way.
        self._deeds = self.rng.sample(self._all_deeds(), 3)
        for path in (ROOT, *(f"{ROOT}/{name}" for name in ("workers", "claims", "delayed"))):
            self.tree.apply(server.Create(path))
        self.tree.apply(server.Create(self.paths.active))
        for number in range(2):
            self._start(f"author{number}", self._author(f"p{number}"))
        for number in range(2):
            self._start(f"worker{number}", self._worker(f"w{number}"))
        self._start("operator", self._operator())
        self._start("waiter", self._waiter())
        self._start("retrier", self._retrier())

    def run(self) -> int:
        """Raises Violation. Gives how many uses were judged."""
        for _ in range(STEPS):
            if self.rng.random() < self._often:
                with suppress(server.TreeError):
                    self.rng.choice(self._deeds)()
            busy = [client for client in self.clients if client.queue]
            if not busy:
                break
            self.network.deliver(self.rng.choice(busy))
        return self.judged

    def _start(self, name: str, script: Script) -> None:
        client = self.network.connect(name)
        self.clients.append(client)
        self.network.start(client, name, script, {})

    # ---- what honest clients do

    def _author(self, name: str) -> Script:
        record = PlanRecord(name, name, 0.0, on_failure=self.rng.choice(("hold", "cascade")))
        number = yield from authoring.create_plan(self.paths, record)
        author = authoring.Author(self.paths.plan(number))
        author._uid = name
        tasks: list[NewTask] = []
        for index in range(self.rng.randint(2, 6)):
            deps: list[str | NewTask] = [
                self.rng.choice(tasks) for _ in range(self.rng.randint(0, min(2, len(tasks))))
            ]
            tasks.append(NewTask(f"{name}.{index}", "5000", f"{name}.{index}".encode(), deps))
        with suppress(ZkplanError):
            yield from author.add(tasks)
            yield from control.mark_ready(self.paths.plan(number))

    def _operator(self) -> Script:
        for _ in range(12):
            for plan in (yield from look.list_plans(self.paths)):
                state = self.rng.choice(STATES)
                path = self.paths.plan(plan)
                with suppress(ZkplanError):
                    yield from (
                        control.change_state(path, state)
                        if state is not None
                        else control.mark_ready(path)
                    )

    def _retrier(self) -> Script:
        for _ in range(30):
            for plan in (yield from look.list_plans(self.paths)):
                with suppress(ZkplanError):
                    yield from reopen(self.paths.plan(plan), 0.0)

    def _waiter(self) -> Script:
        for _ in range(60):
            for plan in (yield from look.list_plans(self.paths)):
                path = self.paths.plan(plan)
                with suppress(ZkplanError):
                    end, before = f"{path}/done", len(self.written)
                    was = self._ever(end)
                    found = yield from control.status(path)
                    if found.ended is not None:
                        since = [at for at, _ in self.written[before:]]
                        self._judge(bool(was) or end in since, f"{path} is not done")
                    for task in (yield ReadChildren(f"{path}/results")) or ():
                        yield from self._judge_outcome(path, task)

    def _judge_outcome(self, plan_path: str, task: str) -> Script:
        path, letter = f"{plan_path}/results/{task}", f"{plan_path}/dead/{task}"
        was, before = self._ever(path), len(self.written)
        node = yield ReadData(path)
        if node is None or isinstance(node.data, Unproven):
            return
        # He may put back an earlier failure with the dead letter that was made with it.
        stands = self.tree.get(letter)[0] if self.tree.exists(letter) is not None else None
        if stands is None or stands == self.last.get(letter):
            is_true = node.data in was or (path, node.data) in self.written[before:]
            self._judge(is_true, f"{path} is an earlier outcome")

    def _worker(self, name: str) -> Script:
        me = yield from membership.register(self.paths, name, b"{}", map(str, count()))
        while me is not None:
            plans = yield from list_active(self.paths)
            with suppress(ZkplanError):
                for plan in self.rng.sample(plans, len(plans)):
                    yield from self._work(me, plan)
            yield ReadData(ROOT)

    def _work(self, me: Registration, plan: str) -> Script:
        path = self.paths.plan(plan)
        node = yield ReadData(path)
        if node is None:
            return
        PlanRecord.from_bytes(node.data)
        found = yield from look.look(path)
        if found.state != "running":
            return
        ready = self._true(f"{path}/ready") or b"no state"
        self._judge(control_from_bytes(ready) == "running", f"{path} is told to run")
        made = yield from claiming.claim(me, plan, found.version, list(found.names or ())[:2])
        for item in (yield from load.load(made.claims, made.read)):
            try:
                for data in (item.record, *item.arguments):
                    require_proven(data)
                if item.refused is not None:
                    raise item.refused
                if item.damage:
                    raise ZkplanError(item.damage)
            except ZkplanError:
                yield from ending.hand_back([item.claim])
                continue
            self._judge_task(item, node.czxid)
            part = Part(item, b"|".join([b"out", item.record, *item.arguments]), True)
            fails = any(outcome_in(each).startswith(FAILURE) for each in item.arguments)
            plan_record = readable_record(node.data)
            if plan_record is not None and plan_record.on_failure == "cascade":
                fails = fails or self.rng.random() < 0.3
            if fails:
                claim = item.claim
                dead = Dead("5000", claim.n, claim.a, "t", "it fails", me.worker).to_bytes()
                failure = FAILURE + b"%d" % claim.n
                part = Part(item, failure, True, dead, holds=True, cascades=True)
            yield from committing.commit(me, [part], [], NO_ALLOWANCE)
            yield from control.finish(path, 0.0)

    # ---- the truth

    def applied(self, fiber: Fiber, ops: Sequence[Op], results: list[Any]) -> None:
        for op, result in zip(ops, results, strict=True):
            path = result if type(op) is Create else op.path
            # What an honest client has deleted may be put back there, while its plan lives.
            if type(op) is Delete and (path.endswith("/done") or "/results/" in path):
                self.truth.pop((path, self._life(path)), None)
            if type(op) is Delete:
                self.last.pop(path, None)
            if type(op) in (Create, SetData):
                self.written.append((path, op.data))  # type: ignore[union-attr]
                with suppress(server.TreeError):
                    self.last[path] = self.tree.get(path)[0]
                # An end is not believed while he has damaged the state, and is true all the same.
                if path.endswith("/done") or not isinstance(op.data, Unproven):  # type: ignore[union-attr]
                    self.truth[path, self._life(path)] = op.data  # type: ignore[union-attr]
                with suppress(server.TreeError):
                    self.recorded.append((path, self.tree.get(path)[0]))

    def expired(self, paths: list[str]) -> None: ...

    def _life(self, path: str) -> int:
        plan = "/".join(path.split("/")[:3])
        try:
            return self.tree.get(plan)[1].czxid if plan.startswith(f"{ROOT}/plan-") else 0
        except server.TreeError:
            return 0

    def _true(self, path: str) -> bytes | None:
        return self.truth.get((path, self._life(path)))

    def _ever(self, path: str) -> list[bytes]:
        """What is true there in each life of its plan: this client may mean an earlier one."""
        return [data for (at, _), data in self.truth.items() if at == path]

    def _judge(self, is_true: bool, told: str) -> None:
        self.judged += 1
        if not is_true:
            raise Violation(f"S20 {told}")

    def _judge_task(self, item: Loaded, life: int) -> None:
        """`life` is that of the plan when this worker last read it; it may be another by now."""
        path = item.claim.task_path
        lives = {life, self._life(path)}

        def is_true(at: str, data: bytes) -> bool:
            return any(self.truth.get((at, each)) == data for each in lives)

        self._judge(is_true(path, item.record), f"{path} is not what its author defined")
        # The numbers of the tasks that it waits for stand at the end of its definition. What a
        # commit sealed as the outcome of one of these is true, wherever it was delivered first.
        plan, count = path.rpartition("/")[0], len(item.arguments)
        sources = struct.unpack(f">{count}I", item.record[-4 * count :] if count else b"")
        for position, (argument, source) in enumerate(zip(item.arguments, sources, strict=True)):
            told = argument[:10] == b"%010d" % source and any(
                data == argument and each in lives and at.startswith(f"{plan}/") and "/arg-" in at
                for (at, each), data in self.truth.items()
            )
            self._judge(told, f"{path} has another argument at {position}")

    # ---- the outsider

    def _all_deeds(self) -> list[Callable[[], None]]:
        return [
            *(self._overwrite, self._overwrite, self._swap_edges, self._deliver, self._state),
            *(self._copy_plan, self._end, self._end, self._entry, self._outcome),
        ]

    def _swap_edges(self) -> None:
        edges = [at for at, _ in self._seen("/prov-") if at and self.tree.exists(at) is not None]
        if edges:
            one, other = self.rng.choice(edges), self.rng.choice(edges)
            mine, theirs = self.tree.get(one)[0], self.tree.get(other)[0]
            self.tree.apply(server.SetData(one, theirs))
            self.tree.apply(server.SetData(other, mine))

    def _seen(self, kind: str) -> list[tuple[str, bytes]]:
        return [each for each in self.recorded if kind in each[0]] or [("", b"forged")]

    def _put(self, path: str, data: bytes) -> None:
        make = server.SetData if self.tree.exists(path) is not None else server.Create
        self.tree.apply(make(path, data))

    def _overwrite(self) -> None:
        """Data of one znode are put into another of the same kind, or into any."""
        path, _ = self.rng.choice(self._seen("/plan-"))
        kind = path.rpartition("/")[2].rstrip("0123456789")
        _, data = self.rng.choice(self._seen(self.rng.choice((f"/{kind}", "/"))))
        if self.tree.exists(path) is not None and not path.endswith("/add-count"):
            self.tree.apply(server.SetData(path, self.rng.choice((data, data, *FORGED[2:]))))

    def _deliver(self) -> None:
        """An argument arrives that nobody delivered."""
        deps = [at for at, _ in self._seen("/dep-") if at and self.tree.exists(at) is not None]
        if deps:
            dep = self.rng.choice(deps)
            task = dep.rpartition("/")[0]
            _, data = self.rng.choice(self._seen("/arg-"))
            self._put(dep.replace("/dep-", "/arg-"), data)
            self.tree.apply(server.Delete(dep))
            for _ in range(2):
                self.tree.apply(server.SetData(f"{task}/ready", self.tree.get(f"{task}/ready")[0]))
            self._enter(task)

    def _state(self) -> None:
        """A plan is set to a state that it had, or made anew with it."""
        controls = [each for each in self._seen("/ready") if "/task-" not in each[0]]
        path, _ = self.rng.choice(controls or [("", b"")])
        if path and self.tree.exists(path) is not None:
            states = [data for at, data in controls if at == path]
            if self.rng.random() < 0.5:
                self.tree.apply(server.Delete(path))
                for data in states[: self.rng.randint(1, len(states))]:
                    self._put(path, data)
            else:
                self._put(path, self.rng.choice([*states, FORGED[0]]))
            self._put(f"{ROOT}/active/{path[-16:-6]}", b"")

    def _copy_plan(self) -> None:
        """A plan is made anew from what was recorded, as another one or in its old place."""
        source = self.rng.choice(self._seen("/plan-"))[0][: len(ROOT) + 16]
        if not source:
            return
        target = source
        if self.rng.random() < 0.5:
            target = self.tree.apply(server.Create(f"{ROOT}/plan-", b"", sequence=True))
        else:
            self._remove(source)
        last = dict(self.recorded)
        firsts = {at: data for at, data in reversed(self.recorded) if at.endswith("/ready")}
        without = self.rng.choice(("/owner", f"{source}/ready"))
        for path, data in sorted((last | firsts).items()):
            if path.startswith(source) and without not in path and "/owner" not in path:
                with suppress(server.TreeError):
                    self._put(target + path[len(source) :], data)
        for path in [at for at in last if at.startswith(source) and at.endswith("/ready")]:
            at = target + path[len(source) :]
            if "/task-" in path:
                with suppress(server.TreeError):
                    self.tree.apply(server.SetData(at, self.tree.get(at)[0]))
            else:
                for state in [data for each, data in self.recorded if each == path][1:]:
                    if self.tree.exists(at) is not None:
                        self._put(at, state)
        self._put(f"{ROOT}/active/{target[-10:]}", b"")

    def _remove(self, path: str) -> None:
        for name in self.tree.children(path)[0]:
            self._remove(f"{path}/{name}")
        self.tree.apply(server.Delete(path))

    def _end(self) -> None:
        plan = self.rng.choice(self._seen("/plan-"))[0][: len(ROOT) + 16]
        _, data = self.rng.choice(self._seen("/done"))
        self._put(f"{plan}/done", self.rng.choice((data, FORGED[1])))

    def _outcome(self) -> None:
        self._put(*self.rng.choice(self._seen("/results/")))

    def _entry(self) -> None:
        task = "/".join(self.rng.choice(self._seen("/task-"))[0].split("/")[:4])
        self._enter(task)

    def _enter(self, task: str) -> None:
        plan, _, number = task.rpartition("/task-")
        if number:
            n = self.rng.randint(0, 3)
            self._put(f"{plan}/runnable/5000-{number}.{n}.0", b"")
            self._put(f"{ROOT}/active/{plan[-10:]}", b"")
