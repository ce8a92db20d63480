"""Which modules of users this process has imported, and which files have changed since then."""

from __future__ import annotations

import os
import sys

#: Files of Python and of installed packages do not change while their users work on a task.
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

# No lock: a child that is forked while another thread holds it would wait for ever.
_seen: set[str] = set()
#: By module: its file, and the time and size that the file had when the module was first seen.
_imported: dict[str, tuple[str, tuple[int, int]]] = {}


def note_imports() -> None:
    """Note the state of the files of all modules that were imported since the last call. Call it
    right after an import: a later change of the file is seen from then on."""
    for name in sys.modules.keys() - _seen:
        file = _file_of(name)
        state = _state_of(file)
        if state is not None:
            _imported.setdefault(name, (file, state))
        _seen.add(name)


def changed_modules() -> dict[str, str]:
    """The modules whose files have changed since they were imported, each with its file."""
    note_imports()
    # A file that is missing for a moment is being replaced by an editor.
    return {
        name: file
        for name, (file, state) in sorted(_imported.items())
        if (_state_of(file) or state) != state
    }


def _file_of(name: str) -> str:
    """The file of a module that a user may edit; empty for others."""
    if name in ("__main__", "__mp_main__") or name.partition(".")[0] == "zkplan":
        return ""
    try:  # around the module's own ways to answer: a lazy one would be loaded by the question
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
