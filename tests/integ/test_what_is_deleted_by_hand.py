"""A znode deleted by hand is reported, and restored or decided on; no healthy task dies of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import TOP, Here, fail, plain_client, wait_until, working
from zkplan import Client, Plan, Task
from zkplan.protocol.layout import key_digest
from zkplan.protocol.requests import Create, Multi, Step

#: What happens to a plan after one deletion: here, workers or the check restore the znode.
MENDED = "mended"
#: The check names the task; it is skipped, and all others run to their ends.
DECIDED = "decided"
#: Nothing is lost, and nothing is to be done.
HARMLESS = "harmless"


def wait_for(file: str) -> str:
    wait_until(Path(file).exists, "the test lets it go on", 60)
    return "waited"


def joined(*values: object) -> list[object]:
    return list(values)


class Standing(NamedTuple):
    """A plan with tasks in every place, while a worker runs one of them."""

    client: Client
    znodes: KazooClient
    plan: Plan
    tasks: dict[str, Task]

    def at(self, task: str, child: str = "") -> str:
        """The znode of a task, or its first child whose name begins so."""
        path = self.tasks[task].path
        return f"{path}/{self.first(path, child)}" if child else path

    def below(self, folder: str, text: str) -> str:
        """The child of `folder`, below the root, whose name has this text."""
        path = f"{self.client.root}/{folder}"
        return f"{path}/{self.first(path, text)}"

    def first(self, path: str, text: str) -> str:
        return str(min(name for name in self.znodes.get_children(path) if text in name))

    def entry_of(self, task: str, folder: str) -> str:
        """Its entry in a folder of the root, or in one of the plan, which begins with `/`."""
        name = f"5000-{self.tasks[task].number}."
        if folder.startswith("/"):
            return self.in_plan(folder[1:], name)
        return self.below(folder, f"{self.plan.number}-{name}")

    def in_plan(self, folder: str, text: str) -> str:
        return self.below(f"plan-{self.plan.number}/{folder}", text)

    @property
    def claim(self) -> str:
        wanted = f"{self.plan.number}-{self.tasks['runs'].number}."
        paths = self.client.paths
        for worker in self.znodes.get_children(paths.claims):
            for name in self.znodes.get_children(paths.claims_of(worker)):
                if name.startswith(wanted):
                    return f"{paths.claims_of(worker)}/{name}"
        raise AssertionError("nothing is claimed")


class Deletion(NamedTuple):
    """A kind of znode: which one is deleted, what becomes of the plan, what the check says of it,
    which tasks are skipped after that, and which have no result of their own."""

    path: Callable[[Standing], str]
    becomes: str
    said: str = ""
    skipped: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def _decided(each: Standing) -> str:
    """What is left of a skip until a worker takes it up."""
    assert each.tasks["other"].skip("skipped")
    return each.at("other", "result")


def _cut(each: Standing, child: str) -> str:
    assert each.tasks["both"].skip("skipped")
    return each.at("both", child)


def _unpublished(each: Standing) -> str:
    """A complete task as it is between its last delivery and its publication."""
    ready = each.at("other", "ready")
    data, _ = each.znodes.get(ready)
    each.znodes.delete(ready)
    each.znodes.create(ready, data)
    return each.entry_of("other", "/queues/gpu")


#: Znodes of a plan, each deleted in a plan of its own.
OF_A_PLAN = {
    "queues/NAME/ENTRY": Deletion(
        lambda s: s.entry_of("other", "/queues/gpu"),
        *(MENDED, "{other}: its entry or claim was gone"),
    ),
    "queues/NAME": Deletion(
        lambda s: f"{s.plan.path}/queues/gpu", MENDED, "{other}: its entry or claim was gone"
    ),
    "queues": Deletion(
        lambda s: f"{s.plan.path}/queues", MENDED, "{other}: its entry or claim was gone"
    ),
    "runnable": Deletion(lambda s: f"{s.plan.path}/runnable", MENDED, "runnable"),
    "add-count": Deletion(lambda s: f"{s.plan.path}/add-count", MENDED, "add-count"),
    "add-ids": Deletion(lambda s: f"{s.plan.path}/add-ids", MENDED, "add-ids"),
    "results": Deletion(lambda s: f"{s.plan.path}/results", MENDED, "results"),
    "dead": Deletion(
        lambda s: f"{s.plan.path}/dead", MENDED, ": was gone, the task has failed for good"
    ),
    "dead/TASK": Deletion(
        lambda s: f"{s.plan.path}/dead/{s.tasks['dead'].number}",
        MENDED,
        ": was gone, the task has failed for good",
    ),
    "results/TASK": Deletion(lambda s: f"{s.plan.path}/results/{s.tasks['dead'].number}", HARMLESS),
    "claims/ID/CLAIM": Deletion(lambda s: s.claim, MENDED, "{runs}: its entry or claim was gone"),
    "task/owner": Deletion(lambda s: s.at("runs", "owner"), HARMLESS),
    "task/ready of one that runs": Deletion(
        lambda s: s.at("runs", "ready"), MENDED, "{runs}/ready: was gone"
    ),
    "task/ready of one that waits": Deletion(
        lambda s: s.at("both", "ready"), MENDED, "{both}/ready: was gone"
    ),
    "task/dep-": Deletion(
        lambda s: s.at("both", "dep-"), MENDED, "{both}/dep-0000000000: was gone"
    ),
    "task/dep- of the only edge": Deletion(
        lambda s: s.at("one", "dep-"), MENDED, "{one}/dep-0000000000: was gone"
    ),
    "task/prov-": Deletion(
        lambda s: s.at("runs", "prov-"), MENDED, "{both}/dep-0000000000: had no other end"
    ),
    "task/arg-": Deletion(
        lambda s: s.at("both", "arg-"),
        *(DECIDED, "{both}/arg-0000000001: was deleted", ("both",)),
    ),
    "task that runs": Deletion(
        lambda s: s.at("runs"),
        *(DECIDED, "{one}/dep-0000000000: waits for {runs}", ("both", "one"), ("runs",)),
    ),
    "task that waits": Deletion(lambda s: s.at("both"), MENDED, "leads to {both}", lost=("both",)),
    "task that is runnable": Deletion(lambda s: s.at("other"), HARMLESS, lost=("other",)),
    "task that is dead": Deletion(
        lambda s: s.at("dead"), MENDED, "{dead}: was deleted", lost=("dead",)
    ),
    "task that is delayed": Deletion(
        lambda s: s.at("later"), MENDED, "{later}: was deleted", lost=("later",)
    ),
    "task that is gated": Deletion(
        lambda s: s.at("gate"), MENDED, "{gate}: was deleted", lost=("gate",)
    ),
    "task/result": Deletion(_decided, HARMLESS),
    "task/result of one that was cut": Deletion(
        lambda s: _cut(s, "result"),
        *(DECIDED, "{both}/result: was deleted", ("both",)),
    ),
    "task/cut": Deletion(lambda s: _cut(s, "cut"), HARMLESS, lost=("both",)),
    "task/takes-failures": Deletion(lambda s: s.at("one", "takes-failures"), HARMLESS),
    "task/log-": Deletion(lambda s: s.at("dead", "log-"), HARMLESS),
    "task/gate": Deletion(
        lambda s: s.at("gate", "gate"), DECIDED, "{gate}/gate: is missing", ("gate",)
    ),
    "gates/ENTRY": Deletion(
        lambda s: s.entry_of("gate", "gates"), MENDED, "{gate}: its entry under gates was gone"
    ),
    "delayed/ENTRY": Deletion(
        lambda s: s.entry_of("later", "delayed"), MENDED, "{later}: its entry or claim was gone"
    ),
    "history": Deletion(lambda s: f"{s.plan.path}/history", HARMLESS),
    "history/untold": Deletion(lambda s: f"{s.plan.path}/history/untold", HARMLESS),
    "history/seg-": Deletion(lambda s: s.in_plan("history", "-"), HARMLESS),
    "active/PLAN": Deletion(
        lambda s: f"{s.client.paths.active}/{s.plan.number}", MENDED, "its entry in the index"
    ),
    "keys/DIGEST": Deletion(
        lambda s: f"{s.client.paths.keys}/{key_digest(s.plan.name)}", MENDED, "the key did not"
    ),
    "limits/NAME": Deletion(
        lambda s: f"{s.client.root}/limits/{s.plan.name}",
        DECIDED,
        "is missing, so tasks that name it do not run",
    ),
    "limits/plan-NUMBER": Deletion(
        lambda s: f"{s.client.root}/limits/plan-{s.plan.number}",
        DECIDED,
        "is missing: a check puts it back once no task of the plan runs",
    ),
    "limits/NAME/permit-I": Deletion(
        lambda s: f"{s.client.root}/limits/{s.plan.name}/permit-0", HARMLESS
    ),
    "ready": Deletion(lambda s: f"{s.plan.path}/ready", DECIDED, "ready: was deleted"),
    "runnable/ENTRY": Deletion(
        lambda s: s.entry_of("limited", "/runnable"),
        *(MENDED, "{limited}: its entry or claim was gone"),
    ),
    "claims/ID/pending-UID": Deletion(_unpublished, MENDED, "{other}"),
    "results/TASK of one that has finished": Deletion(
        lambda s: f"{s.plan.path}/results/{s.tasks['quick'].number}", HARMLESS
    ),
    "add-ids/UID-COUNT": Deletion(lambda s: s.in_plan("add-ids", "-1"), HARMLESS),
    "add-ids/key-DIGEST": Deletion(lambda s: s.in_plan("add-ids", "key-"), HARMLESS),
}


def _create(path: str) -> Step[None]:
    yield Multi([Create(path)])


def stand(client: Client, znodes: KazooClient, name: str, go_on: Path) -> Standing:
    client.set_limit(name, 1)
    with client.create_plan(name, key=name, retry_delay=1000.0, max_running=9) as plan:
        tasks = {
            "runs": plan.add_task(wait_for, [str(go_on)], limits=[name], keep=True),
            "quick": plan.add_task(int, key="quick", keep=True),
            "dead": plan.add_task(fail, attempts=1),
            "later": plan.add_task(fail, attempts=2),
            "other": plan.add_task(int, queue="gpu", keep=True),
            "limited": plan.add_task(int, limits=[name], keep=True),
            "gate": plan.add_task(zkplan.when(f"{client.root}/schedules/open")),
        }
        feeds = [tasks["runs"], tasks["quick"]]
        tasks["both"] = plan.add_task(joined, feeds, queue="gpu", keep=True)
        tasks["one"] = plan.add_task(joined, [tasks["runs"]], run_if="all_finished", keep=True)
    return Standing(client, znodes, plan, tasks)


def is_standing(each: Standing) -> bool:
    wanted = ("running", "finished", "dead", "delayed", "runnable", "runnable", "gated", "waiting")
    return tuple(task.state() for task in each.tasks.values()) == (*wanted, "waiting")


#: Znodes of a plan that has failed, each deleted in a plan of its own; then that is retried.
OF_A_FAILED_PLAN = {
    "done": Deletion(lambda s: f"{s.plan.path}/done", MENDED, "add-count"),
    "failed/PLAN": Deletion(
        lambda s: f"{s.client.paths.failed}/{s.plan.number}", MENDED, "no list of failed plans"
    ),
    "dead of a failed plan": Deletion(
        lambda s: f"{s.plan.path}/dead", MENDED, ": was gone, the task has failed for good"
    ),
    "dead/TASK of a failed plan": Deletion(
        lambda s: f"{s.plan.path}/dead/{s.tasks['after'].number}",
        *(MENDED, ": was gone, the task has failed for good"),
    ),
    "results/TASK of a failed plan": Deletion(
        lambda s: f"{s.plan.path}/results/{s.tasks['dead'].number}", HARMLESS
    ),
    "task of a failed plan": Deletion(
        lambda s: s.at("after"), MENDED, "{after}: was deleted", lost=("after",)
    ),
    "task/retry-N": Deletion(lambda s: s.at("dead", "retry-"), HARMLESS),
}


def there(file: str) -> str:
    return Path(file).read_text()


def fall(client: Client, znodes: KazooClient, name: str, go_on: Path) -> Standing:
    with client.create_plan(name, on_failure="cascade", attempts=1) as plan:
        tasks = {"dead": plan.add_task(there, [str(go_on)], keep=True)}
        tasks["after"] = plan.add_task(joined, [tasks["dead"]], keep=True)
    return Standing(client, znodes, plan, tasks)


@pytest.mark.timeout(120)
def test_each_kind_of_znode_of_a_failed_plan_may_be_deleted(
    zkplan_client: Client, here: Here, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = tmp_path / "go on"
    with working(*here), plain_client(here[0]) as znodes:
        plans = {k: fall(zkplan_client, znodes, k, go_on) for k in OF_A_FAILED_PLAN}
        for kind, each in plans.items():
            wait_until(each.plan.is_drained, f"the plan for {kind} has failed")
            assert each.plan.retry() == 2
        for kind, deletion in OF_A_FAILED_PLAN.items():
            wait_until(plans[kind].plan.is_drained, f"the plan for {kind} has failed again")
            znodes.delete(deletion.path(plans[kind]), recursive=True)
            _said(kind, plans[kind], deletion, caplog)
        go_on.write_text("there")
        for kind, deletion in OF_A_FAILED_PLAN.items():
            each = plans[kind]
            wait_until(each.plan.is_drained, f"the plan for {kind} has ended")
            assert znodes.exists(f"{zkplan_client.paths.failed}/{each.plan.number}"), kind
            assert each.plan.retry() == 2 - len(deletion.lost), kind
            assert each.plan.wait(30).state == "done", kind
            assert each.tasks["dead"].result(30) == "there", kind
            assert deletion.lost or each.tasks["after"].result(30) == ["there"], kind


#: Znodes of a root: those of plans are restored, the others return when they are needed.
OF_A_ROOT = {
    "workers": MENDED,
    "workers/ID": HARMLESS,
    "claims": MENDED,
    "claims/ID": MENDED,
    "delayed": MENDED,
    "gates": MENDED,
    "active": HARMLESS,
    "keys": MENDED,
    "schedules": HARMLESS,
    "schedules/NAME": HARMLESS,
    "schedules/NAME/next-UID": DECIDED,
    "limits": DECIDED,
    "failed": HARMLESS,
    "bounds": HARMLESS,
}


@pytest.mark.timeout(120)
def test_each_kind_of_znode_of_a_plan_may_be_deleted(
    zkplan_client: Client, here: Here, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with ExitStack() as stack:
        znodes = stack.enter_context(plain_client(here[0]))
        stack.enter_context(working(*here, threads=len(OF_A_PLAN) + 4))
        plans = {
            kind: stand(zkplan_client, znodes, f"p{index}", tmp_path / "go on")
            for index, kind in enumerate(OF_A_PLAN)
        }
        for kind, each in plans.items():
            wait_until(partial(is_standing, each), f"the plan for {kind} stands")
        for kind, deletion in OF_A_PLAN.items():
            znodes.delete(deletion.path(plans[kind]), recursive=True)
        for kind, deletion in OF_A_PLAN.items():
            _check(kind, plans[kind], deletion, caplog)
        (tmp_path / "go on").touch()
        zkplan_client.schedule("yearly", "@yearly", abs, [1])
        zkplan_client.transport.run(_create(f"{zkplan_client.root}/schedules/open"))
        stack.enter_context(working(*here, of_worker={"queues": ["gpu"]}))
        for kind, deletion in OF_A_PLAN.items():
            _run_to_its_end(kind, plans[kind], deletion)
    _only_what_fails_is_dead(caplog)


@pytest.mark.timeout(120)
def test_each_kind_of_znode_of_a_root_may_be_deleted(
    here: Here, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hosts, top = here
    with ExitStack() as stack:
        znodes = stack.enter_context(plain_client(hosts))
        plans: dict[str, Standing] = {}
        workers: dict[str, zkplan.Worker] = {}
        for kind in OF_A_ROOT:
            client = stack.enter_context(zkplan.connect(hosts, f"{top}/{kind.replace('/', '-')}"))
            client.set_retention(1e6)
            client.schedule("yearly", "@yearly", abs, [1])
            client.transport.run(_create(client.paths.failed))
            workers[kind] = stack.enter_context(working(hosts, client.root))
            plans[kind] = stand(client, znodes, "p", tmp_path / "go on")
        for kind, each in plans.items():
            wait_until(partial(is_standing, each), f"the plan for {kind} stands")
        for kind, each in plans.items():
            name = kind.replace("NAME", "yearly").partition("/next-")[0]
            path = f"{each.client.root}/{re.sub('ID$', workers[kind].id, name)}"
            if "next-" in kind:
                path = each.below(name, "next-")
            znodes.delete(path, recursive=True)
        for kind, each in plans.items():
            _check(kind, each, Deletion(str, OF_A_ROOT[kind]), caplog)
        (tmp_path / "go on").touch()
        for kind, each in plans.items():
            if OF_A_ROOT[kind] == DECIDED and kind.startswith("schedules"):
                with pytest.raises(zkplan.errors.ScheduleNotFound, match="add it again"):
                    each.client.find_schedule("yearly")
            assert each.client.schedule("yearly", "@yearly", abs, [1]).info().next, kind
            each.client.transport.run(_create(f"{each.client.root}/schedules/open"))
            gpu = working(hosts, each.client.root, of_worker={"queues": ["gpu"]})
            stack.enter_context(gpu)
        for kind, each in plans.items():
            _run_to_its_end(kind, each, Deletion(str, OF_A_ROOT[kind]))
    _only_what_fails_is_dead(caplog)


def test_the_manual_says_what_happens_for_each_kind_of_deleted_znode() -> None:
    told = (TOP / "docs" / "operate" / "operating.md").read_text("utf-8")
    rows = re.findall(r"^\| (mended|decided|harmless) \| [^|]+ \| ([^|]+) \|$", told, re.MULTILINE)
    said = {kind.replace("`", ""): becomes for becomes, kinds in rows for kind in kinds.split(", ")}
    of_plans = OF_A_PLAN | OF_A_FAILED_PLAN
    assert said == {kind: each.becomes for kind, each in of_plans.items()} | OF_A_ROOT


@pytest.mark.timeout(60)
def test_a_whole_plan_may_be_deleted(
    zkplan_client: Client, here: Here, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with working(*here), plain_client(here[0]) as znodes:
        each = stand(zkplan_client, znodes, "p", tmp_path / "go on")
        wait_until(partial(is_standing, each), "the plan stands")
        znodes.delete(each.plan.path, recursive=True)
        with pytest.raises(zkplan.errors.PlanNotFound):
            each.plan.wait(10)
        (tmp_path / "go on").touch()
        again = zkplan_client.create_plan("p", key="p")
        assert again.number != each.plan.number
        again.add_task(int)
        again.mark_ready()
        assert again.wait(30).state == "done"
    _only_what_fails_is_dead(caplog)


def _check(kind: str, each: Standing, deletion: Deletion, caplog: pytest.LogCaptureFixture) -> None:
    _said(kind, each, deletion, caplog)
    if kind == "ready":
        each.plan.mark_ready()
    for name in deletion.skipped:
        assert each.tasks[name].skip("skipped"), (kind, name)
    each.client.set_limit(each.plan.name, 1)
    each.tasks["added"] = each.plan.add_task(int, keep=True)


def _said(kind: str, each: Standing, deletion: Deletion, caplog: pytest.LogCaptureFixture) -> None:
    """The check says what was deleted, and is content once it is mended."""
    found = [each.plan.check(False), each.plan.check(), each.plan.check()]
    said = [
        *(line for report in found for line in report.problems + report.mended),
        *(line for report in found for line in report.created + report.published),
        # A worker may have mended it before.
        *(line for line in caplog.messages if line.startswith(f"{each.plan.path}: ")),
    ]
    names = {name: f"task-{task.number}" for name, task in each.tasks.items()}
    assert deletion.said.format(**names) in "\n".join(said), kind
    if deletion.becomes != DECIDED:
        assert not each.plan.check().problems, kind


def _only_what_fails_is_dead(caplog: pytest.LogCaptureFixture) -> None:
    dead = [line for line in caplog.messages if "is out of attempts" in line]
    assert [line for line in dead if not line.startswith("fail of")] == []


def _has_no_problem(plan: Plan) -> bool:
    return not plan.check().problems


def _has_been_skipped(task: Task) -> bool:
    return task.skip() or task.state() == "finished"


def _run_to_its_end(kind: str, each: Standing, deletion: Deletion) -> None:
    tasks = each.tasks
    for name in ("dead", "later"):
        wait_until(partial(_has_been_skipped, tasks[name]), kind)
    if deletion.becomes == DECIDED:
        wait_until(partial(_has_no_problem, each.plan), kind)
    each.plan.wait(60)
    results = {"runs": "waited", "both": ["waited", 0], "one": ["waited"], "other": 0, "limited": 0}
    results["added"] = 0
    for name, result in results.items():
        if name in deletion.skipped:
            result = "skipped"
        if name not in deletion.lost:
            assert tasks[name].result(30) == result, (kind, name)
