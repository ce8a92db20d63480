"""Find and read a profile, and refuse what a file in the current folder may not set."""

from __future__ import annotations

import difflib
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InvalidSettings
from .private import trusted_reason, why_readable
from .settings_fields import BY_NAME, JSON

FILE = "zkplan.toml"
_MOST_BYTES = 1_000_000
_TABLES = {name.partition(".")[0] for name in BY_NAME if "." in name}
_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


class Profile(NamedTuple):
    """A profile: the `values` that it sets, by field name, and the `FILE:LINE` of each."""

    name: str
    values: dict[str, Any]
    places: dict[str, str]
    file: Path
    #: Whether the file counts only because it lies in the current folder.
    is_of_folder: bool


def find_profile(
    name: str,
    environment: Mapping[str, str],
    folder: Path,
    warn: Callable[[str], None],
) -> Profile | None:
    """Return the profile `name`, or if `name` is empty the first default profile of the files.

    Returns None if `name` is empty and no file has a default. Raises InvalidSettings if there is no
    such profile, or if a file has a mistake.
    """
    warnings: list[str] = []
    files = [_File(path, is_near) for path, is_near in _paths(environment, folder, warnings)]
    for text in warnings:
        warn(text)
    wanted = name or next(filter(None, (file.default for file in files)), "")
    if not wanted:
        return None
    for file in files:
        if wanted in file.profiles:
            return file.profile(wanted)
    where = ", ".join(str(file.path) for file in files)
    known = sorted({each for file in files for each in file.profiles})
    raise InvalidSettings(
        f"there is no profile {wanted!r}: "
        + (f"{where} {'has' if len(files) == 1 else 'have'} " if files else "")
        + (f"{', '.join(known)}" if known else "no profile" if files else _no_file(environment))
        + "".join(f"; {text}" for text in warnings)
    )


def config_home(environment: Mapping[str, str]) -> Path:
    """The folder of the user's own file: XDG_CONFIG_HOME, or ~/.config."""
    given = environment.get("XDG_CONFIG_HOME", "")
    if given.startswith("/"):  # the XDG standard ignores a relative path
        return Path(given)
    home = environment.get("HOME", "")
    return (Path(home) if home else Path("~").expanduser()) / ".config"


def _no_file(environment: Mapping[str, str]) -> str:
    return f"write {config_home(environment) / FILE} (see `zkplan config show --help`)"


def _paths(
    environment: Mapping[str, str], folder: Path, warnings: list[str]
) -> Iterator[tuple[Path, bool]]:
    """Yield each file to read, nearest first, and whether it is that of the current folder.

    Appends to `warnings` why a file is not used.
    """
    given = environment.get("ZKPLAN_CONFIG", "")
    if given:
        yield (folder / Path(given).expanduser()).absolute(), False
        return
    here, own = folder / FILE, config_home(environment) / FILE
    if here.exists() and not (own.exists() and here.samefile(own)):
        if reason := trusted_reason(here):
            warnings.append(
                f"{here} is not used: {reason}. If you trust it, set ZKPLAN_CONFIG={here}"
            )
        else:
            yield here, True
    if own.exists():
        yield own, False


class _File:
    """One file of profiles, parsed. Raises InvalidSettings."""

    def __init__(self, path: Path, is_of_folder: bool) -> None:
        self.path, self._is_of_folder = path, is_of_folder
        try:
            with path.open("rb") as opened:
                self._status = os.fstat(opened.fileno())
                content = opened.read(_MOST_BYTES + 1)
        except OSError as error:
            raise InvalidSettings(f"{path} cannot be read: {error.strerror or error}") from None
        if len(content) > _MOST_BYTES:
            raise InvalidSettings(
                f"{path} is larger than {_MOST_BYTES:,} bytes: is it the right file?"
            )
        if self._status.st_mode & stat.S_IWOTH:
            raise InvalidSettings(
                f"{path}: every user of this machine may change it: chmod o-w {path}"
            )
        try:
            self._text = content.decode()
            parsed = _parsed(self._text)
        except (ValueError, RecursionError) as error:
            raise InvalidSettings(f"{path} is not TOML: {error}") from None
        for key in parsed:
            if key not in ("default", "profiles"):
                raise self._error(
                    [key],
                    f"there is no such field{_close(key, ['default', 'profiles'])}"
                    "; write the fields of a profile under [profiles.NAME]",
                )
        self.default = parsed.get("default", "")
        if not isinstance(self.default, str):
            raise self._error(["default"], "must be the name of a profile, in quotes")
        self.profiles = parsed.get("profiles", {})
        if not isinstance(self.profiles, dict):
            raise self._error(["profiles"], "must be tables: [profiles.NAME]")

    def profile(self, name: str) -> Profile:
        """Return a profile with known fields only. Its values are unchecked, as TOML gives them."""
        table = self.profiles[name]
        keys = ["profiles", name]
        if not isinstance(table, dict):
            raise self._error(keys, f"must be a table: [profiles.{name}]")
        values: dict[str, Any] = {}
        places: dict[str, str] = {}
        for key, value in self._fields(table, keys):
            values[key] = value
            places[key] = f"{self.path}:{line_of(self._text, [*keys, *key.split('.')])}"
        if "login.password" in values and (reason := why_readable(self._status)):
            raise InvalidSettings(
                f"{places['login.password']}: the file holds a password, and {reason}: "
                f"chmod 600 {self.path}"
            )
        return Profile(name, values, places, self.path, self._is_of_folder)

    def _fields(self, table: dict[str, Any], keys: list[str]) -> Iterator[tuple[str, Any]]:
        names = [name for name, field in BY_NAME.items() if not field.is_argument]
        for key, value in table.items():
            if key in _TABLES and isinstance(value, dict):
                for inner, given in value.items():
                    if f"{key}.{inner}" not in names:
                        of_table = [n.partition(".")[2] for n in names if n.startswith(f"{key}.")]
                        raise self._unknown([*keys, key, inner], of_table)
                    yield f"{key}.{inner}", given
            elif key in names:
                yield key, value
            else:
                plain = [name for name in names if "." not in name]
                raise self._unknown([*keys, key], [*plain, *sorted(_TABLES)])

    def _unknown(self, keys: Sequence[str], known: Sequence[str]) -> InvalidSettings:
        if keys[-1] in _TABLES:
            return self._error(keys, f"must be a table: [{'.'.join(keys)}]")
        if keys[-1] == "secret":
            return self._error(keys, "write the secret into a file, and name it in secret-files")
        close = _close(keys[-1], known)
        return self._error(keys, f"there is no such field{close or ': ' + ', '.join(known)}")

    def _error(self, keys: Sequence[str], text: str) -> InvalidSettings:
        line = line_of(self._text, keys)
        return InvalidSettings(f"{self.path}:{line}: {'.'.join(keys)}: {text}")


