"""How to connect: files, variables and options are merged field by field, and errors say where."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.protocol.serialization import SASL, Auth

import zkplan
from zkplan.basics.settings import (
    Handed,
    Settings,
    one_setting,
    resolve,
    take_handed,
    with_password,
)
from zkplan.basics.settings_fields import BY_NAME, FIELDS
from zkplan.errors import InvalidSettings
from zkplan.transport.kazoo_client import ComplaintLogger
from zkplan.transport.kazoo_repairs import repair

PROFILES = """\
default = "team"

[profiles.team]
hosts = "zk1:2181,zk2:2181"
root = "/team"
access = ["creator", "read:digest:ops:a+b="]
session-timeout = 4

[profiles.team.login]
user = "alice"
password = "hush"

[profiles.other]
hosts = "zk3:2181"
tls.ca = "ca.pem"
"""


#: Parts of a file of profiles, in any order.
TOKENS = (
    *("[profiles.a]\n", "[profiles]\n", "[profiles.a.tls]\n", "profiles = 3\n", 'default = "a"\n'),
    *('hosts = "x"\n', "a = 1\n", "login = []\n", "tls.ca = {}\n", "access = [1]\n", "[" * 2000),
    *("session-timeout = nan\n", "session-timeout = 1e999\n", "root = 1979-05-27\n", "'", '"""'),
    *('login.user = "u"\n', 'login.file = "\\u0000"\n', "secret-files = [[]]\n", "\\", "=", "\0"),
)


