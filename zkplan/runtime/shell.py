"""Make a command a task (`zkplan.shell`): its placeholders, and what runs it in a worker."""

from __future__ import annotations

import errno
import inspect
import keyword
import logging
import os
import re
import shlex
import signal
import string
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..author.functions import open_plans
from ..basics.settings_fields import SECRET_VARIABLES
from ..errors import InvalidTask, ShellFailed, ZkplanError
from .context import current
from .output import StderrLog
from .shell_process import Group

OUTPUT_LIMIT = 256 * 1024
OUTPUT_LIMIT_MAX = 64 * 1024 * 1024
STDERR_BYTES = 16 * 1024
#: How much of stderr the text of a failure has.
_STDERR_TOLD = 1500
_COMMAND_TOLD = 300
_NOT_JSON = (
    "with check=False a command gives a ShellResult, which does not travel as JSON (serializer "
    "json): leave check=False out, or let the command print its exit code"
)
#: Not below "zkplan": `zkplan worker --quiet` silences zkplan's own messages only.
logger = logging.getLogger("shell")


class ShellResult(NamedTuple):
    """What a command with `check=False` results in. A signal makes an `exit_code` below 0. Of
    `stderr` the last 16 KiB are kept."""

    exit_code: int
    stdout: str
    stderr: str


