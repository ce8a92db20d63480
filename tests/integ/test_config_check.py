"""`zkplan config check` says what is broken and what to do, for each of many broken set-ups."""

from __future__ import annotations

import gc
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.security import make_acl, make_digest_acl

import zkplan
from tests.tools.available import not_available, skip_without
from tests.tools.certificates import Authority, secure
from tests.tools.clock import environment, preloaded, step
from tests.tools.secured_servers import PASSWORD, secured, wait_for_port
from tests.tools.support import plain_client, secret_of, wait_until, zkplan_command
from zkplan.basics.settings import Settings
from zkplan.cli.config import findings_of
from zkplan.cli.doctor import Finding
from zkplan.embedded import EmbeddedServer, wire, words
from zkplan.testing.server_process import LOOPBACK, free_port
from zkplan.testing.servers import ZooKeeperEnsemble, ZooKeeperServer
from zkplan.views.root_access import root_access

pytestmark = [
    # kazoo leaves a socket open whenever a connection fails.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("no_socket_is_left"),
]
ROOT = "/team/zkplan"


@pytest.fixture
def no_socket_is_left() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(scope="module")
def hosts(request: pytest.FixtureRequest) -> Iterator[str]:
    """A real ZooKeeper of this module, where user `team` has a root."""
    with real_server(request.config) as server:
        with zkplan.connect(server.hosts, ROOT, **login_of("team")) as client:
            client.prepare()
        yield server.hosts


def login_of(user: str) -> dict[str, Any]:
    return {
        "auth_data": [("digest", f"{user}:{PASSWORD}")],
        "default_acl": [make_digest_acl(user, PASSWORD, all=True)],
    }


def real_server(pytestconfig: pytest.Config, **options: Any) -> ZooKeeperServer:
    if pytestconfig.getoption("--zookeeper-kind") == "embedded":
        pytest.skip("only the embedded server is wanted")
    skip_without("zookeeper")
    return ZooKeeperServer(tick_time_ms=200, **options)


def as_team(hosts: str, **more: Any) -> Settings:
    given: dict[str, Any] = {"login_type": "digest", "login_user": "team", "access": "creator"}
    given |= {
        "login_password": PASSWORD,
        "root": ROOT,
        "secret": secret_of("key").encode(),
        "connect_timeout": 3.0,
    }
    return Settings(hosts=hosts, **given | more)


def problems(settings: Settings) -> list[Finding]:
    found = [finding for finding in findings_of(settings) if finding.state == "problem"]
    assert all(finding.todo for finding in found)
    assert PASSWORD not in str(found)
    return found