class Place:
    """A home with a file of profiles, and a current folder."""

    def __init__(self, folder: Path) -> None:
        self.home, self.here = folder / "home", folder / "here"
        self.own = self.home / ".config" / "zkplan.toml"
        self.own.parent.mkdir(parents=True)
        self.here.mkdir()
        self.told: list[str] = []
        self.write(PROFILES)

    def write(self, text: str, path: Path | None = None, mode: int = 0o600) -> Path:
        path = path or self.own
        path.write_text(text)
        path.chmod(mode)
        return path

    def resolve(
        self, given: dict[str, Any] | None = None, profile: str | None = None, **variables: str
    ) -> Settings:
        environment = {"HOME": str(self.home), **variables}
        return resolve(
            given, profile, environment=environment, folder=self.here, warn=self.told.append
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_an_argument_beats_a_variable_and_a_variable_beats_the_profile(place: Place) -> None:
    found = place.resolve({"root": "/given"}, "team", ZKPLAN_ROOT="/env", ZKPLAN_STORE="file:///s")
    assert (found.hosts, found.root, found.store) == ("zk1:2181,zk2:2181", "/given", "file:///s")
    assert found.session_timeout == 4
    assert found.origins["hosts"] == f"profile team ({place.own}:4)"
    assert found.origins["root"] == "root="
    assert found.origins["store"] == "ZKPLAN_STORE"
    assert found.by_profile >= {"hosts", "login_user"}


@pytest.mark.parametrize(
    ("given", "size"), [("64KiB", 65536), ("1000", 1000), ("0", 0), (0, 0), (524_288, 524_288)]
)
def test_the_inline_limit_can_come_from_each_source(
    place: Place, monkeypatch: pytest.MonkeyPatch, given: str | int, size: int
) -> None:
    place.write(f"[profiles.a]\ninline-limit = {json.dumps(given)}\n")
    assert place.resolve(profile="a").inline_limit == size
    assert place.resolve(ZKPLAN_INLINE_LIMIT=str(given)).inline_limit == size
    assert place.resolve({"inline_limit": given}, ZKPLAN_INLINE_LIMIT="7").inline_limit == size
    monkeypatch.setenv("ZKPLAN_INLINE_LIMIT", str(given))
    assert one_setting("inline_limit") == size
    assert one_setting("inline_limit", 7) == 7


@pytest.mark.parametrize("given", ["513KiB", "-1", "much", True, 1.5])
def test_an_inline_limit_that_is_not_a_size_is_refused(place: Place, given: object) -> None:
    with pytest.raises(InvalidSettings, match="inline-limit must be a size of at most 512KiB"):
        place.resolve({"inline_limit": given})


def test_the_default_profile_counts_only_if_no_hosts_are_given(place: Place) -> None:
    assert place.resolve().profile == "team"
    assert place.resolve(ZKPLAN_PROFILE="other").hosts == "zk3:2181"
    for found in place.resolve({"hosts": "zk9:2181"}), place.resolve(ZKPLAN_HOSTS="zk9:2181"):
        assert (found.hosts, found.login_user, found.profile) == ("zk9:2181", "", "")
    named = place.resolve({"hosts": "zk9:2181"}, "team")
    assert (named.hosts, named.login_user) == ("zk9:2181", "alice")


def test_a_password_of_a_stronger_source_replaces_that_of_the_profile(place: Place) -> None:
    file = place.write("better\n", place.here / "password")
    found = with_password(place.resolve({"login_file": str(file)}))
    assert (found.login_user, found.login_password) == ("alice", "better")
    assert found.login_type == "digest"
    assert "hush" not in repr(place.resolve())


def test_a_configured_command_supplies_user_and_password(place: Place) -> None:
    place.write('[profiles.a]\nlogin.command = "echo bob:s3cret:with colons"\n')
    found = with_password(place.resolve(profile="a"))
    assert (found.login_user, found.login_password) == ("bob", "s3cret:with colons")
    place.write('[profiles.a]\nlogin.command = "false"\n')
    with pytest.raises(InvalidSettings, match=r"zkplan\.toml:2\).*`false` ended with 1"):
        with_password(place.resolve(profile="a"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[profiles.a]\nhosst = "x"', r"toml:2: profiles\.a\.hosst: there is no .*mean hosts\?"),
        ('[profiles.a.tls]\n\ncaa = "x"', r"toml:3: profiles\.a\.tls\.caa: .*did you mean ca\?"),
        ("[profiles.a]\nhosts = 3", r"toml:2\): hosts must be a text in quotes, not 3"),
        ("[profiles.a]\nsession-timeout = 0", "toml:2.*session-timeout must be a number of sec"),
        ('[profiles.a]\naccess = "anyone"', "toml:2.*access must be `open`, `creator`"),
        ('[profiles.a]\ntls = "x"', "tls: must be a table"),
        ('[profiles.a]\nsecret = "x"', "toml:2.*name it in secret-files"),
        ('[profiles.a]\nlogin.user = "x"', "toml:2.*login.user: a password is missing"),
        ('[profiles.a]\nlogin.type = "plain"', "toml:2.*login.type must be one of digest, sasl"),
        ('[profiles.a]\ntls.key = "x"', "toml:2.*tls.key: TLS needs an authority"),
        ('[profiles.a]\nlogin.password = "x"', "login.password: login.user is missing"),
        ('hosts = "x"', r"toml:1: hosts: there is no such field; write .* under \[profiles.NAME"),
        ("[profiles.a]\nx = \n", r"is not TOML: .*line 2"),
        ('[profiles.b]\nhosts = "x"', "there is no profile 'a': .*toml has b"),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_line(place: Place, text: str, told: str) -> None:
    place.write(text)
    with pytest.raises(InvalidSettings, match=told):
        place.resolve(profile="a")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(TOKENS) | st.text(max_size=5)).map("".join) | st.binary(max_size=99)
)
def test_any_settings_file_is_read_or_refused(place: Place, text: str | bytes) -> None:
    place.own.write_bytes(text.encode("utf-8", "replace") if isinstance(text, str) else text)
    with contextlib.suppress(InvalidSettings):
        place.resolve(profile="a")


def test_a_wrong_variable_is_named_but_no_secret_shown(place: Place) -> None:
    with pytest.raises(InvalidSettings, match="ZKPLAN_CONNECT_TIMEOUT: connect-timeout must be"):
        place.resolve(ZKPLAN_CONNECT_TIMEOUT="soon")
    with pytest.raises(InvalidSettings, match="ZKPLAN_LOGIN_PASSWORD: ") as caught:
        place.resolve(ZKPLAN_LOGIN_PASSWORD="hush\nhush")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o604, 0o640])
