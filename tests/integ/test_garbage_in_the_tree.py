"""Despite garbage in the tree healthy plans go on, and the garbage is reported once."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import Here, Run, note, notes, wait_until, working
from zkplan import Client, Plan, PlanNotFound, PlanStuck

from .foreign_znodes import KINDS, SILENT, ForeignZnodes, plan_tasks

#: Workers that serve the healthy plans, and what one of them may ask each second beside garbage:
#: its heartbeat, its claims nodes, its sweep of idle plans. Spinning, it asks thousands.
WORKERS, STEPS_PER_S = 2, 60
TOLD_S = 25.0


def fail_once(file: str) -> int:
    note(file, "ran")
    if len(notes(file)) == 1:
        raise RuntimeError("the first time")
    return 1


class Healthy:
    """Plans that need all of a worker: candidates, checks, claims nodes, delayed entries."""

    def __init__(self, client: Client, znodes: KazooClient, folder: Path) -> None:
        self.plans = [self._graph(client), self._retried(client, folder)]
        self.plans += [self._unpublished(client, znodes), self._taken_over(client, znodes)]

    def _graph(self, client: Client) -> Plan:
        with client.create_plan("graph") as plan:
            ones = [plan.add_task(lambda: 1) for _ in range(40)]
            plan.add_task(sum, [ones], name="sum")
        return plan

    def _retried(self, client: Client, folder: Path) -> Plan:
        with client.create_plan("retried") as plan:
            plan.add_task(fail_once, [str(folder / "ran")], retry_delay=0.05)
        return plan

    def _unpublished(self, client: Client, znodes: KazooClient) -> Plan:
        """Only the background check makes it run: nothing of it stands in an index."""
        plan = client.create_plan("unpublished")
        for _ in range(3):
            plan.add_task(int)
        for entry in znodes.get_children(f"{plan.path}/runnable"):
            znodes.delete(f"{plan.path}/runnable/{entry}")
        for number in plan_tasks(znodes, plan):
            path = f"{plan.path}/task-{number}/ready"
            znodes.delete(path)
            znodes.create(path, b"0")
        plan.mark_ready()
        return plan

    def _taken_over(self, client: Client, znodes: KazooClient) -> Plan:
        """Only who clears the claims node of a vanished worker makes it run."""
        plan = client.create_plan("taken over")
        task = plan.add_task(int)
        (entry,) = znodes.get_children(f"{plan.path}/runnable")
        znodes.delete(f"{plan.path}/runnable/{entry}")
        znodes.ensure_path(f"{client.root}/claims/vanished-{plan.number}")
        claim = f"{client.root}/claims/vanished-{plan.number}/{plan.number}-{task.number}.0.0"
        znodes.create(claim, b"5000.0")
        plan.mark_ready()
        return plan

    def wait(self) -> None:
        for plan in self.plans:
            assert plan.wait(60).state == "done", plan.name


#: The oldest plans are checked first, and only a check tells of what the last kind leaves.
ALL = KINDS[::-1]
#: Several kinds at once, because each test takes the seconds that a worker needs to come to rest.
GROUPS = [ALL[start::2] for start in range(2)]


@pytest.mark.usefixtures("quick_checks")
@pytest.mark.parametrize(
    "kinds",
    [*GROUPS, ALL],
    ids=["-".join(k.__name__[:8] for k in group) for group in GROUPS] + ["all"],
)
def test_healthy_plans_finish_beside_garbage_which_is_logged_once(
    kinds: list[Callable[[ForeignZnodes], None]],
    here: Here,
    zkplan_client: Client,
    znodes: KazooClient,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zkplan_client.prepare()
    seed = random.randrange(10**6)
    foreign = ForeignZnodes(zkplan_client, znodes, seed)
    for kind in kinds:
        known = len(foreign.wanted)
        kind(foreign)
        assert (len(foreign.wanted) == known) == (kind.__name__ in SILENT), kind
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first = Healthy(zkplan_client, znodes, tmp_path / "first")
    with ExitStack() as stack, caplog.at_level(logging.WARNING, logger="zkplan"):
        workers = [stack.enter_context(working(*here, grace=1.0)) for _ in range(WORKERS)]
        first.wait()
        second = Healthy(zkplan_client, znodes, tmp_path / "second")
        second.wait()
        deadline = time.monotonic() + TOLD_S
        wait_until(lambda: not untold(foreign, caplog) or time.monotonic() > deadline, "the end")
        assert untold(foreign, caplog) == [], f"(seed {seed})"
        monkeypatch.undo()  # at rest the checks come as seldom as usual
        rates = wait_until(lambda: quiet(workers), f"the workers rest (seed {seed})")
        assert max(rates) <= STEPS_PER_S
    told = Counter(record.getMessage() for record in caplog.records)
    assert max(told.values(), default=0) <= WORKERS, told.most_common(3)


def untold(foreign: ForeignZnodes, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What no worker has said yet, and has to."""
    said = [record.getMessage() for record in caplog.records]
    return [text for text in foreign.wanted if not any(text in message for message in said)]


