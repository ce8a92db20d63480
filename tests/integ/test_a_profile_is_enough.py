"""Every command works on a secured server with a profile alone, and leaves nothing open there."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError

import zkplan
from tests.unit.test_docs import commands
from zkplan.cli import cli, main

from .secured_servers import KEY, PASSWORD, ROOT, SETUPS, Secured, secured
from .support import (
    READY,
    WAIT_S,
    Ran,
    plain_client,
    started,
    tree,
    wait_until,
    zkplan_command,
)

#: They have their own tests: one serves, workers run below, and a token is made without a server.
NOT_HERE = {"zkplan server", "zkplan worker", "zkplan serve new-token"}
PLAN_FILE = Path(__file__).parents[2] / "examples" / "report.toml"


#: Each takes half a minute. With every change a login on the quickest server is enough.
MARKS = {"ensemble": "chaos", "sasl": "chaos", "tls": "chaos", "digest": "slow"}
WORLDS = [
    pytest.param(name, marks=getattr(pytest.mark, MARKS[name]) if name in MARKS else ())
    for name in SETUPS
]


@pytest.fixture(scope="module", params=WORLDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    wanted = request.config.getoption("--zookeeper-kind")
    if wanted in ("embedded", "zookeeper") and (request.param == wanted) != (wanted == "embedded"):
        pytest.skip(f"only {wanted} is wanted")
    with secured(request.param, tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.fixture
def config(server: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the profile: all that this process, and those that it starts, know."""
    for name in [name for name in os.environ if name.startswith("ZKPLAN_")]:
        monkeypatch.delenv(name)
    file = server.write(tmp_path)
    monkeypatch.setenv("ZKPLAN_CONFIG", str(file))
    return file


#: They start processes, and handle signals.
OF_THEIR_OWN = ("demo", "stress")


