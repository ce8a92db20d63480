"""Merge arguments, environment and profile into settings, and keep secrets from other processes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..errors import InvalidSettings
from .log import get_logger
from .private import read_private
from .profiles import find_profile, refuse_fields, refuse_meeting
from .settings_fields import (
    ALTERNATIVES,
    BY_ATTRIBUTE,
    BY_NAME,
    DIGEST,
    FIELDS,
    OF_PROFILE,
    SASL_GSSAPI,
    SECRET_VARIABLES,
    Settings,
)

__all__ = ["Settings", "one_setting", "resolve"]


# ---- Merge the sources: arguments and options, then the environment, then a profile.


logger = get_logger("zkplan.settings")

_PROFILE = "ZKPLAN_PROFILE"


def resolve(
    given: Mapping[str, Any] | None = None,
    profile: str | None = None,
    *,
    takes_default: bool = True,
    as_options: bool = False,
    proofs: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    warn: Callable[[str], None] = logger.warning,
) -> Settings:
    """Take each field from the strongest source that sets it.

    `given` maps attributes of Settings to the arguments of a call, or (`as_options`) the options of
    a command; None means "not given". `profile`, or else ZKPLAN_PROFILE, names the profile. The
    default profile of a file counts only if `takes_default`, and only if no source gives hosts or
    names a profile: otherwise its login could go to a host that it is not for. `proofs` names other
    logins of the caller.

    Raises InvalidSettings for a mistake in a file, a variable or an option. `warn` is called with
    the reason why a file is not trusted.
    """
    environment = os.environ if environment is None else environment
    folder = _current_folder() if folder is None else folder
    merging = _Merging()
    named = profile if profile is not None else environment.get(_PROFILE, "")
    arguments = {name: value for name, value in (given or {}).items() if value is not None}
    has_hosts = "hosts" in arguments or environment.get(BY_NAME["hosts"].variable)
    found = None
    if named or (takes_default and not has_hosts):
        found = find_profile(named, environment, folder, warn)
    if found is not None:
        if found.is_of_folder:
            refuse_fields(found)
        merging.add(
            found.values,
            lambda name: f"{OF_PROFILE}{found.name} ({found.places[name]})",
            found.file.parent,
        )
    variables = {
        field.name: environment[field.variable]
        for field in FIELDS
        if environment.get(field.variable)
    }
    if "secret" in variables:  # ignoring it would let the user believe that it works
        raise InvalidSettings(
            "ZKPLAN_SECRET is set, but keys come from files only, since every task can read the "
            "environment of its worker: write it to a file, and set ZKPLAN_SECRET_FILES to the file"
        )
    merging.add(variables, lambda name: BY_NAME[name].variable, folder)
    by_name = {BY_ATTRIBUTE[name].name: value for name, value in arguments.items()}
    merging.add(
        by_name,
        lambda name: BY_NAME[name].option if as_options else f"{BY_NAME[name].attribute}=",
        folder,
    )
    if found is not None and found.is_of_folder:
        refuse_meeting(found, merging.values, merging.is_from_profile, proofs)
    return merging.settings(found.name if found is not None else "")


def one_setting(name: str, given: Any = None) -> Any:
    """Return the value of one field: `given`, else its variable, else the default. No profile.

    Raises InvalidSettings.
    """
    field = BY_ATTRIBUTE[name]
    if given is not None:
        return field.read(given, f"{name}=", _current_folder())
    if variable := os.environ.get(field.variable):
        return field.read(variable, field.variable, _current_folder())
    return field.default


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:  # deleted while this process works in it
        return Path("/")


class _Merging:
    """The values merged so far, by field, and the origin of each."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._origins: dict[str, str] = {}

    def add(self, source: Mapping[str, Any], origin: Callable[[str], str], folder: Path) -> None:
        """Add the fields of `source`, which is stronger than the sources added before."""
        for group in ALTERNATIVES:
            if any(name in source for name in group):
                for name in group:
                    self.values.pop(name, None)
                    self._origins.pop(name, None)
        for name, given in source.items():
            self.values[name] = BY_NAME[name].read(given, origin(name), folder)
            self._origins[name] = origin(name)

    def is_from_profile(self, name: str) -> bool:
        return self._origins.get(name, "").startswith(OF_PROFILE)

    def settings(self, profile: str) -> Settings:
        """Return the result. Raises InvalidSettings if fields contradict each other."""
        self._complete()
        values = {BY_NAME[name].attribute: value for name, value in self.values.items()}
        origins = {BY_NAME[name].attribute: origin for name, origin in self._origins.items()}
        return Settings(**values, profile=profile, origins=origins)

    def _complete(self) -> None:
        values, origins = self.values, self._origins
        secrets = [name for name in ALTERNATIVES[0] if values.get(name)]
        if len(secrets) > 1:
            raise self._error(secrets[1], f"{secrets[0]} is set as well: keep one of them")
        if (secrets or values.get("login.user")) and not values.get("login.type"):
            values["login.type"], origins["login.type"] = DIGEST, "default with a user"
        kind = values.get("login.type")
        if kind and kind != SASL_GSSAPI and not secrets:
            raise self._error(
                "login.user" if "login.user" in values else "login.type",
                "a password is missing: set login.file or login.command (or the variable "
                "ZKPLAN_LOGIN_PASSWORD)",
            )
        if "login.password" in secrets and not values.get("login.user"):
            raise self._error("login.password", "login.user is missing")
        if kind == SASL_GSSAPI and secrets:
            raise self._error(secrets[0], f"{SASL_GSSAPI} uses tickets from kinit, not a password")
        has_authority = values.get("tls.ca") or values.get("tls.system-ca")
        for name in values:
            is_asked = name.startswith("tls.") and name != "tls.check-host-name"
            if is_asked and values[name] and not has_authority:
                raise self._error(
                    name,
                    "TLS needs an authority to trust: set tls.ca to a file with your authorities, "
                    "or tls.system-ca to true",
                )
        if values.get("tls.key") and not values.get("tls.certificate"):
            raise self._error("tls.key", "tls.certificate is missing")
        if (kind or values.get("tls.certificate")) and "access" not in values:
            values["access"], origins["access"] = "creator", "default with a login"

    def _error(self, name: str, text: str) -> InvalidSettings:
        return InvalidSettings(f"{self._origins[name]}: {name}: {text}")