def test_a_file_with_a_password_that_others_can_read_is_refused(place: Place, mode: int) -> None:
    if os.geteuid() == 0 and mode == 0o640:
        pytest.skip("the group may read what belongs to root")
    place.write(PROFILES, mode=mode)
    with pytest.raises(InvalidSettings, match=r"toml:11: the file holds a password.*chmod 600"):
        place.resolve()
    assert place.resolve(profile="other").hosts == "zk3:2181"


def test_a_file_that_others_may_change_is_refused(place: Place) -> None:
    place.write(PROFILES, mode=0o622)
    with pytest.raises(InvalidSettings, match="chmod o-w"):
        place.resolve()


def test_a_login_file_that_others_can_read_is_refused(place: Place) -> None:
    file = place.write("a:b\n", place.here / "password", mode=0o644)
    with pytest.raises(InvalidSettings, match=f"chmod 600 {file}"):
        with_password(place.resolve({"login_file": str(file)}))


def test_the_file_of_the_current_folder_comes_first(place: Place) -> None:
    text = '[profiles.team]\nhosts = "zk5:2181"\nserializer = "json"\n'
    here = place.write(text, place.here / "zkplan.toml")
    found = place.resolve(profile="team")
    # Taken whole: hosts of one file never meet the login of another.
    assert (found.hosts, found.login_user) == ("zk5:2181", "")
    assert place.resolve(profile="other").hosts == "zk3:2181"
    named = place.resolve(profile="team", ZKPLAN_CONFIG=str(place.own))
    assert (named.hosts, here.exists()) == ("zk1:2181,zk2:2181", True)


def test_a_folder_of_another_user_is_not_trusted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = place.write('[profiles.team]\nhosts = "zk5:2181"\n', place.here / "zkplan.toml")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if os.getuid() == 0:
        os.chown(place.here, 54321, -1)
    assert place.resolve(profile="team").hosts == "zk1:2181,zk2:2181"
    assert f"{here} is not used: the folder belongs to another user" in place.told[0]
    assert place.resolve(profile="team", ZKPLAN_CONFIG=str(here)).hosts == "zk5:2181"


def test_a_link_that_another_user_made_is_not_trusted(place: Place) -> None:
    if os.getuid() != 0:
        return  # only the superuser gives files away
    here = place.here / "zkplan.toml"
    here.symlink_to(place.write('[profiles.team]\nroot = "/x"\n', place.home / "mine.toml"))
    os.chown(here, 54321, -1, follow_symlinks=False)
    assert place.resolve(profile="team").root == "/team"
    assert "is not used: the file belongs to another user" in place.told[0]


#: Each field that a profile may set: lines that a file of the current folder may have, and others.
FROM_FOLDER: dict[str, tuple[list[str], list[str]]] = {
    "hosts": (
        ['hosts = "zk5:1"\nserializer = "json"', 'hosts = "embedded:plans"\nserializer = "json"'],
        [
            'hosts = "zk5:1"',
            'hosts = "zk5:1"\nserializer = "pickle"',
            'hosts = "embedded:../plans"\nserializer = "json"',
            'hosts = "embedded:~/plans"\nserializer = "json"',
        ],
    ),
    "root": (['root = "/theirs"'], []),
    "login.type": (
        ['login.type = "digest"\nlogin.user = "a"\nlogin.password = "b"'],
        ['login.type = "sasl-gssapi"'],
    ),
    "login.user": (['login.user = "a"\nlogin.password = "b"'], []),
    "login.password": (['login.password = "b"\nlogin.user = "a"'], []),
    "login.file": ([], [f'login.file = "{path}"' for path in ("password", "~/x", "../x", "/x")]),
    "login.command": ([], ['login.command = "touch ran"']),
    "login.service": ([], ['login.service = "host"']),
    "login.principal": ([], ['login.principal = "me"']),
    "access": (
        ['access = "creator"'],
        ['access = "open"', 'access = ["creator", "all:ip:1.1.1.1"]'],
    ),
    "tls.ca": ([], ['tls.ca = "ca.pem"']),
    "tls.system-ca": (["tls.system-ca = true"], []),
    "tls.certificate": ([], ['tls.certificate = "~/me.pem"']),
    "tls.key": ([], ['tls.key = "~/me.key"']),
    "tls.key-password-file": ([], ['tls.key-password-file = "~/word"']),
    "tls.server-name": ([], ['tls.server-name = "theirs.example.org"']),
    "tls.check-host-name": (["tls.check-host-name = true"], ["tls.check-host-name = false"]),
    "secret-files": ([], ['secret-files = ["zkplan.key"]', 'secret-files = ["~/zkplan.key"]']),
    "store": ([], ['store = "s3://theirs/values"', 'store = "file:///home"']),
    "inline-limit": (['inline-limit = "64KiB"'], []),
    "serializer": (['serializer = "json"', 'serializer = "pickle"'], []),
    "queue": (['queue = ["a", "b"]'], []),
    "share": (['share = "greedy"'], []),
    "task-output": (["task-output = 0"], []),
    "session-timeout": (["session-timeout = 4"], []),
    "connect-timeout": (["connect-timeout = 4"], []),
}