class ShellCommand:
    """A command to give to `Plan.add_task`. A call within the `with` block of a plan adds a task,
    and a call elsewhere runs the command."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.__signature__ = _signature(definition)
        command = definition["command"]
        text = " ".join((command if isinstance(command, str) else shlex.join(command)).split())
        self.__qualname__ = self.__name__ = text if len(text) <= 60 else f"{text[:59]}…"
        #: What the task calls instead: a function that each worker can import, and its first
        #: argument. So the task needs no function by value.
        self.zkplan_stands_for = (run_command, definition)
        #: Why it cannot be a task of a plan with serializer json; empty if it can.
        self.zkplan_not_json = "" if definition["check"] else _NOT_JSON

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        plans = open_plans.get()
        if plans:
            return plans[-1].add_task(self, args, kwargs)
        function, definition = self.zkplan_stands_for
        return function(definition, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<zkplan.shell {self.__name__}>"


def shell(
    command: str | Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: str | bytes | None = None,  # noqa: A002 (as subprocess.run calls it)
    output_limit: int = OUTPUT_LIMIT,
    check: bool = True,
) -> ShellCommand:
    """Make a command the function of tasks: `plan.add_task(zkplan.shell("sort {file}"), [path])`.

    A text is run by `/bin/sh`, a list of texts without a shell. Each `{name}` in it is an argument
    of the task, by name, or by position in the order in which they first stand there. Its value is
    text, a number, a path, or a list of them, which makes several words. It may be the result of
    another task. Values are always safe: no value is ever read as a part of the program. Braces of
    the command itself are written twice, and placeholders stand outside quotes.

    The result is what the command writes to stdout, as UTF-8, without the line ends behind it. Of
    more than `output_limit` bytes the last ones are kept, and the first line says how many were
    cut. What it writes to stderr is logged by the worker. An exit code other than 0 raises
    ShellFailed; with `check=False` the result is a ShellResult instead.

    `cwd` and `env` (added to the worker's environment) are those of the worker's machine. The
    command does not get `ZKPLAN_LOGIN_PASSWORD`. `input` is what the command reads from stdin:
    a text may have placeholders, too, whose values (here also bytes) are put in as they are; bytes
    have none. All processes of the command are one group, which ends with the command, and at the
    latest when the task is cancelled or timed out, or the worker stops or dies: SIGTERM, and five
    seconds later SIGKILL. A process that leaves the group (setsid) is not ended.

    Raises InvalidTask for a command, a placeholder or an option that is wrong.
    """
    definition: dict[str, Any] = {
        "command": command if isinstance(command, str) else [*command],
        "output_limit": output_limit,
        "check": check,
    }
    if cwd is not None:
        definition["cwd"] = os.fspath(cwd)
    if env is not None:
        definition["env"] = dict(env)
    if input is not None:
        definition["input"] = input
    problem = _problem(definition)
    if problem:
        raise InvalidTask("", f"zkplan.shell: {problem}")
    try:
        return ShellCommand(definition)
    except ValueError as error:
        raise InvalidTask("", f"zkplan.shell: {error}") from None


def run_command(definition: Mapping[str, Any], /, *args: Any, **kwargs: Any) -> Any:
    """The function of such a task. `definition` is what `shell` made of its arguments.

    Raises ShellFailed, TaskCancelled, OSError for a folder that is not there, and TypeError or
    ValueError for arguments that cannot be words of a command.
    """
    values = _signature(definition).bind(*args, **kwargs).arguments
    command = definition["command"]
    run: str | list[str]
    environment = {
        name: value for name, value in os.environ.items() if name not in SECRET_VARIABLES
    }
    environment.update(definition.get("env", {}))
    if isinstance(command, str):
        template = Template(command)
        run, variables = template.for_shell(values)
        environment.update(variables)
        told = template.for_people(values)
    else:
        run = [part for each in command for part in Template(each).as_arguments(values)]
        told = shlex.join(run)
    given = definition.get("input", b"")
    stdin = Template(given).as_bytes(values) if isinstance(given, str) else given
    try:
        context = current()
        name, check = context.name, context.check
    except ZkplanError:  # a plain call, outside a worker
        name, check = "", lambda: None
    try:
        group = Group(run, definition.get("cwd"), environment, stdin)
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise ValueError(
                f"{told:.{_COMMAND_TOLD}}: an argument is too long for a command line (128 KiB on "
                "Linux): write it to a file, or give it as input="
            ) from None
        raise
    log = StderrLog(logger, name or told[:60])
    ended = group.run((definition["output_limit"], STDERR_BYTES), log.add, check)
    log.close()
    stdout, stderr = ended.stdout.text(), ended.stderr.text()
    if ended.stdout.cut:
        logger.warning("%s: %d bytes of its output are cut", name or told[:60], ended.stdout.cut)
    if not definition["check"]:
        return ShellResult(ended.code, stdout, stderr)
    if ended.code == 0:
        return stdout
    by = signal_name(ended.code)
    how = f"was ended by {by}" if ended.code < 0 else f"ended with exit code {ended.code}"
    if by and ended.code > 0:
        how += f" (a process of it was ended by {by})"
    shown = told if len(told) <= _COMMAND_TOLD else f"{told[:_COMMAND_TOLD]}…"
    tail = f":\n{stderr[-_STDERR_TOLD:]}" if stderr else ", and wrote nothing to stderr"
    raise ShellFailed(name, f"`{shown}` {how}{tail}", ended.code, by, stderr)


def signal_name(code: int) -> str:
    """The signal that ended a command, also as a shell reports it; empty if none did.

    >>> signal_name(-9), signal_name(143), signal_name(1)
    ('SIGKILL', 'SIGTERM', '')
    """
    try:
        return signal.Signals(-code if code < 0 else code - 128).name
    except ValueError:
        return ""


def _signature(definition: Mapping[str, Any]) -> inspect.Signature:
    """The arguments of a command, in order. Raises ValueError for a placeholder that is wrong."""
    command, given = definition["command"], definition.get("input")
    if isinstance(command, str):
        Template(command).refuse_quoted()
    texts = [command] if isinstance(command, str) else [*command]
    if isinstance(given, str):
        texts.append(given)
    names = dict.fromkeys(name for text in texts for name in Template(text).names)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind) for name in names])


def _problem(definition: Mapping[str, Any]) -> str:
    """What is wrong with the options; empty if nothing is."""
    command = definition["command"]
    parts = [command] if isinstance(command, str) else command
    if not parts or not all(isinstance(each, str) for each in parts) or not parts[0].strip():
        return f"a command is a text or a list of texts, and not empty, unlike {command!r:.100}"
    env = definition.get("env", {})
    if not all(isinstance(each, str) for pair in env.items() for each in pair):
        return f"env maps names to texts, unlike {env!r:.100}"
    if not isinstance(definition.get("cwd", ""), str):
        return f"cwd is a path, not {definition['cwd']!r:.100}"
    if not isinstance(definition.get("input", ""), str | bytes):
        return f"input is text or bytes, not {definition['input']!r:.100}"
    if type(definition["check"]) is not bool:
        return f"check must be True or False, not {definition['check']!r:.100}"
    limit = definition["output_limit"]
    if type(limit) is not int or not 0 < limit <= OUTPUT_LIMIT_MAX:
        return f"output_limit must be 1 to {OUTPUT_LIMIT_MAX} bytes, not {limit!r:.100}"
    return ""


# ---- The placeholders of a command, and the values that take their places.
#
# A value never becomes part of the text that a shell parses: the shell gets it in a variable, and
# the text has the variable in double quotes. So no value can be taken for a word of the shell,
# whatever stands around the placeholder. What people read is quoted with `shlex.quote`.


#: The variables in which the shell finds the values.
_VARIABLE = "zkplan_argument_{}"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What ends a word of the shell: a `#` behind it begins a comment.
_WORD_ENDS = frozenset(" \t\n;&|()")


class Template:
    """A text with placeholders, `{name}` each; `{{` and `}}` stand for braces."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for a placeholder that is no name."""
        self.text = text
        #: Text and the name that follows it; the name is empty behind the last text.
        self.pieces: list[tuple[str, str]] = []
        try:
            for literal, name, form, conversion in string.Formatter().parse(text):
                if name is not None and (form or conversion or not _is_name(name)):
                    raise ValueError(f"{{{name}}} is no placeholder")
                self.pieces.append((literal, name or ""))
        except ValueError as error:
            raise ValueError(
                f"{text!r:.200}: {error}; a placeholder is a name in braces, and braces of the "
                "command itself are written twice: {{ and }}"
            ) from None

    @property
    def names(self) -> list[str]:
        """The placeholders, each once, in order."""
        return list(dict.fromkeys(name for _, name in self.pieces if name))

    def refuse_quoted(self) -> None:
        """Raise ValueError for a placeholder inside quotes of the shell or below a here-document.

        It would not be a word of its own there. No value could run as a command all the same.
        """
        state, before = "", " "
        for literal, name in self.pieces:
            state, before = _state_after(literal, state, before), "x"
            if name and state not in ("", "#"):
                where = "below a here-document" if state == "<<" else "inside quotes"
                raise ValueError(
                    f"{self.text!r:.200}: {{{name}}} stands {where}, where it is no word of its "
                    f"own: leave the quotes out, or set a variable first ({name}={{{name}}}; "
                    f'echo "… ${name}"), or use input= for a here-document'
                )

    def for_shell(self, values: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
        """The program of the shell, and the variables that it refers to."""
        variables: dict[str, str] = {}
        text = ""
        for literal, name in self.pieces:
            text += literal
            if name:
                found = []
                for word in words(name, values[name]):
                    variable = _VARIABLE.format(len(variables) + 1)
                    variables[variable] = word
                    found.append(f'"${{{variable}}}"')
                text += " ".join(found)
        return text, variables

    def for_people(self, values: Mapping[str, Any]) -> str:
        """The command with the values in it, quoted as one would type them."""
        text = ""
        for literal, name in self.pieces:
            text += literal + (shlex.join(words(name, values[name])) if name else "")
        return text

    def as_arguments(self, values: Mapping[str, Any]) -> list[str]:
        """One argument of a command that runs without a shell; a list alone makes several."""
        if len(self.pieces) == 1 and not self.pieces[0][0]:
            name = self.pieces[0][1]
            return words(name, values[name])
        return [
            "".join(
                literal + (_word(name, values[name]) if name else "")
                for literal, name in self.pieces
            )
        ]

    def as_bytes(self, values: Mapping[str, Any]) -> bytes:
        """The text with the values as they are, for the input of a command."""
        return b"".join(
            literal.encode() + (_raw(name, values[name]) if name else b"")
            for literal, name in self.pieces
        )


def words(name: str, value: Any) -> list[str]:
    """The words that a value makes: a list makes one of each item. Raises TypeError, ValueError."""
    if isinstance(value, list | tuple):
        return [_word(name, item) for item in value]
    return [_word(name, value)]


def _word(name: str, value: Any) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(
            f"the argument {name} of a command is text, a number, a path or a list of them, not "
            f"{value!r:.100}"
        )
    text = str(value)
    if "\0" in text:
        raise ValueError(f"the argument {name} of a command has a null character in it")
    return text


def _raw(name: str, value: Any) -> bytes:
    return value if isinstance(value, bytes) else _word(name, value).encode()


def _is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text)) and not keyword.iskeyword(text)


def _state_after(text: str, state: str, before: str) -> str:
    """What a shell is in behind `text`: quotes (also a backslash), a comment (`#`), or below a
    here-document (`<<`); empty where words stand. `before` is the character before the text.

    >>> [_state_after(each, "", " ") for each in ("a 'b' ", "a 'b", 'a "b" "', "a # it's", "a <<E")]
    ['', "'", '"', '#', '<<']
    """
    for each in text:
        if before == "\\" and state in ("", '"'):
            each = "x"  # it stands for itself
        elif state == "":
            if each in "'\"":
                state = each
            elif each == "#" and before in _WORD_ENDS:
                state = "#"
            elif each == "<" and before == "<":
                state = "<<"
        elif (state == "#" and each == "\n") or (state in "'\"" and each == state):
            state = ""
        before = each
    return "\\" if before == "\\" and state == "" else state