# ---- The password of a login, from its file or its command.


#: Long enough for a command that asks the user for the passphrase of a key.
_COMMAND_S = 120.0


def with_password(settings: Settings) -> Settings:
    """Read the password from its file or command, and return settings with it.

    Raises InvalidSettings.
    """
    if settings.login_file:
        what = f"{settings.origins.get('login_file', 'login.file')}: the login file"
        line = first_line_of(settings.login_file, what)
    elif settings.login_command:
        what = f"{settings.origins.get('login_command', 'login.command')}: the login command"
        line = _first_line(_printed(settings.login_command, what), what)
    else:
        return settings
    user, password = settings.login_user, line
    if not user:
        user, colon, password = line.partition(":")
        if not colon:
            raise InvalidSettings(f"{what} must give USER:PASSWORD, because login.user is not set")
    return replace(
        settings, login_user=user, login_password=password, login_file="", login_command=""
    )


def first_line_of(path: str, what: str) -> str:
    """Read the first line of a file that only its owner may read. Raises InvalidSettings."""
    return _first_line(read_private(path, what), what)


def _printed(command: str, what: str) -> bytes:
    try:
        words = shlex.split(command)
        # Errors of the command, and its question for a passphrase, go to the terminal.
        ran = subprocess.run(words, stdout=subprocess.PIPE, timeout=_COMMAND_S, check=False)
    except (OSError, ValueError, IndexError) as error:
        raise InvalidSettings(f"{what} `{command}` cannot run: {error}") from None
    except subprocess.TimeoutExpired:
        raise InvalidSettings(
            f"{what} `{command}` printed nothing within {_COMMAND_S:g} s"
        ) from None
    if ran.returncode:
        raise InvalidSettings(f"{what} `{command}` ended with {ran.returncode}")
    return ran.stdout


def _first_line(content: bytes, what: str) -> str:
    try:
        line = content.decode().partition("\n")[0].rstrip("\r")
    except UnicodeDecodeError:
        line = ""
    if not line:
        raise InvalidSettings(f"{what} gives no password: its first line is empty or not UTF-8")
    return line


# ---- Remove secrets from the environment of this process.
#
# `/proc/PID/environ` shows the memory that a process began with. Unsetting a variable leaves its
# value there, where every process of the same user can read it, and so every task.


def take_secrets_away() -> None:
    """Unset the variables that hold secrets, and overwrite their values with zeros.

    The process that started this one may still hold the secrets.
    """
    import ctypes  # only commands that run tasks or serve need it

    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name in SECRET_VARIABLES:
        value = libc.getenv(name.encode())
        if value is not None:
            ctypes.memset(value, 0, len(ctypes.string_at(value)))
        os.environ.pop(name, None)


# ---- Hand settings with their secrets to a child process, through a pipe that it inherits.
#
# Every user can read the command line of a process, and each task the environment of its worker.
# The child reads the pipe once, before a task runs.


#: The environment variable that holds the descriptor of the pipe.
_FD = "ZKPLAN_SETTINGS_FD"
#: On every system, a pipe holds this much before anyone reads from it.
_PIPE_BYTES = 16_384


class Handed:
    """Settings on their way to one child process, which inherits the descriptor `to_pass`."""

    def __init__(self, settings: Settings) -> None:
        """Write `settings` into a pipe. Raises InvalidSettings if they are too long."""
        values = asdict(settings)
        values |= {"secret": settings.secret.hex(), "origins": dict(settings.origins)}
        content = json.dumps(values).encode()
        if len(content) > _PIPE_BYTES:
            raise InvalidSettings("the settings are too long for a child process")
        self.to_pass, write = os.pipe()
        try:
            os.write(write, content)
        finally:
            os.close(write)

    def environment(self) -> dict[str, str]:
        """The environment variables that the child process needs."""
        return {_FD: str(self.to_pass)}

    def was_passed(self) -> None:
        """Close this process's copy of the descriptor, once the child has its own."""
        os.close(self.to_pass)


def take_handed() -> Settings | None:
    """Return the settings handed to this process at the first call; later, or without any, None."""
    # Processes that this one or its tasks start must inherit neither variable nor descriptor.
    number = os.environ.pop(_FD, None)
    if number is None:
        return None
    with open(int(number), "rb") as pipe:
        values = json.loads(pipe.read())
    values["secret"] = bytes.fromhex(values["secret"])
    for name in ("secret_files", "queue"):
        values[name] = tuple(values[name])
    return Settings(**values)
