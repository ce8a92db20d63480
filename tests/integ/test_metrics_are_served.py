"""Each endpoint serves its metrics in the format of Prometheus, at a bounded cost for a scrape."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.promtool import promtool
from tests.tools.support import TOP, WAIT_S, Run, WorkerProcess, fail, started, wait_until, working
from zkplan import Client, TaskSpec, when
from zkplan.embedded import EmbeddedServer
from zkplan.integrations import prometheus as of_root
from zkplan.integrations import prometheus_process as of_worker
from zkplan.integrations.prometheus import Endpoint, RootCollector, WorkerCollector
from zkplan.integrations.prometheus_counts import Tally, count_root
from zkplan.integrations.prometheus_endpoint import Collector, CollectorRegistry, generate_latest
from zkplan.integrations.prometheus_process import ServerCollector
from zkplan.protocol.core.plan_life import change_state

Values = dict[tuple[str, ...], float]
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_NAME = re.compile(r"\bzkplan_[a-z_]+\b")


def text_of(collector: Collector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def values_of(text: str) -> Values:
    """Each sample by its name and the values of its labels, but its root."""
    return {
        (name, *re.findall(r'(?<!root)="([^"]*)"', labels or "")): float(value)
        for name, labels, value in _SAMPLE.findall(text)
    }


def get(url: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{url}{path}", timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def url_in(log: Callable[[], str]) -> str:
    """Where a command says that it serves."""
    found: re.Match[str] = wait_until(lambda: re.search(r"(http://\S+)/metrics", log()), "a URL")
    return found[1]


def check_metrics(text: str) -> None:
    """Prometheus' own promtool finds nothing to say of it."""
    command = [promtool(), "check", "metrics"]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


def test_the_metrics_of_a_root_count_what_is_under_it(
    here: tuple[str, str], zkplan_client: Client, znodes: KazooClient
) -> None:
    client = zkplan_client
    with working(*here):
        with client.create_plan("fails", attempts=1) as failed:
            failed.add_task(str, [failed.add_task(fail)])
        with client.create_plan("done") as done:
            done.add_task(int)
        done.wait(timeout=WAIT_S)
        wait_until(lambda: failed.status().dead, "it is dead")
    with client.create_plan("waits") as waits:
        first = waits.add_task(int, queue="gpu")
        waits.add_tasks([TaskSpec(int, queue="gpu"), TaskSpec(int), TaskSpec(str, [first])])
        waits.add_task(int, not_before=3600, queue="late")
        waits.add_task(str, [when(f"{client.root}-none")])
    client.create_plan("defining")
    with client.create_plan("paused") as paused:
        paused.add_task(int)
    paused.pause()
    client.transport.run(change_state(client.create_plan("cancelled").path, "cancelled"))
    client.schedule("nightly", "0 3 * * *", abs, [1])
    client.schedule("off", "0 3 * * *", abs, [1]).pause()
    found = values_of(RootCollector(client).text())

    plans = {state: found["zkplan_plans", state] for state in ("running", "paused", "unread")}
    assert plans == {"running": 2, "paused": 1, "unread": 0}
    ended = [found["zkplan_plans", state] for state in ("done", "cancelled", "defining")]
    assert ended == [1, 1, 1]
    assert found["zkplan_plans_with_dead_tasks",] == 1
    tasks = {key[1]: value for key, value in found.items() if key[0] == "zkplan_tasks"}
    assert tasks == {
        "dead": 1,
        "waiting": 3,
        "runnable": 4,
        "delayed": 1,
        "gated": 1,
        "running": 0,
    }
    queued = {key[1:]: value for key, value in found.items() if key[0] == "zkplan_queue_tasks"}
    assert {key: value for key, value in queued.items() if value} == {
        ("gpu", "runnable"): 2,
        ("default", "runnable"): 2,
        ("late", "delayed"): 1,
        ("default", "gated"): 1,
    }
    assert 0 < found["zkplan_queue_oldest_runnable_age_seconds", "gpu"] < WAIT_S
    assert found["zkplan_schedules", "active"] == found["zkplan_schedules", "paused"] == 1
    assert found["zkplan_schedule_lateness_seconds", "nightly"] == 0
    assert found["zkplan_queue_workers", "gpu"] == found["zkplan_root_scrape_ages_unread",] == 0


