"""With only a profile every command works on a secured server, and leaves no znode open."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import zkplan
from tests.tools.command_tree import commands
from tests.tools.outsiders import TRIES, TRIES_ON_A_CLOSED_SERVER, allowed
from tests.tools.secured_servers import KEY, PASSWORD, ROOT, SETUPS, Secured, secured
from tests.tools.support import (
    READY,
    WAIT_S,
    Ran,
    plain_client,
    started,
    tree,
    wait_until,
    zkplan_command,
)
from zkplan.cli import cli, main
from zkplan.views.root_access import root_access

#: They have their own tests: one serves, and a token is made without a server.
NOT_HERE = {"zkplan server", "zkplan serve new-token"}
COMMANDS = set(commands(cli, "zkplan"))
ZKPLAN = (sys.executable, "-m", "zkplan")
PLAN_FILE = Path(__file__).parents[2] / "examples" / "report.toml"


#: Each takes half a minute. With every change a login on the quickest server is enough; the others
#: run with `dev.py chaos`.
WORLDS = [
    pytest.param(name, marks=() if name == "embedded" else pytest.mark.chaos) for name in SETUPS
]


@pytest.fixture(scope="module", params=WORLDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    wanted = request.config.getoption("--zookeeper-kind")
    with secured(request.param, tmp_path_factory.mktemp("server"), wanted) as made:
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
        self.note(*arguments)
        return ran

    def note(self, *words: str) -> None:
        """It was run: `worker ls` is no `worker`."""
        self.ran.add(max(COMMANDS & {" ".join(["zkplan", *words[:n]]) for n in (1, 2, 3)}, key=len))

    @contextmanager
    def started(self, *words: str, says: str) -> Iterator[subprocess.Popen[str]]:
        """One that serves, once it has said that."""
        self.note(*words)
        with started(*ZKPLAN, *words, stderr=None) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert says in line
            yield process


#: Commands that run before there is a worker.
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


OF_PROCESSES = (
    "demo --profile team --workers 1 --threads 2 --no-kill",
    "stress --profile team --workers 1 --tasks 6 --deps 1 --sleep 0",
    "stress --profile team --workers 2 --tasks 6 --deps 1 --sleep 0 --supervised",
)


@pytest.mark.timeout(240)
def test_every_command_of_the_reference_works_with_a_profile_alone(
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
            started(*ZKPLAN, "worker", "--processes", "2", "--profile", "team", stdout=None)
        )
        run.note("worker")
        served = ("serve", "--profile", "team", "--listen", "127.0.0.1:0")
        service = stack.enter_context(run.started(*served, says="serving at "))
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
        for pid in (*(found.pid for found in registered), worker.pid, service.pid):
            hidden(pid)
        run("worker drain", registered[0].id, "--wait")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_S) == 0
    with ThreadPoolExecutor() as pool:  # they begin processes, and wait for these
        [*pool.map(run, OF_PROCESSES)]
    run("config show")
    run("config check")
    missing = COMMANDS - run.ran - NOT_HERE
    assert not missing
    require_closed(server)


def hidden(pid: int) -> None:
    """No other user, and no task, finds a secret in what the system tells of a process."""
    for what in ("cmdline", "environ"):
        told = Path(f"/proc/{pid}/{what}").read_text(errors="replace")
        assert not re.search(f"{PASSWORD}|{KEY}", told)


def require_closed(server: Secured) -> None:
    """Whoever else reaches the server may do nothing with what zkplan has made there."""
    with zkplan.connect() as client:
        paths = [f"{ROOT}{path}" for path in tree(client.transport.client, ROOT)]
        found = root_access(client)
        assert not found.is_open
        assert bool(found.open_lists.znodes) is not server.gives_login
    tries = TRIES_ON_A_CLOSED_SERVER if server.is_closed else TRIES
    with plain_client(server.hosts, **server.outsiders[0]) as other:
        assert allowed(other, ["/team", *paths], tries) == []


@pytest.mark.timeout(120)
def test_a_dead_worker_process_is_signed_off_with_the_login(config: Path, tmp_path: Path) -> None:
    """Its session would live for a minute."""
    with zkplan.connect(session_timeout=10) as client, ExitStack() as stack:
        command = ("worker", "--processes", "2", "--session-timeout", "60")
        with (tmp_path / "log").open("wb") as log:
            stack.enter_context(started(*ZKPLAN, *command, stdout=log, stderr=log))
        # A worker in the tree may not know its ID yet, and then its supervisor cannot sign it off.
        log_of = (tmp_path / "log").read_text
        wait_until(lambda: len({*READY.findall(log_of())}) == 2, "2 workers are ready")
        first = client.workers()[0]
        os.kill(first.pid, signal.SIGKILL)
        said = f"worker {first.id} is signed off"
        wait_until(lambda: said in log_of(), "it is signed off")
