"""The cost of more pending tasks: the rate of execution, memory, and the price of `status()`."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import zkplan
from zkplan.processes import WatchedProcess
from zkplan.protocol.core import plan_life as control
from zkplan.protocol.requests import ReadMany

from . import machine, shapes
from .pool import wait_until
from .rows import Row, Target, server_ratios
from .suite import Bench
from .turns import by_turns

#: Tasks that are executed at either size while `pending` others wait after them.
MEASURED, MEASURED_QUICK = 20_000, 100
PENDING, PENDING_QUICK = (10_000, 300_000), (200, 1000)
RATE_KEPT_MIN = 0.9
#: The most memory of a worker at its peak, in millions of bytes.
WORKER_MB_MAX = 64.0
MB_OF_MIB = 2**20 / 1e6
#: Memory counts as flat if it grows by at most this factor from the smaller plan to the larger.
MEMORY_GROWTH_MAX = 1.1
STATUS_CALLS = 200
_LOOK_S = 0.02
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Growth:
    """One run with at least `pending` tasks after the measured ones; memory in MiB.

    The worker's and the waiter's memory is read when the measured tasks are finished; the peak
    includes the memory that a listing of all runnable tasks takes for a moment.
    """

    pending: int
    rate: float
    submission_rate: float
    worker_mib: float
    worker_peak_mib: float
    waiter_mib: float
    waiter_peak_mib: float
    status_requests: int
    status_reads: int
    status_us: float


def growth(benches: Sequence[Bench]) -> tuple[list[Row], dict[str, list[Growth]]]:
    """Run both sizes on every server in turns. The rows judge the larger by the smaller one."""
    first = benches[0]
    sizes = first.pending or (PENDING_QUICK if first.quick else PENDING)
    sides = {
        (bench.server, pending): partial(_turn, bench, pending, sizes[0])
        for bench in benches
        for pending in sizes
    }
    runs = by_turns(sides, first.runs)
    rows: list[Row] = []
    medians: dict[str, list[Growth]] = {}
    for bench in benches:
        of_server = [runs[bench.server, pending] for pending in sizes]
        medians[bench.server] = [_median(found) for found in of_server]
        every = [asdict(run) for found in of_server for run in found]
        is_judged = bench.is_judged and first.pending is None
        rows += rows_of(bench.server, medians[bench.server], every, is_judged)
    rates = [row for row in rows if row.unit == "tasks/s"]
    return rows + server_ratios(rates, not first.quick and first.pending is None), medians


def _turn(bench: Bench, pending: int, least: int, turn: int) -> Growth:
    # The smaller size is enough to warm up.
    run = _run(bench, pending if turn else least)
    bench.tell(
        f"{bench.server}: {run.pending:,} pending: {run.rate:,.0f} tasks/s, "
        f"worker {run.worker_mib:.0f} MiB, waiter {run.waiter_mib:.0f} MiB"
        + ("" if turn else ", warm-up")
    )
    return run


def _median(runs: list[Growth]) -> Growth:
    columns = [asdict(run) for run in runs]
    return Growth(**{name: median(column[name] for column in columns) for name in columns[0]})


def rows_of(
    server: str, medians: Sequence[Growth], runs: list[dict[str, object]], is_judged: bool
) -> list[Row]:
    """The rows of one server. `medians` has the smaller and the larger size."""
    least, most = medians
    rows = [
        Row(f"growth: {run.pending:,} pending", "tasks/s", execution=run.rate) for run in medians
    ]
    for row, run in zip(rows, medians, strict=True):
        row.submission = run.submission_rate
    ratio = Row("growth: rate kept, most / least", "ratio", execution=most.rate / least.rate)
    ratio.runs = runs
    large, small = (run.worker_peak_mib * MB_OF_MIB for run in (most, least))
    worker = Row("growth: memory of a worker, peak", "MB", total=large)
    worker.note = f"{small:.0f} MB with {least.pending:,} pending"
    judged = [
        (ratio, Target(execution=RATE_KEPT_MIN)),
        (worker, Target(total=WORKER_MB_MAX, higher=False)),
    ]
    flat = Target(total=MEMORY_GROWTH_MAX, higher=False)
    for who, large, small in (
        ("waiting client", most.waiter_mib, least.waiter_mib),
        ("waiting client, peak", most.waiter_peak_mib, least.waiter_peak_mib),
    ):
        note = f"{large:.0f} and {small:.0f} MiB"
        memory = Row(f"growth: memory of a {who}", "ratio", total=large / (small or 1.0), note=note)
        judged.append((memory, flat))
    reads = Row("growth: reads of status()", "reads", total=most.status_reads)
    reads.note = f"{most.status_us:.0f} and {least.status_us:.0f} microseconds"
    judged.append((reads, Target(total=least.status_reads, higher=False)))
    for row, target in judged:
        rows.append(row)
        if is_judged:
            row.target, row.met = str(target), target.met(row.total, row.execution)
    for row in rows:
        row.server = server
    return rows


def _run(bench: Bench, pending: int) -> Growth:
    # Each run gets new processes, because a process keeps the memory that a larger plan took.
    measured = MEASURED_QUICK if bench.quick else MEASURED
    with bench.pool() as pool:
        plan = pool.client.create_plan(f"{pending:,} pending")
        began = time.perf_counter()
        plan.add_tasks(shapes.independent(measured + pending).build())
        submission_s = time.perf_counter() - began
        with _waiter(bench, plan) as waiter:
            marked = time.perf_counter()
            plan.mark_ready()
            finished, seconds = _wait_finished(plan, measured, marked)
            workers = [machine.memory_mib(pid) for pid in pool.pids]
            waiting = machine.memory_mib(waiter.pid)
            pool.require_running()
            # Pause the workers to measure what status() costs. A small plan may be done by then.
            with suppress(zkplan.PlanDrained):
                plan.pause()
            requests, reads = _status_cost(plan)
            status_us = _status_us(plan)
            plan.remove()
    return Growth(
        pending=pending,
        # Both numbers are of one instant, so the interval between looks does not matter.
        rate=finished / seconds,
        submission_rate=(measured + pending) / submission_s,
        worker_mib=max(now for now, _ in workers),
        worker_peak_mib=max(peak for _, peak in workers),
        waiter_mib=waiting[0],
        waiter_peak_mib=waiting[1],
        status_requests=requests,
        status_reads=reads,
        status_us=status_us,
    )


def _wait_finished(plan: zkplan.Plan, measured: int, marked: float) -> tuple[int, float]:
    """The finished tasks, and the seconds since `marked`, once at least `measured` are finished."""
    deadline = marked + _TIMEOUT_S
    while True:
        status = plan.status()
        now = time.perf_counter()
        if status.finished >= measured:
            return status.finished, now - marked
        if now > deadline:
            raise zkplan.WaitTimeout(
                f"{plan.path}: {status.finished} of {measured} tasks finished in {_TIMEOUT_S:g} s"
            )
        time.sleep(_LOOK_S)


def _status_cost(plan: zkplan.Plan) -> tuple[int, int]:
    """The requests of one `status()`, and the reads in them."""
    step = control.status(plan.path)
    requests = reads = 0
    answer: object = None
    while True:
        try:
            request = step.send(answer)
        except StopIteration:
            return requests, reads
        requests += 1
        reads += len(request.reads) if isinstance(request, ReadMany) else 1
        answer = plan.client.transport.ask(request)


def _status_us(plan: zkplan.Plan) -> float:
    taken = []
    for _ in range(STATUS_CALLS):
        began = time.perf_counter()
        plan.status()
        taken.append(time.perf_counter() - began)
    return median(taken) * 1e6


@contextmanager
def _waiter(bench: Bench, plan: zkplan.Plan) -> Iterator[WatchedProcess]:
    """A process that waits for the plan, and has begun its wait."""
    command = [sys.executable, "-m", "benchmarks.waiter", "--hosts", bench.hosts]
    command += ["--root", plan.client.root, "--plan", plan.path]
    with tempfile.TemporaryDirectory(prefix="zkplan-benchmark-") as folder:
        log = Path(folder) / "waiter.log"
        process = WatchedProcess(command, log)
        try:
            if not wait_until(lambda: "waiting" in log.read_text() or not process.is_running(), 30):
                raise RuntimeError("the waiting client did not start within 30 s")
            if not process.is_running():
                raise RuntimeError(f"the waiting client ended: {log.read_text()[-2000:]}")
            yield process
        finally:
            process.end(0)
