"""The placeholders of a command, and the values that take their places.

A value never becomes part of the text that a shell parses: the shell gets it in a variable, and the
text has the variable in double quotes. So no value can be taken for a word of the shell, whatever
stands around the placeholder. What people read is quoted with `shlex.quote`.
"""

from __future__ import annotations

import keyword
import os
import re
import shlex
import string
from collections.abc import Mapping
from typing import Any

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