def test_claims_are_counted_in_the_queue_of_their_tasks(
    here: tuple[str, str], zkplan_client: Client, znodes: KazooClient
) -> None:
    with zkplan_client.create_plan() as plan:
        plan.add_tasks([TaskSpec(int, queue="gpu"), TaskSpec(int)])
    claims = f"{zkplan_client.root}/claims/gone"
    znodes.ensure_path(claims)
    for number, data in ((7, b"5000.0.gpu"), (8, b"5000.0")):
        znodes.create(f"{claims}/{plan.number}-{number:010d}.0.{number}", data)
    found = values_of(RootCollector(zkplan_client).text())
    assert found["zkplan_queue_tasks", "gpu", "running"] == 1
    assert found["zkplan_queue_tasks", "default", "running"] == 1
    assert found["zkplan_vanished_workers",] == 1


def test_a_schedule_that_no_worker_fires_is_late(zkplan_client: Client) -> None:
    zkplan_client.schedule("each-second", "* * * * * *", abs, [1])
    collector = RootCollector(zkplan_client)
    name = ("zkplan_schedule_lateness_seconds", "each-second")
    wait_until(lambda: values_of(collector.text())[name] > 0, "it is late")


def test_more_plans_cost_more_reads_but_hardly_more_requests(zkplan_client: Client) -> None:
    def cost() -> Tally:
        tally = Tally()
        zkplan_client.transport.run(tally.of(count_root(zkplan_client.paths, {})))
        return tally

    def add(count: int) -> None:
        for _ in range(count):
            with zkplan_client.create_plan() as plan:
                plan.add_task(int)

    add(2)
    few = cost()
    add(40)
    many = cost()
    assert many.reads >= few.reads + 40 * 6
    # The first batch of values is small, since nobody knows their sizes yet.
    assert few.requests <= many.requests <= few.requests + 4


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_scrape_of_2000_plans_takes_under_a_second(zkplan_client: Client) -> None:
    for _ in range(2000):
        with zkplan_client.create_plan() as plan:
            plan.add_task(int)
    collector = RootCollector(zkplan_client)
    costs = [values_of(collector.text()) for _ in range(3)]
    seconds = min(cost["zkplan_root_scrape_duration_seconds",] for cost in costs)
    # Shown with -rP.
    sys.stdout.write(f"{seconds:.3f} s, {costs[0]['zkplan_root_scrape_requests',]:.0f} requests\n")
    assert costs[0]["zkplan_plans", "running"] == 2000
    assert costs[0]["zkplan_root_scrape_requests",] < 100
    assert seconds < 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path / "data") as made:
        yield made


def test_health_and_metrics_report_an_unreachable_zookeeper_in_time(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_worker, "TURN_S", 0.2)
    options: dict[str, Any] = {"session_timeout": 1.5, "patience": 1.0}
    with zkplan.connect(server.hosts, **options) as client:
        idle = of_worker.Health(zkplan.Worker(client))
        assert "has not turned" in idle.alive()
        with working(server.hosts, "/zkplan", 1, grace=0, **options) as worker:
            health, root = of_worker.Health(worker), RootCollector(client)
            of_server = ServerCollector(server.statistics)
            assert (health.alive(), health.ready(), of_server.wrong()) == ("", "", "")
            assert values_of(text_of(root))["zkplan_root_up",] == 1
            server.stop()
            stale = values_of(wait_until(partial(_text_when_down, root), "it is down"))
            assert stale["zkplan_slots",] == 1, "what was counted last is still there"
            assert stale["zkplan_root_count_age_seconds",] > 0
            wait_until(health.ready, "it is not ready")
            assert health.ready() == "ZooKeeper does not answer the worker"
            assert health.alive() == ""
            assert of_server.wrong() == "the loop of the server does not turn"
            assert text_of(of_server).endswith("zkplan_server_up 0.0\n")
            gone = RootCollector(client)
            assert text_of(gone).endswith('zkplan_root_up{root="/zkplan"} 0.0\n')
            assert "does not answer" in gone.wrong()
            server.start()


def _text_when_down(root: RootCollector) -> str:
    text = text_of(root)
    return text if "zkplan_root_up" in text and " 0.0" in text.partition("root_up{")[2][:30] else ""


