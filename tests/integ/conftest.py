"""Fixtures of the integration tests: a worker on the root of the test, a plain client beside it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.stores import Place
from tests.tools.support import Here, Ran, Run, Told, plain_client, wait_until, working
from zkplan import Client
from zkplan.author import patience
from zkplan.cli import main
from zkplan.runtime import claims as capacity
from zkplan.runtime import maintenance, shutdown
from zkplan.testing.servers import remove_tree


@pytest.fixture
def here(zookeeper_hosts: str, zkplan_root: str) -> Here:
    """The server and the root of this test."""
    return zookeeper_hosts, zkplan_root


@pytest.fixture
def place(here: Here, tmp_path: Path) -> Place:
    """A store of this test."""
    return Place(here, tmp_path / "store")


@pytest.fixture
def client(place: Place) -> Iterator[Client]:
    """A client that puts every value into `place`."""
    with place.client() as made:
        yield made


@pytest.fixture
def worker(here: Here) -> Iterator[zkplan.Worker]:
    """A worker with four threads on the root of this test."""
    with working(*here) as running:
        yield running


@pytest.fixture
def there(here: Here) -> Iterator[Here]:
    """The server and another root, which is removed afterwards."""
    hosts, root = here
    yield hosts, f"{root}-elsewhere"
    with plain_client(hosts) as plain:
        remove_tree(plain, f"{root}-elsewhere")


@pytest.fixture
def elsewhere(there: Here) -> Iterator[zkplan.Client]:
    """A client on that other root."""
    with zkplan.connect(*there) as client:
        yield client


@pytest.fixture
def run(here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `zkplan ARGUMENTS` in this process. The environment names server and root."""
    for variable, value in zip(("ZKPLAN_HOSTS", "ZKPLAN_ROOT"), here, strict=True):
        monkeypatch.setenv(variable, value)
    # It would bind the handlers of this whole process to the captured stream of one test, and let
    # kazoo be silent in the tests after it.
    for module in ("common", "config", "demo"):
        monkeypatch.setattr(f"zkplan.cli.{module}.log_to_stderr", lambda *_: None)

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
        code = ended.value.code
        return Ran(
            code if isinstance(code, int) else 0 if code is None else 1, *capsys.readouterr()
        )

    return call


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let SIGINT interrupt this test, also where a shell runs the tests in the background and
    ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    """Waits until this text has been logged in this process."""
    return lambda text: wait_until(lambda: text in caplog.text, f"it is told: {text}")


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits looks ten times a second: as many looks as usual take a tenth of the time."""
    monkeypatch.setattr(patience, "LOOK_S", 0.1)


@pytest.fixture
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of this process, started from now on, check plans and scan for them more often."""
    for name in ("CHECK_FIRST_S", "CHECK_PERIOD_S", "SCAN_PERIOD_S"):
        monkeypatch.setattr(maintenance, name, 0.1)


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without Java, Docker, given hosts or programs."""
    for name in ("ZKPLAN_TEST_HOSTS", "ZKPLAN_HOSTS", "ZOOKEEPER_HOME", "JAVA_HOME", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")


@pytest.fixture
def nothing_stalls() -> Iterator[None]:
    """Workers in this process hand no claim back because it waits for a slot.

    For tests that tell the exact numbers of claims, or their order: where the thread of a slot is
    slow to begin, a claim that waits for it goes back, and the next one has the next number. And
    for tests of what else is handed back, and of what workers leave: they sign off, however slow
    the server is.
    """
    # Not by `monkeypatch`, which would then be there before all else, and undo what the test itself
    # replaces only after the end of all else.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capacity, "STALLED_S", 1000.0)
        patch.setattr(shutdown, "SIGN_OFF_S", 30.0)
        yield


@pytest.fixture
def znodes(zookeeper_hosts: str) -> Iterator[KazooClient]:
    """A plain KazooClient: what any other program sees of the tree."""
    with plain_client(zookeeper_hosts) as client:
        yield client