class Commands:
    """Runs commands, each of which has to succeed and to say no secret, and notes which ran."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.ran: set[str] = set()

    def __call__(self, words: str, *more: str, code: int = 0) -> Ran:
        arguments = [*words.split(), *more]
        if arguments[0] in OF_THEIR_OWN:
            done = zkplan_command(*arguments)
            ran = Ran(done.returncode, done.stdout, done.stderr)
        else:
            self._capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                main(arguments)
            ended_with = ended.value.code
            ran = Ran(ended_with if isinstance(ended_with, int) else 0, *self._capsys.readouterr())
        assert ran.code == code, f"zkplan {words}: {ran}"
        assert PASSWORD not in ran.out + ran.err
        assert KEY not in ran.out + ran.err
        self.ran |= {" ".join(["zkplan", *arguments[:n]]) for n in (1, 2, 3)}
        return ran


#: What is run before there is a worker.
FIRST = (
    *("root init", "root show", "root lock", "metrics"),
    *("plan ls", "plan show keeps", "task ls keeps"),
    *("plan history keeps", "plan timeline keeps", "task replay keeps one"),
    *(
        "task show keeps one",
        "task logs keeps one",
        "task why keeps one",
        "plan why keeps",
        "plan graph keeps",
    ),
    *("plan mark-ready keeps", "plan mark-ready fails", "plan pause keeps", "plan resume keeps"),
    "plan set keeps --weight 2",
    *("schedule add nightly @yearly operator:pos --args [1]", "schedule ls"),
    *("schedule show nightly", "schedule next nightly", "schedule pause nightly"),
    *("schedule resume nightly", "schedule trigger nightly", "schedule rm nightly"),
    *("top --once", "task ls --all-plans --state runnable"),
    *("task skip left one --yes", "task cancel fails two --yes", "task set keeps one --priority 1"),
    "root rotate-key",
    *("root budget set --znodes 9000", "root budget show --count", "root budget rm"),
    *("root retention set 7d --yes", "root retention show", "root retention rm --yes"),
    *(
        "plan mark-ready moves",
        "plan archived --store memory://archives",
        "plan gc --yes",
        f"run {PLAN_FILE} --no-wait",
    ),
)


@pytest.mark.timeout(240)
@pytest.mark.slow
def test_every_command_of_the_reference_works(
    config: Path,
    server: Secured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # It would bind the handlers of this whole process to the captured stream of one test.
    monkeypatch.setattr("zkplan.cli.common.log_to_stderr", lambda *_: None)
    monkeypatch.setattr("zkplan.cli.config.log_to_stderr", lambda *_: None)
    run = Commands(capsys)
    with ExitStack() as stack:
        client = stack.enter_context(zkplan.connect())
        names = ("keeps", "fails", "left", "moves")
        plans = {name: client.create_plan(name, attempts=1) for name in names}
        plans["keeps"].add_task(lambda: "kept", name="one", keep=True)
        one = plans["fails"].add_task(lambda: 1 // 0, name="one")
        plans["fails"].add_task(str, [one], name="two")
        plans["left"].add_task(lambda: 1, name="one")
        plans["moves"].add_task(lambda: 1, name="one")
        for words in FIRST:
            run(words)
        run("plan export moves --pause --remove --out", str(tmp_path / "moved"))
        run("plan import", str(tmp_path / "moved"))
        run("root new-key", str(tmp_path / "another.key"))
        run("plan cancel left")
        run("plan rm left --yes")
        worker = stack.enter_context(
            started(
                sys.executable,
                "-m",
                "zkplan",
                "worker",
                "--processes",
                "2",
                "--profile",
                "team",
                stdout=None,
            )
        )
        registered = wait_until(
            lambda: len(client.workers()) == 2 and client.workers(), "2 workers"
        )
        assert len(run("worker ls -o json").data) == 2
        assert len(run("queue ls -o json").data[0]["workers"]) == 2
        run("worker pause", registered[0].id)
        run("worker resume", registered[0].id)
        run("limit set db 2 --per minute")
        assert run("limit ls -o json").data[0]["period"] == 60.0
        run("limit rm db")
        run("plan wait keeps --timeout 30")
        run("plan wait fails --timeout 30", code=1)
        run("plan check keeps")
        assert "kept" in run("task show keeps one --values").out
        run("task retry fails one")
        run("plan wait fails --timeout 30", code=1)
        run("plan retry fails")
        for pid in (*(found.pid for found in registered), worker.pid):
            hidden(pid)
        run("worker drain", registered[0].id, "--wait")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_S) == 0
    run("demo --profile team --workers 1 --threads 2 --no-kill")
    run("stress --profile team --workers 1 --tasks 6 --deps 1 --sleep 0")
    run("stress --profile team --workers 2 --tasks 6 --deps 1 --sleep 0 --supervised")
    run("config show")
    run("config check")
    missing = set(leaves()) - run.ran - NOT_HERE
    assert not missing
    require_closed(server)


def leaves() -> Iterator[str]:
    paths = list(commands(cli, "zkplan"))
    return (path for path in paths if not any(other.startswith(f"{path} ") for other in paths))


def hidden(pid: int) -> None:
    """No other user, and no task, finds a secret in what the system tells of a process."""
    for what in ("cmdline", "environ"):
        told = Path(f"/proc/{pid}/{what}").read_text(errors="replace")
        assert not re.search(f"{PASSWORD}|{KEY}", told)


def require_closed(server: Secured) -> None:
    """Whoever else reaches the server may do nothing with what zkplan has made there."""
    with plain_client(server.hosts, **server.outsider) as raw:
        attempts: list[Callable[[], object]] = [
            lambda: raw.get_children(ROOT),
            lambda: raw.create(f"{ROOT}/plan-9999999999"),
            lambda: raw.delete(f"{ROOT}/delayed"),
            lambda: raw.get_children(ROOT.rpartition("/")[0]),
        ]
        for attempt in attempts:
            with pytest.raises(NoAuthError):
                attempt()
    with zkplan.connect() as client:
        znodes = client.transport.client
        for path in tree(znodes, ROOT):
            lists, _ = znodes.get_acls(f"{ROOT}{path}")
            assert [each for each in lists if each.id.scheme == "world"] == [], path


@pytest.mark.timeout(120)
def test_a_dead_worker_process_is_signed_off_with_the_login(config: Path, tmp_path: Path) -> None:
    """Its session would live for a minute."""
    with zkplan.connect(session_timeout=10) as client, ExitStack() as stack:
        command = ("worker", "--processes", "2", "--session-timeout", "60")
        with (tmp_path / "log").open("wb") as log:
            stack.enter_context(
                started(sys.executable, "-m", "zkplan", *command, stdout=log, stderr=log)
            )
        # Who is in the tree may not know it yet, and then its supervisor cannot sign it off.
        log_of = (tmp_path / "log").read_text
        wait_until(lambda: len({*READY.findall(log_of())}) == 2, "2 workers are ready")
        first = client.workers()[0]
        os.kill(first.pid, signal.SIGKILL)
        said = f"worker {first.id} is signed off"
        wait_until(lambda: said in log_of(), "it is signed off")
