"""Make a shell command a task (`zkplan.shell`), fill its placeholders, and run it in a worker."""

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
#: The most characters of stderr, and of the command, in the text of a failure.
_STDERR_TOLD = 1500
_COMMAND_TOLD = 300
_NOT_JSON = (
    "with check=False a command gives a ShellResult, which does not travel as JSON (serializer "
    "json): leave out check=False, or let the command print its exit code"
)
#: Not below "zkplan": `zkplan worker --quiet` silences zkplan's own messages only.
logger = logging.getLogger("shell")


class ShellResult(NamedTuple):
    """The result of a command with `check=False`. `exit_code` is negative if a signal ended the
    command. `stderr` has at most its last 16 KiB."""

    exit_code: int
    stdout: str
    stderr: str


class ShellCommand:
    """A command to pass to `Plan.add_task`. A call inside the `with` block of a plan adds a task;
    a call elsewhere runs the command."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.__signature__ = _signature(definition)
        command = definition["command"]
        text = " ".join((command if isinstance(command, str) else shlex.join(command)).split())
        self.__qualname__ = self.__name__ = text if len(text) <= 60 else f"{text[:59]}…"
        #: The function that the task calls instead, which each worker can import, and its first
        #: argument: so no function travels by value.
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

    A string runs in `/bin/sh`; a list of strings runs without a shell. Each placeholder `{name}`
    is an argument of the task. Pass it by name, or by position, in the order in which placeholders
    first appear. A value is a string, a number, a path, or a list of them, which becomes several
    words. A value may be the result of another task. Values are always safe: the shell never reads
    a value as code. Write braces of the command itself twice, and placeholders outside quotes.

    The result is the stdout of the command, as UTF-8, without trailing newlines. If stdout exceeds
    `output_limit` bytes, its end is kept, and the first line says how many bytes were cut. The
    worker logs stderr. An exit code other than 0 raises ShellFailed; with `check=False` the result
    is a ShellResult instead.

    The worker's machine must have `cwd`. `env` is added to the worker's environment, without
    `ZKPLAN_SECRET` and `ZKPLAN_LOGIN_PASSWORD`. The command reads `input` from stdin. A string
    may have placeholders; their values (here also bytes) are inserted unquoted. Bytes have no
    placeholders. All processes of the command are one group. The group ends when the command ends,
    when the task is cancelled or times out, or when the worker stops or dies: by SIGTERM, and five
    seconds later by SIGKILL. A process that leaves the group (setsid) is not ended.

    Raises InvalidTask for a wrong command, placeholder or option.
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
    """The function of every shell task. `shell` makes `definition` from its own arguments.

    Raises ShellFailed, TaskCancelled, OSError for a `cwd` that does not exist, and TypeError or
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
        how += f" (one of its processes was ended by {by})"
    shown = told if len(told) <= _COMMAND_TOLD else f"{told[:_COMMAND_TOLD]}…"
    tail = f":\n{stderr[-_STDERR_TOLD:]}" if stderr else ", and wrote nothing to stderr"
    raise ShellFailed(name, f"`{shown}` {how}{tail}", ended.code, by, stderr)


def signal_name(code: int) -> str:
    """The signal that ended a command, also by its shell's code (128 + signal); empty if none did.

    >>> signal_name(-9), signal_name(143), signal_name(1)
    ('SIGKILL', 'SIGTERM', '')
    """
    try:
        return signal.Signals(-code if code < 0 else code - 128).name
    except ValueError:
        return ""


def _signature(definition: Mapping[str, Any]) -> inspect.Signature:
    """The arguments of a command, in order. Raises ValueError for a wrong placeholder."""
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
        return f"a command must be a string or a list of strings, and not empty: {command!r:.100}"
    env = definition.get("env", {})
    if not all(isinstance(each, str) for pair in env.items() for each in pair):
        return f"env must map strings to strings, not {env!r:.100}"
    if not isinstance(definition.get("cwd", ""), str):
        return f"cwd must be a path, not {definition['cwd']!r:.100}"
    if not isinstance(definition.get("input", ""), str | bytes):
        return f"input must be a string or bytes, not {definition['input']!r:.100}"
    if type(definition["check"]) is not bool:
        return f"check must be True or False, not {definition['check']!r:.100}"
    limit = definition["output_limit"]
    if type(limit) is not int or not 0 < limit <= OUTPUT_LIMIT_MAX:
        return f"output_limit must be 1 to {OUTPUT_LIMIT_MAX} bytes, not {limit!r:.100}"
    return ""


