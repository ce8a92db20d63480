"""`zkplan root` creates a closed root, shows what an outsider could do, and closes an open root."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.security import OPEN_ACL_UNSAFE

import zkplan
from tests.tools.support import Here, Ran, Run, tree, working
from zkplan.embedded import EmbeddedServer

ALICE = [("digest", "alice:wonder")]
_OPEN = OPEN_ACL_UNSAFE  # so that the fixture of the root can remove it


@pytest.fixture
def run_as_alice(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run`, with a login."""

    def as_alice(*words: str) -> Ran:
        with monkeypatch.context() as environment:
            environment.setenv("ZKPLAN_LOGIN_USER", "alice")
            environment.setenv("ZKPLAN_LOGIN_PASSWORD", "wonder")
            return run(*words)

    return as_alice


def test_a_root_is_open_then_locked_then_closed(here: Here, run: Run, run_as_alice: Run) -> None:
    with zkplan.connect(*here) as anybody:
        anybody.create_plan("open")
        shown = run_as_alice("root", "show")
        assert shown.code == 1
        assert "open                 yes" in shown.out
        refused = run_as_alice("root", "init")
        assert refused.code == 1
        assert "exists and is open: close it with `zkplan root lock`" in refused.err
        with working(*here):
            refused = run_as_alice("root", "lock")
            assert refused.code == 2
            assert "1 worker without a login would lose access" in refused.err
        locked = run_as_alice("root", "lock")
        assert locked.code == 0
        assert "is closed: " in locked.out
        assert "0 znodes had been open" in run_as_alice("root", "lock").out
        found = run_as_alice("root", "show", "-o", "json")
        assert found.code == 0
        assert not found.data["open"]
        assert {deed["znodes"] for deed in found.data["outsiders"].values()} == {0}
        (login,) = found.data["logins"]
        assert login == "digest:alice read+write+create+delete+admin"
        with pytest.raises(zkplan.ZkplanError, match="access list"):
            anybody.create_plan("of an outsider")
    with zkplan.connect(*here, auth_data=ALICE) as owner:
        for path in ("", "/workers", "/claims", "/delayed", "/active"):
            owner.transport.client.set_acls(f"{owner.root}{path}", _OPEN)
        for plan in owner.plans():
            plan.remove()


def test_root_init_creates_a_closed_root(here: Here, run_as_alice: Run) -> None:
    hosts, root = here
    made = run_as_alice("root", "init", "--root", f"{root}/of/alice")
    assert (made.code, made.err) == (0, "")
    with zkplan.connect(hosts, f"{root}/of/alice", auth_data=ALICE) as owner:
        raw = owner.transport.client
        for path in tree(raw, root):
            (entry,) = raw.get_acls(f"{root}{path}")[0]
            assert entry.id.scheme == "digest"
            raw.set_acls(f"{root}{path}", _OPEN)


def test_without_a_login_nothing_is_closed(run: Run) -> None:
    for words in ("init", "lock"):
        refused = run("root", words)
        assert refused.code == 2
        assert "this needs a login" in refused.err
    missing = run("root", "show")
    assert missing.code == 2
    assert "create it with `zkplan root init`" in missing.err


BY_SERVER = "/zkplan is closed by the server's own login"


@pytest.mark.either
def test_root_show_calls_a_root_closed_if_its_server_requires_a_login(
    run: Run, run_as_alice: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lists are open, as its login was found and not given."""
    with EmbeddedServer() as server:
        at = ("--hosts", server.hosts, "--root", "/zkplan")
        made, locked = run("root", "init", *at), run("root", "lock", *at)
        assert (made.code, locked.code) == (0, 0)
        assert "/zkplan is there, and closed by the server's own login" in made.out
        assert BY_SERVER in locked.out
        shown = run("root", "show", *at)
        assert shown.code == 0
        assert "open                 no: closed by the server's own login" in shown.out
        told = run("root", "show", "-o", "json", *at).data
        assert (told["open"], told["closed_by_server"]) == (False, True)
        assert told["open_lists"]["znodes"] == told["znodes"] > 0
        assert {deed["znodes"] for deed in told["outsiders"].values()} == {0}
        checked = run("config", "check", *at)
        assert checked.code == 0
        assert f"ok       access: {BY_SERVER}" in checked.out
        assert "ok       login: that of a closed server of yours" in checked.out
        assert "not signed" not in checked.out
        assert run_as_alice("root", "show", *at).code == 0
        assert "is open" not in caplog.text
        assert run_as_alice("root", "lock", *at).code == 0
        assert not run_as_alice("root", "show", "-o", "json", *at).data["open_lists"]["znodes"]


@pytest.mark.either
def test_root_show_calls_an_open_server_open_even_if_its_folder_has_a_login(
    run: Run, tmp_path: Path
) -> None:
    with EmbeddedServer(tmp_path):
        pass
    with (
        EmbeddedServer(tmp_path, is_open=True) as server,
        zkplan.connect(server.hosts, "/zkplan") as client,
    ):
        client.prepare()
        for hosts in (f"embedded:{tmp_path}", server.hosts):
            shown = run("root", "show", "--hosts", hosts, "--root", "/zkplan", "-o", "json")
            assert shown.code == 1
            assert shown.data["open"]
            assert not shown.data["closed_by_server"]
            checked = run("config", "check", "--hosts", hosts, "--root", "/zkplan")
            assert checked.code == 1
            assert "problem  access: /zkplan is open" in checked.out