@pytest.mark.parametrize("name", [field.name for field in FIELDS if not field.is_argument])
def test_a_file_of_the_current_folder_sets_only_what_is_safe(place: Place, name: str) -> None:
    """The folder may come from anywhere. Whoever trusts its file names it."""
    taken, refused = FROM_FOLDER[name]
    here = place.here / "zkplan.toml"
    for text in taken:
        place.write(f"[profiles.a]\n{text}\n", here)
        assert place.resolve(profile="a").origins[BY_NAME[name].attribute].startswith("profile a")
    for text in refused:
        place.write(f"[profiles.a]\n{text}\n", here)
        with pytest.raises(InvalidSettings, match=rf"toml:2: {name}: .*ZKPLAN_CONFIG={here}"):
            place.resolve(profile="a")


@pytest.mark.parametrize(
    ("given", "variables"),
    [
        ({}, {"ZKPLAN_LOGIN_USER": "me", "ZKPLAN_LOGIN_PASSWORD": "hush"}),
        ({}, {"ZKPLAN_LOGIN_FILE": "password"}),
        ({}, {"ZKPLAN_LOGIN_COMMAND": "pass show zk"}),
        ({}, {"ZKPLAN_LOGIN_TYPE": "sasl-gssapi"}),
        ({}, {"ZKPLAN_TLS_CERTIFICATE": "me.pem", "ZKPLAN_TLS_CA": "ca.pem"}),
        ({}, {"ZKPLAN_SECRET_FILES": "zkplan.key"}),
        ({"secret": "k1:00"}, {}),
        ({"login_file": "password"}, {}),
    ],
)
def test_no_secret_of_the_user_goes_to_hosts_of_the_current_folder(
    place: Place, given: dict[str, Any], variables: dict[str, str]
) -> None:
    place.write('[profiles.a]\nserializer = "json"\nhosts = "zk5:1"\n', place.here / "zkplan.toml")
    with pytest.raises(
        InvalidSettings, match=r"toml:3: hosts: .* not choose hosts that get .*ZKPLAN_CONF"
    ):
        place.resolve(given, "a", **variables)
    assert place.resolve({**given, "hosts": "zk6:1"}, "a", **variables).hosts == "zk6:1"


