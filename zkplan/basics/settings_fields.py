"""Define the settings of a connection in one table: type, default, check, help, and who may set it.

Arguments, options, variables of the environment and profiles all follow this table.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InvalidSettings
from .text import size_from

#: The values of `login.type`.
DIGEST, SASL_DIGEST, SASL_GSSAPI = "digest", "sasl-digest-md5", "sasl-gssapi"
LOGIN_TYPES = (DIGEST, SASL_DIGEST, SASL_GSSAPI)
#: The values of `serializer`.
PICKLE, JSON = "pickle", "json"
SERIALIZERS = (PICKLE, JSON)
#: The values of `share`.
GREEDY, BALANCED, WEIGHTED = "greedy", "balanced", "weighted"
POLICIES = (GREEDY, BALANCED, WEIGHTED)
#: Maximum and default of `task-output`, in bytes.
OUTPUT_MAX, OUTPUT_DEFAULT = 64 * 1024, 16 * 1024
#: Default and maximum of `inline-limit`, in bytes.
INLINE_LIMIT, INLINE_LIMIT_MAX = 32 * 1024, 512 * 1024
#: The prefix of the origin of a field that a profile sets.
OF_PROFILE = "profile "


# ---- Access lists as users write them: `creator+read:digest:ops:HASH`.


#: ZooKeeper's rights by name: read, write, create and delete children, change the list.
RIGHTS = {"read": 1, "write": 2, "create": 4, "delete": 8, "admin": 16, "all": 31}
#: The plus sign before an entry, and not a plus sign in the base64 of a digest.
_NEXT = re.compile(rf"\+(?=creator(?:\+|$)|open(?:\+|$)|(?:{'|'.join(RIGHTS)})[,:])")
_WANTED = (
    "`open`, `creator`, or entries such as `creator+read:digest:USER:HASH` "
    f"(rights: {', '.join(RIGHTS)}; several with commas between)"
)


class Entry(NamedTuple):
    """The rights of one identity. `rights` is a sum of numbers from RIGHTS."""

    rights: int
    scheme: str
    id: str


#: All rights for each login of the client that creates the znode.
CREATOR = Entry(RIGHTS["all"], "auth", "")
OPEN = Entry(RIGHTS["all"], "world", "anyone")


def entries(access: str) -> list[Entry]:
    """Return the entries of an access list. Raises ValueError, whose text says what is expected.

    >>> entries("creator+read,write:x509:CN=ops")
    [Entry(rights=31, scheme='auth', id=''), Entry(rights=3, scheme='x509', id='CN=ops')]
    >>> entries("read:digest:ops:a+b=+all:ip:10.0.0.1")[0].id
    'ops:a+b='
    """
    return [_entry(text.strip()) for text in _NEXT.split(access)]


def _entry(text: str) -> Entry:
    if text in ("creator", "open"):
        return CREATOR if text == "creator" else OPEN
    rights, _, who = text.partition(":")
    scheme, _, name = who.partition(":")
    names = set(rights.split(","))
    if not scheme or not name or not names <= RIGHTS.keys():
        raise ValueError(_WANTED)
    total = 0
    for each in names:
        total |= RIGHTS[each]
    return Entry(total, scheme, name)


# ---- Checks of values. Each takes a value from a file, a variable or a program, and the folder
# that relative paths start from. It raises ValueError, whose text completes "must be …".


_TIME_MAX_S = 3600.0
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Kind(NamedTuple):
    """The kind of a value: its name in the help of a command, and its check."""

    metavar: str
    read: Callable[[Any, Path], Any]


def _text(given: Any, _: Path) -> str:
    if not isinstance(given, str):
        raise ValueError("a text in quotes")
    if "\n" in given or "\0" in given:
        raise ValueError("a text of one line")
    return given


def _secret(given: Any, _: Path) -> bytes:
    if isinstance(given, str):
        return os.fsencode(given)
    if not isinstance(given, bytes):
        raise ValueError("text or bytes")
    return given


def _seconds(given: Any, _: Path) -> float:
    try:
        found = float(given) if isinstance(given, str | int | float) else 0.0
    except ValueError:
        found = 0.0
    if isinstance(given, bool) or not 0 < found <= _TIME_MAX_S:
        raise ValueError(f"a number of seconds above 0, at most {_TIME_MAX_S:g}")
    return found


def _flag(given: Any, _: Path) -> bool:
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given.lower() in (*_YES, *_NO):
        return given.lower() in _YES
    raise ValueError("true or false")


def _path(given: Any, folder: Path) -> str:
    text = _text(os.fspath(given) if isinstance(given, Path) else given, folder)
    try:
        return str(folder / Path(text).expanduser()) if text else ""
    except RuntimeError:
        raise ValueError("a path; this user has no home folder") from None


def _paths(given: Any, folder: Path) -> tuple[str, ...]:
    if isinstance(given, str):
        given = [each for each in given.split(os.pathsep) if each]
    if not isinstance(given, list | tuple):
        raise ValueError("a list of paths")
    return tuple(_path(each, folder) for each in given)


def _names(given: Any, folder: Path) -> tuple[str, ...]:
    if isinstance(given, str):
        given = given.replace(",", " ").split()
    if not isinstance(given, list | tuple):
        raise ValueError("a name or a list of names")
    return tuple(_text(each, folder) for each in given)


def _access(given: Any, folder: Path) -> str:
    if isinstance(given, list | tuple):
        given = "+".join(_text(each, folder) for each in given)
    entries(_text(given, folder))
    return str(given)


def _one_of(choices: Sequence[str]) -> Kind:
    def read(given: Any, _: Path) -> str:
        if given not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return str(given)

    return Kind("NAME", read)


def _size(maximum: int) -> Kind:
    def read(given: Any, _: Path) -> int:
        try:
            found = size_from(given) if isinstance(given, str | int) else -1
        except ValueError:
            found = -1
        if not 0 <= found <= maximum:
            raise ValueError(f"a size of at most {maximum // 1024}KiB, or 0")
        return found

    return Kind("SIZE", read)


_TEXT, _URL, _FLAG = Kind("TEXT", _text), Kind("URL", _text), Kind("", _flag)
_FILE, _FILES, _TIME = Kind("FILE", _path), Kind("FILE", _paths), Kind("SECONDS", _seconds)


# ---- The table.


@dataclass(frozen=True)
class Field:
    """One row of the table."""

    kind: Kind
    #: The meaning of the field, for the help of commands.
    text: str
    default: Any
    #: The harm to the user that a `zkplan.toml` in the current folder could do with this field, as
    #: the end of a message: "may not …". Such a file may set the field only if this is empty.
    harm: str = "may not set it"
    #: The values that such a file may set all the same.
    harmless: tuple[Any, ...] = ()
    #: Whether messages must not show the value.
    is_secret: bool = False
    #: Whether every command has an option for the field. A password has none, because every user
    #: of the machine can read command lines.
    has_option: bool = True
    #: Whether only an argument of a call sets the field, and no profile or variable.
    is_argument: bool = False
    #: The name in Settings and among the arguments of a call.
    attribute: str = ""

    @property
    def name(self) -> str:
        """The name in a profile, where a dot separates table and key.

        >>> BY_ATTRIBUTE["tls_server_name"].name
        'tls.server-name'
        """
        return re.sub("^(login|tls)_", r"\1.", self.attribute).replace("_", "-")

    @property
    def variable(self) -> str:
        """
        >>> BY_NAME["tls.server-name"].variable
        'ZKPLAN_TLS_SERVER_NAME'
        """
        return f"ZKPLAN_{self.attribute.upper()}"

    @property
    def option(self) -> str:
        """
        >>> BY_NAME["tls.server-name"].option, BY_NAME["secret-files"].option
        ('--tls-server-name', '--secret-file')
        """
        return "--" + self.name.replace(".", "-").replace("secret-files", "secret-file")

    def read(self, given: Any, origin: str, folder: Path) -> Any:
        """Check `given` and return its value. Raises InvalidSettings, which names the origin."""
        try:
            return self.kind.read(given, folder)
        except ValueError as error:
            shown = "" if self.is_secret else f", not {given!r:.60}"
            raise InvalidSettings(f"{origin}: {self.name} must be {error}{shown}") from None


def _row(default: Any, kind: Kind, text: str, harm: str | None = None, **more: Any) -> Any:
    field = Field(kind, text, default, **more if harm is None else {"harm": harm, **more})
    return dataclasses.field(default=default, repr=not field.is_secret, metadata={"row": field})


_KERBEROS = "may not use your Kerberos tickets"
_OWN_KEY = "may not use a key of yours"


@dataclass(frozen=True)
class Settings:
    """How to connect. Times are in seconds, sizes in bytes; an empty text means "not set"."""

    # fmt: off
    hosts: str = _row(
        "127.0.0.1:2181", _TEXT, "ZooKeeper servers as host:port, separated by commas; a chroot "
        "may follow. With embedded:FOLDER this process starts a server that keeps its data in "
        "FOLDER, or uses the server that already does.", harm="",
    )
    root: str = _row("/zkplan", _TEXT, "The znode below which plans and workers live.", harm="")
    login_type: str = _row(
        "", _one_of(LOGIN_TYPES), f"How to log in: {', '.join(LOGIN_TYPES)}. With a user it is "
        "digest by default.", harm=_KERBEROS, harmless=(DIGEST, SASL_DIGEST),
    )
    login_user: str = _row("", _TEXT, "The user that logs in.", harm="")
    login_password: str = _row(
        "", _TEXT, "The password of the user.", harm="", is_secret=True, has_option=False
    )
    login_file: str = _row(
        "", _FILE, "A file whose first line is the password of login.user, or USER:PASSWORD if "
        "login.user is not set.", harm="may not send the content of a file",
    )
    login_command: str = _row(
        "", Kind("COMMAND", _text), "A command whose output begins with such a line, for example "
        "`pass show zk`. The command runs without a shell.", harm="may not run a command",
    )
    login_service: str = _row(
        "", _TEXT, "The service of the Kerberos principal of the servers.", _KERBEROS
    )
    login_principal: str = _row("", _TEXT, "The Kerberos principal to log in with.", _KERBEROS)
    access: str = _row(
        "", Kind("TEXT", _access), "Who may use the znodes that this client creates: open, "
        "creator, and RIGHTS:SCHEME:ID, joined by plus signs. With a login the default is creator.",
        harm="may not let others use what you create", harmless=("creator", ["creator"]),
    )
    tls_ca: str = _row(
        "", _FILE, "Use TLS, and trust the authorities in this file.",
        harm="may not choose whose certificates count",
    )
    tls_system_ca: bool = _row(
        False, _FLAG, "Use TLS, and trust the authorities that the system trusts.", harm=""
    )
    tls_certificate: str = _row(
        "", _FILE, "The certificate of this client.", harm="may not use a certificate of yours"
    )
    tls_key: str = _row(
        "", _FILE, "The key of the certificate, if it is not in the same file.", _OWN_KEY
    )
    tls_key_password_file: str = _row(
        "", _FILE, "A file whose first line decrypts the key.", _OWN_KEY
    )
    tls_server_name: str = _row(
        "", _TEXT, "The name that the servers' certificate must have.",
        harm="may not choose which name a certificate must have",
    )
    tls_check_host_name: bool = _row(
        True, _FLAG, "Whether to check the name in the certificate against the host or "
        "tls.server-name.",
        harm="may not turn off the check of host names", harmless=(True,),
    )
    secret: bytes = _row(
        b"", Kind("", _secret), "The lines of a file with keys, for a program that has them from "
        "elsewhere.", is_secret=True, has_option=False, is_argument=True,
    )
    secret_files: tuple[str, ...] = _row(
        (), _FILES, "A file with keys, one ID:KEY on each line. The first key of the first file "
        "seals what this client writes. The client reads only what one of the keys has sealed.",
        harm="may not choose whose records count as yours",
    )
    store: str = _row(
        "", _URL, "The store for large values: the URL of a folder that authors and workers reach, "
        "such as file:///FOLDER or s3://BUCKET/FOLDER.",
        harm="may not choose where values are read and written",
    )
    inline_limit: int = _row(
        INLINE_LIMIT, _size(INLINE_LIMIT_MAX), "Values larger than this go to the store. At most "
        f"{INLINE_LIMIT_MAX // 1024}KiB; 0 stores all values.", harm="",
    )
    serializer: str = _row(
        PICKLE, _one_of(SERIALIZERS), "How to write tasks: pickle, or json. With json nothing is "
        "unpickled, and a task names its function.", harm="",
    )
    queue: tuple[str, ...] = _row(
        (), Kind("NAME", _names), "A queue to serve, by default the queue `default`. Repeat the "
        "option for more queues, the preferred one first.", harm="", has_option=False,
    )
    share: str = _row(
        WEIGHTED, _one_of(POLICIES), "How plans of equal priority share the slots. greedy: the "
        "oldest plan goes first. balanced: each plan gets equal running time. weighted: each gets "
        "running time by its weight.", harm="", has_option=False,
    )
    task_output: int = _row(
        OUTPUT_DEFAULT, _size(OUTPUT_MAX), "How much of each attempt's last output (prints and "
        "logs) to keep with the history of its plan: see `zkplan task logs`. At most "
        f"{OUTPUT_MAX // 1024}KiB; 0 keeps nothing.", harm="", has_option=False,
    )
    session_timeout: float = _row(
        10.0, _TIME, "Seconds of silence after which others take over the tasks of a worker.",
        harm="",
    )
    connect_timeout: float = _row(10.0, _TIME, "Seconds to wait for a connection.", harm="")
    # fmt: on
    #: The name of the chosen profile; empty without one.
    profile: str = ""
    #: The origin of each field that a source sets, by attribute name.
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    @property
    def has_login(self) -> bool:
        """Whether this client has a login or a certificate that identifies it to servers."""
        return bool(self.login_type or self.tls_certificate)

    @property
    def names_server(self) -> bool:
        """Whether a source names the ZooKeeper, rather than the default alone."""
        return bool(self.profile or "hosts" in self.origins)

    @property
    def uses_tls(self) -> bool:
        return bool(self.tls_ca or self.tls_system_ca)

    @property
    def by_profile(self) -> frozenset[str]:
        """The fields that come from the profile."""
        return frozenset(
            name for name, origin in self.origins.items() if origin.startswith(OF_PROFILE)
        )


FIELDS = tuple(
    dataclasses.replace(each.metadata["row"], attribute=each.name)
    for each in dataclasses.fields(Settings)
    if each.metadata
)
BY_NAME = {field.name: field for field in FIELDS}
BY_ATTRIBUTE = {field.attribute: field for field in FIELDS}
#: Groups of fields of which a source sets one: that hides the whole group in weaker sources.
ALTERNATIVES = (
    ("login.password", "login.file", "login.command"),
    ("secret", "secret-files"),
    ("tls.ca", "tls.system-ca"),
)
#: The variables that hold secrets.
SECRET_VARIABLES = [field.variable for field in FIELDS if field.is_secret]