# ---- The placeholders of a command, and the values that replace them.
#
# A value never becomes part of the program that the shell parses. The shell gets the value in a
# variable, and the program has that variable in double quotes. So the shell cannot take a value
# for code, whatever surrounds the placeholder. For people, values are quoted by `shlex.join`.


#: The names of the variables that hold the values.
_VARIABLE = "zkplan_argument_{}"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: The characters that end a word of the shell: a `#` after one of them begins a comment.
_WORD_ENDS = frozenset(" \t\n;&|()")


class Template:
    """A text with placeholders (`{name}`); `{{` and `}}` stand for braces."""

    def __init__(self, text: str) -> None:
        """Raises ValueError if the braces of a placeholder hold anything but a name."""
        self.text = text
        #: Pairs of a text and the placeholder after it; empty if no placeholder follows.
        self.pieces: list[tuple[str, str]] = []
        try:
            for literal, name, form, conversion in string.Formatter().parse(text):
                if name is not None and (form or conversion or not _is_name(name)):
                    raise ValueError(f"{{{name}}} is not a placeholder")
                self.pieces.append((literal, name or ""))
        except ValueError as error:
            raise ValueError(
                f"{text!r:.200}: {error}; a placeholder is a name in braces. Write braces of the "
                "command itself twice: {{ and }}"
            ) from None

    @property
    def names(self) -> list[str]:
        """The placeholders, each once, in order."""
        return list(dict.fromkeys(name for _, name in self.pieces if name))

    def refuse_quoted(self) -> None:
        """Raise ValueError for a placeholder inside shell quotes or a here-document.

        There the value would not be a word of its own, although it still could not run as code.
        """
        state, before = "", " "
        for literal, name in self.pieces:
            state, before = _state_after(literal, state, before), "x"
            if name and state not in ("", "#"):
                where = "in a here-document" if state == "<<" else "inside quotes"
                raise ValueError(
                    f"{self.text!r:.200}: {{{name}}} is {where}, where it is not a word of its "
                    f"own: leave out the quotes, or set a variable first ({name}={{{name}}}; "
                    f'echo "… ${name}"), or pass a here-document as input='
                )

    def for_shell(self, values: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
        """The program for the shell, and the variables that the program uses."""
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
        """The command with its values, quoted as a person would type them."""
        text = ""
        for literal, name in self.pieces:
            text += literal + (shlex.join(words(name, values[name])) if name else "")
        return text

    def as_arguments(self, values: Mapping[str, Any]) -> list[str]:
        """One argument of a command without a shell; several if it is only `{name}`, of a list."""
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
        """The text with its values unquoted, for the input of a command."""
        return b"".join(
            literal.encode() + (_raw(name, values[name]) if name else b"")
            for literal, name in self.pieces
        )


def words(name: str, value: Any) -> list[str]:
    """The words for a value: one, or one for each item of a list. Raises TypeError, ValueError."""
    if isinstance(value, list | tuple):
        return [_word(name, item) for item in value]
    return [_word(name, value)]


def _word(name: str, value: Any) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(
            f"the argument {name} of a command must be a string, a number, a path or a list of "
            f"them, not {value!r:.100}"
        )
    text = str(value)
    if "\0" in text:
        raise ValueError(f"the argument {name} of a command contains a null character")
    return text


def _raw(name: str, value: Any) -> bytes:
    return value if isinstance(value, bytes) else _word(name, value).encode()


def _is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text)) and not keyword.iskeyword(text)


def _state_after(text: str, state: str, before: str) -> str:
    """The state of a shell after `text`: in quotes or after a backslash (that character), in a
    comment (`#`), in a here-document (`<<`), or none of them (empty). `state` and `before`, the
    previous character, describe the place before `text`.

    >>> [_state_after(each, "", " ") for each in ("a 'b' ", "a 'b", 'a "b" "', "a # it's", "a <<E")]
    ['', "'", '"', '#', '<<']
    """
    for each in text:
        if before == "\\" and state in ("", '"'):
            each = "x"  # a backslash makes any character an ordinary one
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