def test_no_login_of_a_program_goes_to_hosts_of_the_current_folder(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write('[profiles.a]\nserializer = "json"\nhosts = "zk5:1"\n', place.here / "zkplan.toml")
    monkeypatch.chdir(place.here)
    with pytest.raises(InvalidSettings, match="not choose hosts that get auth_data"):
        zkplan.connect(profile="a", auth_data=[("digest", "me:hush")], connect_timeout=0.1)


def test_a_login_of_the_current_folder_goes_only_to_hosts_of_the_same_file(place: Place) -> None:
    """Whoever wrote the file could use what its login creates."""
    line = 'login = {user = "a", password = "b"}'
    place.write(f"[profiles.a]\n{line}\n", place.here / "zkplan.toml")
    with pytest.raises(InvalidSettings, match=r"login.password: .* only to hosts that it names"):
        place.resolve({"hosts": "zk6:1"}, "a")


def test_a_fifo_in_the_current_folder_is_ignored(place: Place) -> None:
    os.mkfifo(place.here / "zkplan.toml")
    assert place.resolve(profile="team").hosts == "zk1:2181,zk2:2181"
    assert "is not used: it is not a regular file" in place.told[0]


def test_the_file_of_the_user_is_trusted_even_from_its_own_folder(place: Place) -> None:
    place.write('[profiles.a]\nlogin.command = "pass show zk"\n')
    place.here = place.own.parent
    assert place.resolve(profile="a").login_command == "pass show zk"


def test_relative_paths_start_at_the_file_that_names_them(place: Place) -> None:
    assert place.resolve(profile="other").tls_ca == str(place.own.parent / "ca.pem")
    assert place.resolve(profile="other", ZKPLAN_TLS_CA="x.pem").tls_ca == str(place.here / "x.pem")


def test_a_login_closes_created_znodes_to_others(place: Place) -> None:
    assert place.resolve().access == "creator+read:digest:ops:a+b="
    assert place.resolve({"hosts": "zk1:1"}, ZKPLAN_LOGIN_FILE="x").access == "creator"
    assert place.resolve({"hosts": "zk1:1"}).access == ""


def test_settings_are_passed_to_a_child_once_and_completely(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = place.resolve({"secret": b"\xff\0", "root": "/x"}, "team")
    handed = Handed(wanted)
    for name, value in handed.environment().items():
        monkeypatch.setenv(name, value)
    taken = take_handed()
    assert taken == wanted
    assert taken is not None
    assert taken.origins == wanted.origins
    assert take_handed() is None


def test_no_password_is_logged_by_kazoo(caplog: pytest.LogCaptureFixture) -> None:
    """It logs each request that it sends."""
    logger = ComplaintLogger(logging.getLogger("zkplan.kazoo"), {})
    with caplog.at_level(logging.DEBUG, "zkplan.kazoo"):
        logger.debug("Sending request(xid=%s): %s", -4, Auth(0, "digest", "team:hush"))
        logger.debug("Sending request(xid=%s): %s", 1, SASL(b"hush"))
    assert caplog.messages == [
        "Sending request(xid=-4): Auth",
        "Sending request(xid=1): SASL",
    ]


def test_a_connection_lost_during_a_login_accepted_before_is_not_a_refusal() -> None:
    client = KazooClient("127.0.0.1:1")
    outcomes = iter(["lost", "taken", "lost", "refused"])

    def log_in(*_: object) -> None:
        outcome = next(outcomes)
        if outcome != "taken":
            cause = ConnectionDropped() if outcome == "lost" else ValueError()
            raise AuthFailedError(outcome) from cause

    client._connection._authenticate_with_sasl = log_in
    repair(client)
    again = client._connection._authenticate_with_sasl
    with pytest.raises(AuthFailedError):
        again("host", 1.0)
    again("host", 1.0)
    with pytest.raises(ConnectionDropped):
        again("host", 1.0)
    with pytest.raises(AuthFailedError):
        again("host", 1.0)


KEY = f"a:{bytes(range(32)).hex()}"


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        (["\n"], "is empty"),
        (["a"], "zkplan root new-key"),  # at b4e8416 one byte was taken
        ([f"a:{'00' * 32}"], "zkplan root new-key"),
        ([KEY[:-2]], "zkplan root new-key"),
        ([KEY, KEY], "an ID of its own"),
        ([f"a:rot13:{KEY[2:]}"], "the kind of a key must be one of"),
        ([f"a b:{KEY[2:]}"], "the ID of a key"),
    ],
)
def test_secret_files_without_strong_and_distinct_keys_are_refused(
    contents: list[str], told: str, tmp_path: Path
) -> None:
    """Without a key nothing would be sealed, and nobody would say so."""
    files = [tmp_path / f"key-{number}" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_text(content)
        file.chmod(0o600)
    with pytest.raises(InvalidSettings, match=told):
        zkplan.connect("127.0.0.1:1", secret_files=files, connect_timeout=0.1)