def test_a_sound_connection_has_no_problem(hosts: str) -> None:
    found = {finding.check: finding for finding in findings_of(as_team(hosts))}
    assert {finding.state for finding in found.values()} <= {"ok", "note"}
    assert set(found) == {
        *("login", "server", "version", "root", "rights", "access", "clock", "latency", "limits"),
        "serializer",
    }
    with plain_client(hosts, **login_of("team")) as raw:
        assert [name for name in raw.get_children(ROOT) if "check" in name] == []


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    if shutil.which("openssl") is None:
        not_available("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("authorities")
    return Authority(folder, "ours"), Authority(folder, "theirs")


@pytest.fixture(scope="module")
def tls_port(
    request: pytest.FixtureRequest, authorities: tuple[Authority, Authority]
) -> Iterator[int]:
    port = free_port()
    with real_server(request.config, config=secure(authorities[0], port)):
        wait_for_port(port)
        yield port


def test_a_server_certificate_of_another_authority_is_reported(
    tls_port: int, authorities: tuple[Authority, Authority]
) -> None:
    theirs = str(authorities[1].certificate)
    first, last = problems(as_team(f"{LOOPBACK}:{tls_port}", tls_ca=theirs))
    assert f"{tls_port}: its certificate is not signed by an authority of tls.ca" in first.told
    assert "set tls.ca" in first.todo
    assert last.told == "no server can be used"


def test_a_host_name_that_the_certificate_lacks_is_reported(
    tls_port: int, authorities: tuple[Authority, Authority]
) -> None:
    settings = as_team(f"localhost:{tls_port}", tls_ca=str(authorities[0].certificate))
    first, _ = problems(settings)
    assert f"its certificate is for {LOOPBACK}, not for localhost" in first.told
    assert "tls.server-name" in first.todo
    named = as_team(
        f"localhost:{tls_port}",
        tls_ca=str(authorities[0].certificate),
        tls_server_name=LOOPBACK,
    )
    assert problems(named) == []


def test_tls_on_one_side_only_is_reported(
    tls_port: int, hosts: str, authorities: tuple[Authority, Authority]
) -> None:
    first, _ = problems(as_team(f"{LOOPBACK}:{tls_port}"))
    assert "the port speaks TLS, and this connection does not" in first.told
    first, _ = problems(as_team(hosts, tls_ca=str(authorities[0].certificate)))
    assert "there is no TLS with it" in first.told


def test_a_certificate_that_has_expired_is_reported(
    request: pytest.FixtureRequest, tmp_path: Path, authorities: tuple[Authority, Authority]
) -> None:
    port, ours = free_port(), Authority(tmp_path, "expired")
    config = secure(ours, port)
    ours.sign_for_the_server(days=-1)
    with real_server(request.config, config=config):
        wait_for_port(port)
        first, _ = problems(as_team(f"{LOOPBACK}:{port}", tls_ca=str(ours.certificate)))
    assert "its certificate has expired" in first.told
    assert "give the server a new certificate" in first.todo


def test_a_wrong_password_is_reported(hosts: str) -> None:
    (found,) = problems(as_team(hosts, login_password="wrong"))
    assert found.told == (
        f"{ROOT} may not be read with this login: digest user team is not on its access list"
    )
    assert "is it the right user and password" in found.todo


def test_a_root_whose_parent_grants_no_rights_is_reported(hosts: str) -> None:
    with plain_client(hosts, **login_of("owner")) as raw:
        raw.ensure_path("/locked")
    (found,) = problems(as_team(hosts, root="/locked/zkplan"))
    assert found.told == (
        "nothing may be created below /locked: an access list forbids it; so /locked/zkplan cannot "
        "be created"
    )
    assert "have the owner of /locked give the right `create`" in found.todo


def test_a_wrong_root_is_reported(hosts: str) -> None:
    (found,) = problems(as_team(hosts, root="/team/zkplna"))
    assert found.told == f"/team/zkplna: there is no such root; beside it: {ROOT}"
    assert "set `root`" in found.todo


def test_a_root_that_others_can_read_is_reported(hosts: str) -> None:
    with zkplan.connect(hosts, "/open") as client:
        client.prepare()
    found = problems(as_team(hosts, root="/open"))
    told = "/open is open: without a login one may read+write+create+delete+admin"
    assert found[0].told == told


def test_a_root_that_is_open_to_an_address_counts_as_open(hosts: str) -> None:
    from_here = [make_acl("ip", "127.0.0.1", read=True), *login_of("team")["default_acl"]]
    options = login_of("team") | {"default_acl": from_here}
    with zkplan.connect(hosts, "/from-here", **options) as client:
        client.prepare()
        assert root_access(client).is_open
    (found,) = problems(as_team(hosts, root="/from-here"))
    assert found.told == "/from-here is open: without a login one may read"


def test_a_small_maxbuffer_is_reported(request: pytest.FixtureRequest) -> None:
    with real_server(request.config, jvm_options=["-Djute.maxbuffer=70000"]) as server:
        (found,) = problems(as_team(server.hosts))
    assert "jute.maxbuffer of the server is small" in found.told
    assert "about 60,000 bytes fit" in found.told
    assert "-Djute.maxbuffer=1048576" in found.todo


def test_a_clock_that_is_off_by_an_hour_is_reported(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if preloaded() is None:
        not_available("there is no libfaketime")
    stamp = tmp_path / "clock"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(stamp).items():
            patch.setenv(name, value)
        step(stamp, 3600)
        server = real_server(request.config).start()
    with server:
        (found,) = problems(as_team(server.hosts))
    assert found.told == "the clock of this machine is 1 h 0 min behind that of the server"
    assert "NTP" in found.todo


@pytest.mark.timeout(180)
def test_a_read_only_server_is_reported(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--zookeeper-kind") == "embedded":
        pytest.skip("only the embedded server is wanted")
    skip_without("zookeeper")
    options = ["-Dreadonlymode.enabled=true"]
    with ZooKeeperEnsemble(tick_time_ms=200, jvm_options=options) as ensemble:
        last = ensemble.servers[0]
        for server in ensemble.servers[1:]:
            server.kill()
        wait_until(lambda: last.mode == "read-only", "it only reads", 60.0)
        found = problems(as_team(last.hosts))
    assert "read-only: it has lost the other members of its ensemble" in found[0].told
    assert "start the other members" in found[0].todo


def test_an_old_server_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lacks what is told: as ZooKeeper before 3.6 it refuses batches of reads."""
    monkeypatch.delitem(wire._READERS, wire._MULTI_READ)
    with EmbeddedServer(is_open=True) as server:
        (alone,) = problems(as_team(server.hosts))  # whatever it says of its version
        monkeypatch.setattr(words, "VERSION", "3.4.14-4c25d480e66, built on 03/06/2019 16:18 GMT")
        said, tried = problems(as_team(server.hosts))
        with zkplan.connect(server.hosts, **login_of("team")) as client:
            assert client.create_plan("old").status().name == "old"
            assert not client.transport.reads_batches
    assert "is an old ZooKeeper 3.4.14: it reads one znode at a time" in said.told
    assert alone == tried
    assert tried.told == "the server reads one znode at a time, as ZooKeeper before 3.6 does"
    assert {each.todo for each in (said, tried)} == {"upgrade it to 3.9.4 or newer"}


@pytest.mark.parametrize("name", ["tls", "sasl"])
def test_a_login_that_the_server_refuses_is_reported(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if request.config.getoption("--zookeeper-kind") == "embedded":
        pytest.skip("only the embedded server is wanted")
    with secured(name, tmp_path) as server:
        settings = as_team(server.hosts, login_password="wrong", login_type="sasl-digest-md5")
        if name == "tls":
            trusted = str(server.outsiders[0]["ca"])
            settings = Settings(hosts=server.hosts, tls_ca=trusted, connect_timeout=3.0)
        found = problems(settings)[0]
    assert re.search(
        "set tls.certificate" if name == "tls" else "check user and password", found.todo
    )


def test_config_check_exits_with_one_if_it_finds_a_problem(tmp_path: Path) -> None:
    with secured("embedded", tmp_path) as server:
        env = {"ZKPLAN_CONFIG": str(server.write(tmp_path))}
        sound = zkplan_command("config", "check", env=env)
        assert (sound.returncode, sound.stderr) == (0, "")
        assert f"note     root: there is no {ROOT} yet\n         the first worker" in sound.stdout
        broken = zkplan_command("config", "check", "--root", "/x/y", "-o", "json", env=env)
        assert broken.returncode == 0
        (tmp_path / "password").chmod(0o644)
        broken = zkplan_command("config", "check", env=env)
    assert broken.returncode == 1
    assert re.search(
        r"problem  login: .*zkplan.toml:\d+\): the login file .* can read it", broken.stdout
    )