def quiet(workers: list[zkplan.Worker]) -> list[float]:
    """The steps that each worker makes in a second; empty while one of them makes too many."""
    window_s = 2.0
    before = [worker.statistics().steps for worker in workers]
    threading.Event().wait(window_s)
    counts = [worker.statistics().steps for worker in workers]
    rates = [(now - then) / window_s for now, then in zip(counts, before, strict=True)]
    return rates if max(rates) <= STEPS_PER_S else []


@pytest.mark.either
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.slow if at % 5 else ()) for at, kind in enumerate(KINDS)],
    ids=lambda kind: kind.__name__,
)
def test_every_command_reports_garbage_without_a_traceback(
    kind: Callable[[ForeignZnodes], None],
    run: Run,
    zkplan_client: Client,
    znodes: KazooClient,
    tmp_path: Path,
) -> None:
    def check(*arguments: str) -> int:
        ran = run(*arguments)
        ran.out.encode(), ran.err.encode()
        assert ran.out or ran.err, arguments
        if ran.code == 1:
            assert "problems" in ran.out, arguments
        elif ran.code != 0:
            # The message names its object, or what a name that is not of a plan was taken for.
            number = arguments[2][-10:].lstrip("0")
            named = (arguments[2], f"plan {number} was", "there is no plan ")
            assert any(each in ran.err for each in named), ran.err
        return ran.code

    zkplan_client.prepare()
    kind(ForeignZnodes(zkplan_client, znodes, seed=1))
    assert check("plan", "ls") == check("worker", "ls") == 0
    root = zkplan_client.root
    for name in znodes.get_children(root):
        path = f"{root}/{name}"
        for output in ("table", "json"):
            check("plan", "show", path, "--output", output)
            check("task", "ls", path, "--output", output)
        check("plan", "check", path, "--no-repair")
        check("plan", "wait", path, "--timeout", "0.01")
        check("plan", "export", path, "--pause", "--out", str(tmp_path / name))
        check("plan", "retry", path)
        for task in znodes.get_children(path):
            check("task", "show", path, task)
        check("plan", "rm", path, "--yes")
    assert zkplan_client.plans() == [], "something withstood `rm`"


@pytest.mark.usefixtures("worker", "quick_looks")
def test_a_wait_for_a_plan_with_a_strange_znode_reports_it(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    with zkplan_client.create_plan() as plan:
        plan.add_task(int)
        # Before it is marked ready: a plan that has drained already is done, whatever comes then.
        znodes.create(f"{plan.path}/notes", b"not of zkplan")
    with pytest.raises(PlanStuck, match=r"can never drain.*notes: is not a znode of zkplan"):
        plan.wait(30)
    znodes.delete(f"{plan.path}/notes")
    assert plan.wait(30).state == "done"


def test_an_author_skips_numbers_that_foreign_znodes_have_taken(
    zkplan_client: Client, znodes: KazooClient
) -> None:
    first = zkplan_client.create_plan()
    znodes.create(f"{zkplan_client.root}/plan-{int(first.number) + 1:010d}")
    second = zkplan_client.create_plan()
    assert int(second.number) == int(first.number) + 2
    task = second.add_task(int)
    znodes.create(f"{second.path}/task-{int(task.number) + 2:010d}")
    assert int(second.add_task(int).number) == int(task.number) + 3


@pytest.mark.parametrize("name", ["add-ids", "add-count"])
def test_the_error_names_the_znode_that_a_plan_lacks(
    name: str, zkplan_client: Client, znodes: KazooClient
) -> None:
    plan = zkplan_client.create_plan()
    znodes.delete(f"{plan.path}/{name}")
    with pytest.raises(PlanNotFound, match=f"{plan.path} (has no `add-ids`|is being removed)"):
        plan.add_task(int)
