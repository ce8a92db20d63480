"""Find functions by name, and check first whether a worker may run them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

from ..basics.text import summary_of
from ..errors import FunctionNotAllowed, PayloadUndecodable, ZkplanError
from .json_values import JSON

#: The longest name of a function and its module.
NAME_BYTES_MAX = 1000
#: Follows the name of a function that is called once for each item of its argument.
EACH = b"[]"
#: The module in which a task of `Plan.map` finds the function that calls another for each item.
_EACH_MODULE = "zkplan.author.task_specs"
#: Allows all commands of `zkplan.shell`, whose tasks name the function `_RUN_COMMAND`.
SHELL = "zkplan:shell"
_RUN_COMMAND = "zkplan.runtime.shell:run_command"


class Name(NamedTuple):
    """The name of a function: its module, and its qualified name there."""

    module: str
    qualname: str

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}"


class AllowList:
    """The functions that a worker or a replay may run: `MODULE:PATTERN`, `*` for any letters."""

    def __init__(self, entries: Iterable[str], *, may_be_empty: bool = False) -> None:
        """Raises ZkplanError for a malformed entry, and for an empty list."""
        self.entries = (entries,) if isinstance(entries, str) else tuple(entries)
        self._patterns = [_entry(text) for text in self.entries]
        if not self._patterns and not may_be_empty:
            raise ZkplanError(
                "with serializer json only allowed functions run: say which, such as "
                "--allow 'mypkg.tasks:*' (allow=['mypkg.tasks:*'] of Worker), or --kinds MODULE"
            )

    def check(self, name: Name) -> None:
        """Raises FunctionNotAllowed."""
        why = why_unfit(name)
        if not why and not any(
            name.module == module and fnmatchcase(name.qualname, pattern)
            for module, pattern in self._patterns
        ):
            wanted = SHELL if str(name) == _RUN_COMMAND else str(name)
            why = f"start workers (or the replay) with --allow '{wanted}', then retry the task"
        if why:
            allowed = ", ".join(self.entries)
            raise FunctionNotAllowed(
                str(name), f"{name} is not on the list of allowed functions ({allowed}): {why}"
            )


def _entry(text: str) -> tuple[str, str]:
    if text == SHELL:
        text = _RUN_COMMAND
    module, colon, pattern = text.partition(":")
    if not (colon and pattern and all(part.isidentifier() for part in module.split("."))):
        raise ZkplanError(
            f"an allowed function must be MODULE:PATTERN, like 'mypkg.tasks:*', not {text!r:.100}"
        )
    return module, pattern


def why_unfit(name: Name) -> str:
    """Why no worker may run a function of that name; empty if the function may be allowed."""
    if not all(part.isidentifier() for part in name.module.split(".")):
        return "the name of its module is not valid"
    for part in name.qualname.split("."):
        if not part.isidentifier():
            return "it is a lambda, or is defined inside a function"
        if part.startswith("_"):
            return f"{part} is private: a name that begins with an underscore is never run"
    return ""


def dump_name(function: Any, each: bool = False) -> bytes:
    """The name of a function that can be found by it. Raises ValueError, which says what to do."""
    module, qualname = (getattr(function, key, None) for key in ("__module__", "__qualname__"))
    todo = "put it at the top of a module that authors and workers can import"
    if module == "__main__":
        raise ValueError(f"it is defined in the program itself (`__main__`): {todo}")
    if not isinstance(module, str) or not isinstance(qualname, str):
        raise ValueError(f"{type(function).__qualname__} objects have no name: {todo}")
    name = Name(module, qualname)
    why = why_unfit(name)
    if why:
        raise ValueError(f"{why}: {todo}")
    try:
        is_found = _walk(name, sys.modules[module]) is function
    except (KeyError, FunctionNotAllowed, PayloadUndecodable):
        is_found = False
    if not is_found:
        raise ValueError(f"{name} names another object, or none: {todo}")
    dumped = JSON + str(name).encode() + (EACH if each else b"")
    if len(dumped) > NAME_BYTES_MAX:
        raise ValueError(f"its name has more than {NAME_BYTES_MAX} bytes")
    return dumped


def name_in(blob: bytes) -> Name:
    """The name in what `dump_name` made. Raises PayloadUndecodable for anything else."""
    if blob[:1] != JSON:
        raise PayloadUndecodable(
            "its function and arguments are pickles, and only JSON is decoded here (serializer "
            "json): a worker with serializer pickle can run it"
        )
    if len(blob) > NAME_BYTES_MAX:
        raise PayloadUndecodable(f"the name of its function has {len(blob)} bytes: it is damaged")
    module, _, qualname = blob[1:].removesuffix(EACH).decode(errors="replace").partition(":")
    return Name(module, qualname)


def load_by_name(blob: bytes, allowed: AllowList | None = None) -> Callable[..., Any]:
    """The function of that name. Imports nothing for a name that is not allowed.

    Without a list every function is allowed. Raises FunctionNotAllowed, PayloadUndecodable.
    """
    kind = kind_of_function(blob)
    if kind:
        return function_of_kind(kind)  # `--kinds` named its module at the start of the worker
    name = name_in(blob)
    if allowed is not None:
        allowed.check(name)
    elif why := why_unfit(name):
        raise PayloadUndecodable(f"{name} is not run: {why}")
    try:
        found = _walk(name, importlib.import_module(name.module))
    except (FunctionNotAllowed, PayloadUndecodable):
        raise
    except Exception as error:
        raise PayloadUndecodable(
            f"the function {name} cannot be imported: {summary_of(error)}"
        ) from error
    note_imports()
    if not blob.endswith(EACH):
        return found
    return partial(importlib.import_module(_EACH_MODULE).run_chunk, found)


def _walk(name: Name, module: Any) -> Callable[..., Any]:
    """The function that the name leads to in its module, only through classes of that module.

    `tasks:os.system` leads out of `tasks`: a module does not own what it imports.
    """
    found: Any = None
    parts: Sequence[str] = name.qualname.split(".")
    for depth, part in enumerate(parts):
        found = vars(module).get(part) if depth == 0 else getattr(found, part, None)
        path = f"{name.module}:{'.'.join(parts[: depth + 1])}"
        if found is None:
            raise PayloadUndecodable(f"there is no {path} here")
        is_own = getattr(found, "__module__", None) == name.module
        if not is_own or not (isinstance(found, type) or depth + 1 == len(parts)):
            raise FunctionNotAllowed(
                str(name), f"{name} is not run: {path} is not a function or class of that module"
            )
    if not callable(found):
        raise PayloadUndecodable(f"{name} cannot be called")
    return found  # type: ignore[no-any-return]


# ---- The kinds of tasks that this process runs: names that stand for functions, in any language.


#: Precedes the name of a kind, in place of a function.
_KIND = JSON + b"@"
_functions: dict[str, Callable[..., Any]] = {}


def register(kind: str, function: Callable[..., Any]) -> None:
    _functions[kind] = function


def registered() -> frozenset[str]:
    """The kinds that have a function in this process."""
    return frozenset(_functions)


def dump_kind(kind: str) -> bytes:
    return _KIND + kind.encode()


def kind_of_function(blob: bytes) -> str:
    """The kind that a dumped function names; empty if it names none.

    >>> kind_of_function(dump_kind("resize")), kind_of_function(b"Jmodule:name")
    ('resize', '')
    """
    return blob[2:].decode(errors="replace") if blob[:2] == _KIND else ""


def function_of_kind(kind: str) -> Callable[..., Any]:
    """The function of that kind. Raises PayloadUndecodable, because another worker may have it."""
    found = _functions.get(kind)
    if found is None:
        raise PayloadUndecodable(
            f"this worker has no function of kind {kind!r:.60}: start it with --kinds MODULE, a "
            "module that has one with @zkplan.kind"
        )
    return found


# ---- Which modules of users this process has imported, and which of their files have changed.


#: Files of Python and of installed packages are not checked for changes.
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

# No lock: a child forked while another thread holds it would wait for ever.
_seen: set[str] = set()
#: By module: its file, and the time and size that the file had when the module was first seen.
_imported: dict[str, tuple[str, tuple[int, int]]] = {}


def note_imports() -> None:
    """Note the state of the files of all modules that were imported since the last call. Call this
    right after an import, so that each later change of the file is noticed."""
    for name in sys.modules.keys() - _seen:
        file = _file_of(name)
        state = _state_of(file)
        if state is not None:
            _imported.setdefault(name, (file, state))
        _seen.add(name)


def changed_modules() -> dict[str, str]:
    """The modules whose files have changed since they were imported, each with its file."""
    note_imports()
    # An editor may be replacing a file that is missing for a moment.
    return {
        name: file
        for name, (file, state) in sorted(_imported.items())
        if (_state_of(file) or state) != state
    }


def _file_of(name: str) -> str:
    """The file of a module that a user may edit; empty for others."""
    if name in ("__main__", "__mp_main__") or name.partition(".")[0] == "zkplan":
        return ""
    try:  # without the module's own __getattr__, which would load a lazy one
        file = object.__getattribute__(sys.modules[name], "__dict__").get("__file__")
    except (KeyError, AttributeError):
        return ""
    if not isinstance(file, str) or not file.endswith(".py") or file.startswith(_LIBRARY):
        return ""
    return "" if any(part in file for part in _INSTALLED) else os.path.abspath(file)


def _state_of(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file) if file else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size)