def _parsed(text: str) -> dict[str, Any]:
    # Imported late: most machines have no file of profiles.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    found: dict[str, Any] = tomllib.loads(text)
    return found


def _close(name: str, known: Sequence[str]) -> str:
    """
    >>> _close("hostss", ["hosts", "root"])
    '; did you mean hosts?'
    """
    found = difflib.get_close_matches(name.replace("_", "-"), known, 1)
    return f"; did you mean {found[0]}?" if found else ""


def line_of(text: str, keys: Sequence[str]) -> int:
    """Return the number of the line of a TOML document that sets `keys`, or of the nearest table.

    >>> text = '[profiles."a"]\\nhosts = "x"\\ntls.ca = "y"'
    >>> line_of(text, ["profiles", "a", "hosts"]), line_of(text, ["profiles", "a", "tls", "ca"])
    (2, 3)
    """
    best, at, table = 0, 1, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            path = table = _parts(header[1])
        elif key := _KEY.match(line):
            path = table + _parts(key[1])
        else:
            continue
        if len(path) > best and path == list(keys[: len(path)]):
            best, at = len(path), number
    return at


def _parts(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


# ---- What a `zkplan.toml` in the current folder may set.
#
# The folder may come from anywhere, for example a clone or an archive. So its file may choose a
# ZooKeeper, and options for it. The file must not send a secret of the user there, have code run or
# files read, or make other servers of the user less safe.


#: Prefixes of the fields that prove to a server, or to readers, who the user is.
_PROOFS = ("login.", "tls.certificate", "tls.key", "secret")


def refuse_fields(found: Profile) -> None:
    """Raise InvalidSettings for the first field of the profile that may harm the user."""
    for name, value in found.values.items():
        field = BY_NAME[name]
        if field.harm and value not in field.harmless:
            raise _refusal(found, name, field.harm)
    _refuse_folder(found)


def refuse_meeting(
    found: Profile,
    values: Mapping[str, Any],
    is_own: Callable[[str], bool],
    proofs: Sequence[str],
) -> None:
    """Refuse the profile's hosts with secrets from elsewhere, and its password for other hosts.

    `values` are merged from all sources; `is_own(name)` tells whether a field comes from the
    profile; `proofs` names secrets that are not settings. Raises InvalidSettings.
    """
    if not is_own("hosts"):
        if "hosts" in values and is_own("login.password"):
            raise _refusal(found, "login.password", "may log in only to hosts that it names itself")
        return
    foreign = [name for name in values if name.startswith(_PROOFS) and not is_own(name)]
    for name in [*proofs, *filter(values.get, foreign)]:
        raise _refusal(
            found, "hosts", f"may not choose hosts that get {name}, which comes from elsewhere"
        )
    if values.get("serializer") != JSON:
        raise _refusal(
            found,
            "hosts",
            "may not choose hosts whose pickles run code here, unless its profile has "
            f'serializer = "{JSON}"',
        )


def _refuse_folder(found: Profile) -> None:
    """Refuse an embedded server outside of the current folder: it reads and writes files."""
    hosts = found.values.get("hosts")
    if not isinstance(hosts, str) or not hosts.startswith("embedded:"):
        return
    folder = found.file.parent.resolve()
    try:
        data = (folder / Path(hosts.partition(":")[2]).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):
        return  # not a folder: connecting reports that
    if folder not in (data, *data.parents):
        raise _refusal(found, "hosts", "may not choose a data folder outside of the current folder")


def _refusal(found: Profile, name: str, reason: str) -> InvalidSettings:
    return InvalidSettings(
        f"{found.places[name]}: {name}: a file of the current folder {reason}. If you trust it, "
        f"set ZKPLAN_CONFIG={found.file}, or move the profile to ~/.config/zkplan.toml"
    )