def test_a_scrape_does_not_wait_for_a_slow_count(
    zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first scrape has no counts yet, and a later one those that were made meanwhile."""
    zkplan_client.prepare()
    monkeypatch.setattr(of_root, "SCRAPE_S", 0.0)
    collector = RootCollector(zkplan_client)
    first = values_of(text_of(collector))
    assert (first["zkplan_root_up",], ("zkplan_slots",) in first) == (1, False)
    wait_until(lambda: "zkplan_root_count_age_seconds" in text_of(collector), "it was counted")
    assert ("zkplan_slots",) in values_of(text_of(collector))


def test_one_collector_serves_the_metrics_of_several_roots(here: tuple[str, str], run: Run) -> None:
    hosts, top = here
    roots = [f"{top}/a", f"{top}/b"]
    with ExitStack() as stack:
        clients = [stack.enter_context(zkplan.connect(hosts, root)) for root in roots]
        for client in clients:
            client.prepare()
        with clients[1].create_plan() as plan:
            plan.add_task(int)
        text = text_of(RootCollector(*clients))
    told = run("metrics", "--root", roots[0], "--root", roots[1]).out
    for found in (text, told):
        assert f'zkplan_plans{{root="{roots[0]}",state="running"}} 0.0' in found
        assert f'zkplan_plans{{root="{roots[1]}",state="running"}} 1.0' in found
    check_metrics(text)


def test_old_claims_and_budgets_have_metrics(zkplan_client: Client, znodes: KazooClient) -> None:
    with zkplan_client.create_plan() as plan:
        plan.add_task(int)
    znodes.create(f"{zkplan_client.root}/claims/gone/{plan.number}-0000000007.0.7", makepath=True)
    data = b'{"znodes":100,"used":{"plans":1,"znodes":90,"bytes":1,"counted":1,"exact":true}}'
    znodes.create(f"{zkplan_client.root}/bounds", data)
    found = values_of(RootCollector(zkplan_client).text())
    assert 0 < found["zkplan_queue_oldest_running_age_seconds", "default"] < WAIT_S
    assert found["zkplan_budget_used_ratio",] == 0.9


def test_every_endpoint_passes_promtool_and_is_documented(server: EmbeddedServer) -> None:
    """Every metric that the pages, the alerts and the dashboard name is there, and no other."""
    with zkplan.connect(server.hosts) as client, zkplan.connect(server.hosts) as own:
        with client.create_plan() as plan:
            plan.add_task(int)
        client.schedule("each-second", "* * * * * *", abs, [1])
        worker = zkplan.Worker(own)
        root = RootCollector(client)
        collectors: list[Collector] = [
            *(WorkerCollector(worker), root, ServerCollector(server.statistics)),
        ]
        with worker:
            plan.wait(timeout=WAIT_S)
            fired = ("zkplan_schedule_last_fired_timestamp_seconds", "each-second")
            wait_until(lambda: fired in values_of(root.text()), "it has fired")
            texts = [text_of(collector) for collector in collectors]
    found = values_of(texts[0])
    assert found["zkplan_worker_committed_claims_total", worker.id] >= 1
    assert found["zkplan_worker_attempt_duration_seconds_count", worker.id] >= 1
    families = {
        re.sub("_created$", "", name)
        for text in texts
        for name in re.findall(r"^# TYPE (zkplan_\w+)", text, re.MULTILINE)
    } | {"zkplan_supervisor_processes"}
    page = (TOP / "docs/operate/metrics.md").read_text()
    assert set(re.findall(r"^\| `(zkplan_\w+)`", page, re.MULTILINE)) == families
    for file in ("zkplan-alerts.yml", "grafana-dashboard.json"):
        named = set(_NAME.findall((TOP / "deploy" / file).read_text()))
        assert {re.sub("_(bucket|sum|count)$", "", name) for name in named} <= families, file
    for text in texts:
        check_metrics(text)


def test_one_address_serves_the_metrics_of_all_processes_of_a_worker(
    here: tuple[str, str], zkplan_client: Client, tmp_path: Path
) -> None:
    more = ("--processes", "2", "--threads", "1", "--metrics", "127.0.0.1:0")
    with WorkerProcess(*here, tmp_path, *more) as command:
        url = url_in(command.log.read_text)
        command.wait_ready(2)
        assert get(url, "/readyz") == get(url, "/healthz") == (200, "ok\n")
        found = values_of(get(url, "/metrics")[1])
        ids = {key[1] for key in found if key[0] == "zkplan_worker_slots"}
        assert ids == {worker.id for worker in zkplan_client.workers()}
        assert len(ids) == 2
        assert found["zkplan_supervisor_processes", "answering"] == 2
        check_metrics(get(url, "/metrics")[1])
        assert get(url, "/other")[0] == 404


def test_the_metrics_of_a_root_are_printed_once_or_served(
    here: tuple[str, str], run: Run, zkplan_client: Client
) -> None:
    zkplan_client.prepare()
    assert values_of(run("metrics").out)["zkplan_root_up",] == 1
    hosts, root = here
    command = ("metrics", "--hosts", hosts, "--root", root, "--listen", "127.0.0.1:0")
    with started(sys.executable, "-m", "zkplan", *command) as process:
        assert process.stdout is not None
        url = url_in(process.stdout.readline)
        assert values_of(get(url, "/metrics")[1])["zkplan_root_up",] == 1
        assert get(url, "/readyz") == (200, "ok\n")
        process.terminate()
        assert process.wait(WAIT_S) == 0


@pytest.mark.either
def test_every_log_record_of_a_task_names_its_task_plan_and_worker(
    here: tuple[str, str], zkplan_client: Client, tmp_path: Path
) -> None:
    with WorkerProcess(*here, tmp_path, "--log-format", "json") as command:
        command.wait_ready()
        with zkplan_client.create_plan(attempts=2, retry_delay=0.01) as plan:
            task = plan.add_task(log_and_fail)
        wait_until(lambda: plan.status().dead, "it is out of attempts")
        (worker,) = zkplan_client.workers()
        wait_until(lambda: command.said("is out of attempts"), "it is logged")
        lines = [line for line in command.log.read_text().splitlines() if line.startswith("{")]
    records = [json.loads(line) for line in lines]
    of_task = [record for record in records if "task" in record]
    told = [(record["logger"], record["attempt"]) for record in of_task]
    assert told == [("mine", 0), ("zkplan.worker", 0), ("mine", 1), ("zkplan.worker", 1)]
    whose = {(record["plan"], record["task"], record["worker"]) for record in of_task}
    assert whose == {(int(plan.number), int(task.number), worker.id)}
    assert "no more" in of_task[0]["traceback"]
    assert all(re.search(r"\.\d{3}[+-]\d\d:\d\d$", record["time"]) for record in records)


def log_and_fail() -> None:
    import logging

    try:
        raise ValueError("no more")
    except ValueError:
        logging.getLogger("mine").exception("it\nfails")
        raise


@pytest.mark.either
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("metrics --listen 0.0.0.0:0", "allow this address with --open"),
        ("metrics --open", "--open has no effect without --listen"),
        ("metrics --listen 9470", "is not HOST:PORT"),
        ("worker --metrics 0.0.0.0:0", "allow this address with --metrics-open"),
        ("server --metrics :: --listen 127.0.0.1:0", "allow this address with --metrics-open"),
    ],
)
def test_a_public_address_must_be_allowed_explicitly(words: str, says: str, run: Run) -> None:
    ran = run(*words.replace(" :: ", " [::]:0 ").split())
    assert ran.code == 2
    assert says in " ".join(ran.err.split())


@pytest.mark.either
def test_a_port_in_use_ends_the_command_at_its_start(run: Run, here: object) -> None:
    endpoint = Endpoint(("127.0.0.1", 0), CollectorRegistry()).start()
    try:
        ran = run("metrics", "--listen", endpoint.address)
    finally:
        endpoint.close()
    assert ran.code == 1
    assert "the port is taken" in ran.err


def test_without_the_library_only_metrics_are_missing(zookeeper_hosts: str) -> None:
    block = "import sys; sys.modules['prometheus_client'] = None; from zkplan.cli import main; "
    ran = subprocess.run(
        [sys.executable, "-c", f"{block}main(['metrics', '--hosts', '{zookeeper_hosts}'])"],
        capture_output=True,
        text=True,
        check=False,
        cwd=TOP,
    )
    assert ran.returncode == 2
    assert "pip install 'zkplan[metrics]'" in ran.stderr
    loaded = "import zkplan.cli.worker, zkplan.cli.server; "
    told = "print([name for name in sys.modules if name.startswith(('prometheus', 'wsgiref'))])"
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; {loaded}{told}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=TOP,
    )
    assert ran.stdout == "[]\n"
