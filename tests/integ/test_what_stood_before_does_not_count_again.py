"""An attacker without a key puts earlier data back into the same znode.

The table says of each kind of znode what follows. At 8aed3c5c each attack that is refused here
succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.every_znode import documented
from tests.tools.support import TOP, Here, Run, key_file, secret_of, wait_until, working
from zkplan import Client, Plan
from zkplan.errors import PayloadUndecodable

from .serving import serving

WAIT_S = 30.0
REFUSED = "refused"
#: The znode never held anything else, or always holds the same.
ONCE = "written once"
#: Its name or its version counts, or it has no data: it says when something runs, never what.
OPEN = "names and counts"
PROVEN_ELSEWHERE = "no key covers it, and nobody acts on it"
# These are the words of docs/operate/security.md.
OLD_KEY = "a key names a plan that had it before, as long as that plan stands"
OLD_SCHEDULE = "a schedule has an earlier definition, and is paused"
OLD_LETTER = (
    "a failure that was retried is reported again, with the dead letter that was made with it, or "
    "reaches the tasks that take failures"
)
OLD_GATE = "a gate that was opened and then retried is open again, with what it had found"
OLD_TASK = "a finished task runs again, with its own arguments"
OLD_HISTORY = "the history and the logs show entries twice, or lack the last ones"
CANNOT = (OLD_KEY, OLD_SCHEDULE, OLD_LETTER, OLD_GATE, OLD_TASK, OLD_HISTORY)
ROOMS = (
    *("workers", "idle", "claims", "delayed", "limits", "active", "failed", "schedules"),
    "keys",
)
OF_PLAN = ("add-count", "add-ids", "runnable", "queues", "dead", "results")
MARKS = ("ready", "owner", "delivered", "incomplete", "started-N", "retry-N", "takes-failures")
TABLE: dict[str, str] = {
    **dict.fromkeys(("", *(f"/{room}" for room in ROOMS)), OPEN),
    **dict.fromkeys(("/workers/ID", "/workers/service.ID"), REFUSED),
    **dict.fromkeys(("/idle/GROUP-ID", "/claims/ID", "/claims/service.ID"), OPEN),
    **dict.fromkeys(("/claims/lease-MILLISECONDS.RANDOM", "/claims/ID/pending-UID"), OPEN),
    **dict.fromkeys(("/claims/ID/PLAN-TASK.N.UID", "/delayed/DUE-PLAN-RANK-TASK.N.A"), OPEN),
    **dict.fromkeys(("/active/PLAN", "/failed/PLAN", "/limits/NAME/permit-I"), OPEN),
    **dict.fromkeys(("/limits/NAME", "/bounds", "/schedules/NAME/next-UID"), REFUSED),
    **dict.fromkeys(("/gates", "/gates/PLAN-RANK-TASK.N.A"), PROVEN_ELSEWHERE),
    "/schedules/NAME": OLD_SCHEDULE,
    "/keys/DIGEST": OLD_KEY,
    "/plan-NUMBER": ONCE,
    **dict.fromkeys(("/plan-NUMBER/ready", "/plan-NUMBER/done"), REFUSED),
    **dict.fromkeys([f"/plan-NUMBER/{name}" for name in OF_PLAN], OPEN),
    **dict.fromkeys([f"/plan-NUMBER/add-ids/{name}-UID" for name in ("author",)], OPEN),
    "/plan-NUMBER/add-ids/UID-COUNT": OPEN,
    "/plan-NUMBER/add-ids/key-DIGEST": ONCE,
    "/plan-NUMBER/add-ids/update-DIGEST": ONCE,
    "/plan-NUMBER/add-ids/shared-RANDOM.I": ONCE,
    "/plan-NUMBER/runnable/RANK-TASK.N.A": OPEN,
    **dict.fromkeys([f"/plan-NUMBER/queues/NAME{rest}" for rest in ("", "/RANK-TASK.N.A")], OPEN),
    "/plan-NUMBER/dead/TASK": OLD_LETTER,
    "/plan-NUMBER/results/TASK": REFUSED,
    "/plan-NUMBER/history": OLD_HISTORY,
    "/plan-NUMBER/history/untold": OPEN,
    "/plan-NUMBER/history/seg-NUMBER": OLD_HISTORY,
    "/plan-NUMBER/history/merged-FIRST-LAST.BYTES": OLD_HISTORY,
    "/plan-NUMBER/task-NUMBER": OLD_TASK,
    **dict.fromkeys([f"/plan-NUMBER/task-NUMBER/{name}" for name in MARKS], OPEN),
    **dict.fromkeys([f"/plan-NUMBER/task-NUMBER/{n}" for n in ("cut", "dep-POSITION")], OPEN),
    "/plan-NUMBER/task-NUMBER/prov-NUMBER": OPEN,
    "/plan-NUMBER/task-NUMBER/arg-POSITION": OLD_GATE,
    "/plan-NUMBER/task-NUMBER/gate": ONCE,
    "/plan-NUMBER/task-NUMBER/log-NUMBER": OLD_HISTORY,
    "/plan-NUMBER/task-NUMBER/result": OLD_LETTER,
    **dict.fromkeys([f"/plan-NUMBER/task-NUMBER/{n}" for n in ("adds", "adds-N-I")], ONCE),
    "/plan-NUMBER/task-NUMBER/added-I": ONCE,
}


@pytest.fixture
def sealing(here: Here) -> Iterator[Client]:
    """A client with a key; `znodes` is the one without."""
    with zkplan.connect(*here, secret=secret_of("ours")) as client:
        yield client


def fails_before(file: str) -> str:
    if not Path(file).exists():
        raise ValueError("not yet")
    return "now"


def data_of(znodes: KazooClient, path: str) -> bytes:
    data: bytes = znodes.get(path)[0]
    return data


def test_the_table_names_each_kind_of_znode_and_the_docs_what_is_not_refused() -> None:
    assert TABLE.keys() == documented().keys()
    page = " ".join((TOP / "docs" / "operate" / "security.md").read_text("utf-8").split())
    assert [words for words in CANNOT if words not in page] == []
    assert set(CANNOT) == set(TABLE.values()) - {REFUSED, ONCE, OPEN, PROVEN_ELSEWHERE}


def failed_once(sealing: Client, here: Here, tmp_path: Path, on_failure: Any) -> Plan:
    """A plan with a dead task, which succeeds when it is retried."""
    with sealing.create_plan(on_failure=on_failure, attempts=1) as plan:
        plan.add_task(fails_before, [str(tmp_path / "now")], keep=True)
    with working(*here, secret=secret_of("ours")):
        wait_until(lambda: plan.status().state == "failed", "it has failed")
    (tmp_path / "now").touch()
    return plan


@pytest.mark.parametrize("on_failure", ["hold", "cascade"])
@pytest.mark.parametrize("when", ["it runs again", "it has succeeded"])
def test_a_replayed_failure_from_before_a_retry_is_not_reported(
    on_failure: Any, when: str, sealing: Client, here: Here, znodes: KazooClient, tmp_path: Path
) -> None:
    plan = failed_once(sealing, here, tmp_path, on_failure)
    ((number, _),) = plan.dead()
    path = f"{plan.path}/results/{number}"
    failure = data_of(znodes, path)
    plan.retry()
    if when == "it has succeeded":
        with working(*here, secret=secret_of("ours")):
            assert plan.task(number).result(WAIT_S) == "now"
            plan.wait(WAIT_S)
        znodes.set(path, failure)
    else:
        znodes.create(path, failure)
    for reads in (plan.task(number).result, lambda _: plan.results([plan.task(number)])):
        with pytest.raises(PayloadUndecodable, match="put back after a retry"):
            reads(1)


@pytest.mark.parametrize("state", ["as it is", "damaged", "made anew"])
def test_a_replayed_end_from_before_a_retry_is_not_reported(
    state: str, sealing: Client, here: Here, znodes: KazooClient, tmp_path: Path
) -> None:
    plan = failed_once(sealing, here, tmp_path, "cascade")
    wait_until(plan.is_drained, "it has ended")
    end, ready = data_of(znodes, f"{plan.path}/done"), f"{plan.path}/ready"
    draft = sealing.create_plan()
    draft.mark_ready()
    first = data_of(znodes, ready)
    plan.retry()
    if state == "damaged":
        znodes.set(ready, b"damaged")
    elif state == "made anew":
        znodes.delete(ready)
        znodes.create(ready, first)
    znodes.create(f"{plan.path}/done", end)
    with zkplan.connect(*here, secret=secret_of("ours")) as another:
        for client in (sealing, another):
            found = client.plan(plan.path)
            with pytest.raises(PayloadUndecodable, match=r"(done|ready) is not used"):
                found.wait(1)
            assert found.status().ended is None


def test_the_end_of_a_retried_plan_is_reported(sealing: Client, here: Here, tmp_path: Path) -> None:
    plan = failed_once(sealing, here, tmp_path, "cascade")
    wait_until(plan.is_drained, "it has ended")
    plan.retry()
    with working(*here, secret=secret_of("ours")):
        assert plan.wait(WAIT_S).state == "done"
    assert sealing.plan(plan.path).status().retried == 1


Settings = tuple[
    str, Callable[[Client], object], Callable[[Client], object], Callable[[Client], Any]
]
SETTINGS: dict[str, Settings] = {
    "a limit": (
        "limits/db",
        lambda client: client.set_limit("db", 7),
        lambda client: client.set_limit("db", 1),
        lambda client: [(each.size, bool(each.unread)) for each in client.limits()],
    ),
    "the bounds": (
        "bounds",
        lambda client: client.set_retention(1.0),
        lambda client: client.set_retention(1e6),
        lambda client: refused(client.bounds),
    ),
}


def refused(read: Callable[[], object]) -> object:
    try:
        return read()
    except PayloadUndecodable:
        return "refused"


@pytest.mark.parametrize("how", ["overwritten", "made anew"])
@pytest.mark.parametrize("what", SETTINGS)
def test_a_replayed_earlier_setting_is_not_used(
    what: str, how: str, sealing: Client, znodes: KazooClient
) -> None:
    name, before, after, read = SETTINGS[what]
    path = f"{sealing.root}/{name}"
    sealing.create_plan()
    before(sealing)
    recorded = data_of(znodes, path)
    after(sealing)
    if how == "overwritten":
        znodes.set(path, recorded)
    else:
        version = znodes.get(path)[1].version
        znodes.delete(path)
        znodes.create(path, recorded)
        for _ in range(version):
            znodes.set(path, recorded)
    assert read(sealing) in ([(0, True)], "refused")
    znodes.delete(path)  # the same client sets it anew
    after(sealing)
    assert read(sealing) not in ([(0, True)], "refused")


def test_nothing_runs_under_an_unsealed_limit_and_the_reason_is_reported(
    sealing: Client, here: Here, znodes: KazooClient, run: Run, tmp_path: Path
) -> None:
    sealing.set_limit("db", 0)
    with sealing.create_plan(max_running=1) as plan:
        task = plan.add_task(int, limits=["db"])
    znodes.set(f"{sealing.root}/limits/db", b"9")
    znodes.set(f"{sealing.root}/limits/plan-{plan.number}", b"9")
    with working(*here, secret=secret_of("ours")), sealing.create_plan() as other:
        done = other.add_task(int, keep=True)
        other.mark_ready()
        assert done.result(WAIT_S) == 0
        assert not task.done()
    listed = run("limit", "ls", "--secret-file", str(key_file(tmp_path, "ours")))
    assert listed.out.count("it is not sealed with any key") == 2


def test_the_service_lists_readable_settings_and_says_why_one_is_unreadable(
    sealing: Client, here: Here, znodes: KazooClient
) -> None:
    sealing.set_limit("good", 1)
    sealing.set_limit("bad", 1)
    for name in ("good", "bad"):
        sealing.schedule(name, "@yearly", abs, [1])
    unsealed = {"limits": "bad", "schedules": "bad"}
    for room, name in unsealed.items():
        znodes.set(f"{sealing.root}/{room}/{name}", b"9")
    with serving(*here, secret=secret_of("ours")) as service:
        for room, name in unsealed.items():
            rows = service.get(f"/{room}")["items"]
            found = {row["name"]: row["unread"] for row in rows}
            assert ({*found}, found["good"]) == ({"good", "bad"}, "")
            assert f"{sealing.root}/{room}/{name}" in found[name]


@pytest.mark.parametrize("how", ["overwritten", "made anew"])
def test_a_replayed_next_time_of_a_schedule_fires_nothing(
    how: str, sealing: Client, here: Here, znodes: KazooClient, run: Run, tmp_path: Path
) -> None:
    keys = ("--secret-file", str(key_file(tmp_path, "ours")))
    sealing.schedule("good", "@yearly", abs, [1])
    schedule = sealing.schedule("bad", "@yearly", abs, [1])
    above = f"{sealing.root}/schedules/bad"
    (name,) = znodes.get_children(above)
    path = f"{above}/{name}"
    recorded = [data_of(znodes, path)]
    schedule.pause()
    if how == "overwritten":
        znodes.set(path, recorded[0])
    else:
        version = znodes.get(path)[1].version
        znodes.delete(path)
        znodes.create(path, recorded[0])
        for _ in range(version - 1):
            znodes.set(path, recorded[0])
    with pytest.raises(PayloadUndecodable, match=f"{name} is not used"):
        schedule.info()
    listed = run("schedule", "ls", *keys)
    assert (listed.code, "good" in listed.out) == (0, True)
    assert f"cannot be read here: {path} is not used" in " ".join(listed.out.split())


def test_replays_that_cannot_be_refused_act_as_the_docs_say(
    sealing: Client, here: Here, znodes: KazooClient, tmp_path: Path
) -> None:
    plan = failed_once(sealing, here, tmp_path, "hold")
    ((number, _),) = plan.dead()
    paths = [f"{plan.path}/{room}/{number}" for room in ("results", "dead")]
    recorded = [data_of(znodes, path) for path in paths]
    plan.retry()
    for path, data in zip(paths, recorded, strict=True):
        znodes.create(path, data)
    assert isinstance(plan.task(number).exception(WAIT_S), ValueError)  # OLD_LETTER
    with sealing.create_plan(key="k") as first:
        pass
    assert first.is_drained()
    key = f"{sealing.root}/keys/{znodes.get_children(f'{sealing.root}/keys')[0]}"
    before = data_of(znodes, key)
    following = sealing.create_plan(key="k", if_exists="replace_finished")
    assert following.number != first.number
    znodes.set(key, before)
    assert sealing.create_plan(key="k").number == first.number  # OLD_KEY
