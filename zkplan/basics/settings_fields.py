"""Define the settings of a connection: their names, types, defaults and checks."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InvalidSettings
from .text import size_from

#: What `login.type` may be.
DIGEST, SASL_DIGEST, SASL_GSSAPI = "digest", "sasl-digest-md5", "sasl-gssapi"
#: What `serializer` may be.
PICKLE, JSON = "pickle", "json"
SERIALIZERS = (PICKLE, JSON)
#: What `share` may be.
GREEDY, BALANCED, WEIGHTED = "greedy", "balanced", "weighted"
POLICIES = (GREEDY, BALANCED, WEIGHTED)
#: What `task-output` may be at most, and is by default, in bytes.
OUTPUT_MAX, OUTPUT_DEFAULT = 64 * 1024, 16 * 1024
#: A larger value goes to the store, unless another limit is given; and the largest limit.
INLINE_LIMIT, INLINE_LIMIT_MAX = 32 * 1024, 512 * 1024
#: What an origin begins with that is a profile.
OF_PROFILE = "profile "
LOGIN_TYPES = (DIGEST, SASL_DIGEST, SASL_GSSAPI)


@dataclass(frozen=True)
class Settings:
    """All that says how to connect. The fields are described in `fields.py`; times are in seconds.

    An empty text means that the field is not set. `origins` names for each field that is set where
    it came from.
    """

    hosts: str = "127.0.0.1:2181"
    root: str = "/zkplan"
    login_type: str = ""
    login_user: str = ""
    login_password: str = field(default="", repr=False)
    login_file: str = ""
    login_command: str = ""
    login_service: str = ""
    login_principal: str = ""
    access: str = ""
    tls_ca: str = ""
    tls_system_ca: bool = False
    tls_certificate: str = ""
    tls_key: str = ""
    tls_key_password_file: str = ""
    tls_server_name: str = ""
    tls_check_host_name: bool = True
    secret: bytes = field(default=b"", repr=False)
    secret_files: tuple[str, ...] = ()
    store: str = ""
    inline_limit: int = INLINE_LIMIT
    serializer: str = PICKLE
    queue: tuple[str, ...] = ()
    share: str = WEIGHTED
    task_output: int = OUTPUT_DEFAULT
    session_timeout: float = 10.0
    connect_timeout: float = 10.0
    #: The profile that was chosen; empty: none.
    profile: str = ""
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def has_login(self) -> bool:
        """Whether this client can be told from others: by a login or a certificate."""
        return bool(self.login_type or self.tls_certificate)

    @property
    def names_server(self) -> bool:
        """Whether anything says which ZooKeeper is meant, so that it is not only the default."""
        return bool(self.profile or "hosts" in self.origins)

    @property
    def uses_tls(self) -> bool:
        return bool(self.tls_ca or self.tls_system_ca)

    @property
    def by_profile(self) -> frozenset[str]:
        """The fields that are as the profile sets them."""
        return frozenset(
            name for name, origin in self.origins.items() if origin.startswith(OF_PROFILE)
        )


# ---- Access lists as users write them: `creator+read:digest:ops:HASH`.


#: The rights of ZooKeeper, by name. A list says who may read, write, create and delete children,
#: and change the list.
RIGHTS = {"read": 1, "write": 2, "create": 4, "delete": 8, "admin": 16, "all": 31}
#: A plus sign that begins another entry: that of a digest's base64 does not.
_NEXT = re.compile(rf"\+(?=creator(?:\+|$)|open(?:\+|$)|(?:{'|'.join(RIGHTS)})[,:])")
_WANTED = (
    "`open`, `creator`, or entries such as `creator+read:digest:USER:HASH` "
    f"(rights: {', '.join(RIGHTS)}; several with commas between)"
)


class Entry(NamedTuple):
    """Who has which rights: the sum of numbers of RIGHTS."""

    rights: int
    scheme: str
    id: str


#: Whoever creates a znode, by each login that the client has.
CREATOR = Entry(RIGHTS["all"], "auth", "")
OPEN = Entry(RIGHTS["all"], "world", "anyone")


def entries(access: str) -> list[Entry]:
    """The entries of a list. Raises ValueError, which says what is wanted.

    >>> entries("creator+read,write:x509:CN=ops")
    [Entry(rights=31, scheme='auth', id=''), Entry(rights=3, scheme='x509', id='CN=ops')]
    >>> entries("read:digest:ops:a+b=+all:ip:10.0.0.1")[0].id
    'ops:a+b='
    """
    return [_entry(text.strip()) for text in _NEXT.split(access)]


def check_access(access: str) -> str:
    """The same list, if it is one. Raises ValueError."""
    entries(access)
    return access


def _entry(text: str) -> Entry:
    if text in ("creator", "open"):
        return CREATOR if text == "creator" else OPEN
    rights, _, who = text.partition(":")
    scheme, _, name = who.partition(":")
    names = rights.split(",")
    if not scheme or not name or not all(each in RIGHTS for each in names):
        raise ValueError(_WANTED)
    total = 0
    for each in names:
        total |= RIGHTS[each]
    return Entry(total, scheme, name)


# ---- The fields that a profile, an option or a variable of the environment may set.


_TIME_MAX_S = 3600.0
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class Kind:
    """What a value may be. `read` takes what a file, a variable or a program gives.

    It raises ValueError, which says what is wanted. `folder` is what relative paths start from.
    """

    name: str
    read: Callable[[Any, Path], Any]


@dataclass(frozen=True)
class Field:
    """One field. `name` is its name in a profile: tables are separated by dots."""

    name: str
    kind: Kind
    text: str
    #: Whether its value is never shown.
    is_secret: bool = False
    #: Whether there is an option for it on the command line, where every user can read it.
    has_option: bool = True
    #: Whether each command lists its option in its help; if not, only `zkplan config show` does.
    is_common: bool = False
    #: Whether a profile, and a variable, may set it.
    in_profile: bool = True
    has_variable: bool = True
    metavar: str = "TEXT"

    @property
    def attribute(self) -> str:
        """
        >>> BY_NAME["tls.server-name"].attribute
        'tls_server_name'
        """
        return self.name.replace(".", "_").replace("-", "_")

    @property
    def variable(self) -> str:
        """
        >>> BY_NAME["tls.server-name"].variable
        'ZKPLAN_TLS_SERVER_NAME'
        """
        return "ZKPLAN_" + self.attribute.upper()

    @property
    def option(self) -> str:
        """
        >>> BY_NAME["tls.server-name"].option, BY_NAME["secret-files"].option
        ('--tls-server-name', '--secret-file')
        """
        words = "secret-file" if self.name == "secret-files" else self.name
        return "--" + words.replace(".", "-")

    def read(self, given: Any, origin: str, folder: Path) -> Any:
        """The value. Raises InvalidSettings, which names the origin."""
        try:
            return self.kind.read(given, folder)
        except ValueError as error:
            shown = "" if self.is_secret else f", not {given!r:.60}"
            raise InvalidSettings(f"{origin}: {self.name} must be {error}{shown}") from None


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
        given = [each for each in given.replace(",", " ").split() if each]
    if not isinstance(given, list | tuple):
        raise ValueError("a name or a list of names")
    return tuple(_text(each, folder) for each in given)


def _access(given: Any, folder: Path) -> str:
    if isinstance(given, list | tuple):
        given = "+".join(_text(each, folder) for each in given)
    return check_access(_text(given, folder))


def _login_type(given: Any, _: Path) -> str:
    if given not in LOGIN_TYPES:
        raise ValueError(f"one of {', '.join(LOGIN_TYPES)}")
    return str(given)


def _serializer(given: Any, _: Path) -> str:
    if given not in SERIALIZERS:
        raise ValueError(f"one of {', '.join(SERIALIZERS)}")
    return str(given)


def _policy(given: Any, _: Path) -> str:
    if given not in POLICIES:
        raise ValueError(f"one of {', '.join(POLICIES)}")
    return str(given)


def _size_up_to(most: int) -> Callable[[Any, Path], int]:
    def size(given: Any, _: Path) -> int:
        try:
            found = size_from(given) if isinstance(given, str | int) else -1
        except ValueError:
            found = -1
        if not 0 <= found <= most:
            raise ValueError(f"a size of at most {most // 1024}KiB, or 0")
        return found

    return size


_TEXT, _PATH, _FLAG = Kind("text", _text), Kind("path", _path), Kind("flag", _flag)
_SECONDS = Kind("seconds", _seconds)

FIELDS = (
    Field(
        "hosts",
        _TEXT,
        "ZooKeeper servers as host:port, separated by commas; a chroot may follow. With "
        "embedded:FOLDER this process starts a server that keeps its data in FOLDER, or uses the "
        "server that already does.",
        is_common=True,
    ),
    Field("root", _TEXT, "The znode below which plans and workers live.", is_common=True),
    Field(
        "login.type",
        Kind("type", _login_type),
        f"How to log in: {', '.join(LOGIN_TYPES)}. With a user it is digest by default.",
    ),
    Field("login.user", _TEXT, "The user that logs in."),
    Field(
        "login.password",
        _TEXT,
        "The password of the user.",
        is_secret=True,
        has_option=False,
    ),
    Field(
        "login.file",
        _PATH,
        "A file whose first line is the password of login.user, or USER:PASSWORD without one.",
        metavar="FILE",
    ),
    Field(
        "login.command",
        _TEXT,
        "A command that prints such a line, for example `pass show zk`. No shell runs it.",
        metavar="COMMAND",
    ),
    Field("login.service", _TEXT, "The service of the Kerberos principal of the servers."),
    Field("login.principal", _TEXT, "The Kerberos principal to log in with."),
    Field(
        "access",
        Kind("access", _access),
        "Who may use the znodes that are created: open, creator, and RIGHTS:SCHEME:ID, joined by "
        "a plus sign. With a login it is creator by default.",
        is_common=True,
    ),
    Field("tls.ca", _PATH, "Speak TLS, and trust the authorities in this file.", metavar="FILE"),
    Field("tls.system-ca", _FLAG, "Speak TLS, and trust the authorities that the system trusts."),
    Field("tls.certificate", _PATH, "The certificate of this client.", metavar="FILE"),
    Field(
        "tls.key", _PATH, "The key of the certificate, if it is not in its file.", metavar="FILE"
    ),
    Field(
        "tls.key-password-file",
        _PATH,
        "A file whose first line decrypts the key.",
        metavar="FILE",
    ),
    Field("tls.server-name", _TEXT, "The name that the servers' certificate must have."),
    Field("tls.check-host-name", _FLAG, "Whether that name, or the host's, is checked."),
    Field(
        "secret",
        Kind("secret", _secret),
        "The lines of a file with keys, of a program that has them from elsewhere.",
        is_secret=True,
        has_option=False,
        in_profile=False,
        has_variable=False,
    ),
    Field(
        "secret-files",
        Kind("paths", _paths),
        "A file with keys, one ID:KEY on each line. The first key of the first file seals what "
        "this client writes. It reads only what is sealed with one of the keys.",
        is_common=True,
        metavar="FILE",
    ),
    Field(
        "store",
        _TEXT,
        "Where large values lie: the URL of a folder that authors and workers reach, such as "
        "file:///FOLDER or s3://BUCKET/FOLDER.",
        is_common=True,
        metavar="URL",
    ),
    Field(
        "inline-limit",
        Kind("size", _size_up_to(INLINE_LIMIT_MAX)),
        "Values that are larger than this lie in the store: a size of at most "
        f"{INLINE_LIMIT_MAX // 1024}KiB, 0 for all.",
        is_common=True,
        metavar="SIZE",
    ),
    Field(
        "serializer",
        Kind("serializer", _serializer),
        "What tasks are written as: pickle, or json. With json nothing is unpickled, and functions "
        "go by name.",
        is_common=True,
        metavar="NAME",
    ),
    Field(
        "queue",
        Kind("names", _names),
        "The queues that `zkplan worker` serves, the preferred one first.",
        has_option=False,
    ),
    Field(
        "share",
        Kind("policy", _policy),
        f"How `zkplan worker` shares its slots between plans: {', '.join(POLICIES)}.",
        has_option=False,
    ),
    Field(
        "task-output",
        Kind("size", _size_up_to(OUTPUT_MAX)),
        "How much `zkplan worker` keeps of what each attempt prints and logs, the last of it: at "
        "most 64KiB; 0 keeps nothing.",
        has_option=False,
    ),
    Field(
        "session-timeout",
        _SECONDS,
        "Seconds after which others take over the tasks of a worker that is silent.",
        is_common=True,
        metavar="SECONDS",
    ),
    Field(
        "connect-timeout",
        _SECONDS,
        "Seconds to wait for a connection.",
        is_common=True,
        metavar="SECONDS",
    ),
)
BY_NAME = {field.name: field for field in FIELDS}
BY_ATTRIBUTE = {field.attribute: field for field in FIELDS}
#: Fields that stand for each other. A source that sets one of them hides all of a weaker source.
ALTERNATIVES = (
    ("login.password", "login.file", "login.command"),
    ("secret", "secret-files"),
    ("tls.ca", "tls.system-ca"),
)
#: The variables that hold secrets.
SECRET_VARIABLES = [field.variable for field in FIELDS if field.is_secret]
