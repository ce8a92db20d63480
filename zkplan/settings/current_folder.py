"""What a `zkplan.toml` of the current folder may set: nothing that harms who only entered it.

The folder may come from anywhere: a clone, an archive. So its file may choose a ZooKeeper, and how
to work with it. It may not send a secret of the user there, have code run or files read, or make
other servers of the user less safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidSettings
from .profiles import Profile
from .settings import JSON, LOGIN_TYPES, SASL_GSSAPI

_SAFE = (
    *("hosts", "root", "login.user", "login.password", "tls.system-ca", "inline-limit"),
    *("serializer", "queue", "share", "task-output", "session-timeout", "connect-timeout"),
)
#: Fields that are safe with some values only.
_SAFE_VALUES: dict[str, tuple[Any, ...]] = {
    "access": ("creator", ["creator"]),
    "login.type": tuple(each for each in LOGIN_TYPES if each != SASL_GSSAPI),
    "tls.check-host-name": (True,),
}
#: What a field would do, or a value of it that is not safe. One that is nowhere here is refused.
_REFUSED = {
    "access": "may not let others use what you create",
    "login.type": "may not use your Kerberos tickets",
    "login.file": "may send the content of no file",
    "login.command": "may run no command",
    "login.service": "may not use your Kerberos tickets",
    "login.principal": "may not use your Kerberos tickets",
    "tls.ca": "may not choose whose certificates count",
    "tls.certificate": "may not use a certificate of yours",
    "tls.key": "may not use a key of yours",
    "tls.key-password-file": "may not use a key of yours",
    "tls.server-name": "may not choose which name a certificate must have",
    "tls.check-host-name": "may not turn off the check of host names",
    "secret-files": "may not choose whose records count as yours",
    "store": "may not choose where values are read and written",
}
#: What proves to a server, or to readers, that it is the user who sends.
_PROOFS = ("login.", "tls.certificate", "tls.key", "secret")


def refuse_fields(found: Profile) -> None:
    """Raises InvalidSettings for the first field of the profile that is not safe."""
    for name, value in found.values.items():
        if name in _SAFE or value in _SAFE_VALUES.get(name, ()):
            continue
        raise _refusal(found, name, _REFUSED.get(name, "may not set it"))
    _refuse_folder(found)


def refuse_meeting(
    found: Profile,
    values: Mapping[str, Any],
    is_own: Callable[[str], bool],
    proofs: Sequence[str],
) -> None:
    """Refuse hosts of the profile with secrets from elsewhere, or the other way round.

    `values` are merged from all sources, and `is_own` says which come from the profile; `proofs`
    are secrets that are no settings. Raises InvalidSettings.
    """
    if not is_own("hosts"):
        if "hosts" in values and is_own("login.password"):
            raise _refusal(found, "login.password", "may log in to no hosts but its own")
        return
    foreign = [name for name in values if name.startswith(_PROOFS) and not is_own(name)]
    for name in [*proofs, *filter(values.get, foreign)]:
        raise _refusal(
            found, "hosts", f"may choose no hosts that get {name}, which comes from elsewhere"
        )
    if values.get("serializer") != JSON:
        raise _refusal(
            found,
            "hosts",
            "may choose no hosts whose pickles run code here: with serializer = "
            f'"{JSON}" in its profile it may',
        )


def _refuse_folder(found: Profile) -> None:
    """An embedded server reads and writes files: those of the current folder alone."""
    hosts = found.values.get("hosts")
    if not isinstance(hosts, str) or not hosts.startswith("embedded:"):
        return
    folder = found.file.parent.resolve()
    try:
        data = (folder / Path(hosts.partition(":")[2]).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):
        return  # it names no folder: who connects says so
    if folder not in (data, *data.parents):
        raise _refusal(found, "hosts", "may name no data folder outside of it")


def _refusal(found: Profile, name: str, what: str) -> InvalidSettings:
    return InvalidSettings(
        f"{found.places[name]}: {name}: the file of the current folder {what}. If you trust it, "
        f"set ZKPLAN_CONFIG={found.file}, or move the profile to ~/.config/zkplan.toml"
    )
