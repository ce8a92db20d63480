"""The password of a login, from its file or its command."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace

from ..errors import InvalidSettings
from .private import read_private
from .settings import Settings

#: A command may ask the user for the passphrase of a key.
_COMMAND_S = 120.0


def with_password(settings: Settings) -> Settings:
    """The settings with `login_user` and `login_password`, instead of what leads to them.

    Runs the command, if the settings name one. Raises InvalidSettings.
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
            raise InvalidSettings(f"{what} gives no USER:PASSWORD: set login.user, or write both")
    return replace(
        settings, login_user=user, login_password=password, login_file="", login_command=""
    )


def first_line_of(path: str, what: str) -> str:
    """The first line of a file that only its owner may read. Raises InvalidSettings."""
    return _first_line(read_private(path, what), what)


def _printed(command: str, what: str) -> bytes:
    try:
        words = shlex.split(command)
        # Its errors, and the question for a passphrase, go to the terminal.
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
