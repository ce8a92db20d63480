"""The names of the globals that a function uses, read from its code alone."""

from __future__ import annotations

import dis
from types import CodeType, FunctionType, MethodType
from typing import Any


def global_names(function: Any, recurse: bool = True) -> list[str]:
    """Names that the code of `function`, and of what is defined in it, looks up as globals.

    Empty for anything but a function, method or code object. Gives the same as
    `dill.detect.nestedglobals`, but in any number of threads, and `__package__` where it imports
    something: a relative import starts there.

    >>> global_names(lambda: [print(len(x)) for x in y])
    ['len', 'print', 'y']
    """
    code = _code_of(function)
    if code is None:
        return []
    names = set()
    for instruction in dis.get_instructions(code):
        if "_GLOBAL" in instruction.opname:
            names.add(instruction.argval)
        elif instruction.opname == "IMPORT_NAME":
            names.add("__package__")
    if recurse:
        for constant in code.co_consts:
            names.update(global_names(constant))
    return sorted(names)


def _code_of(function: Any) -> CodeType | None:
    if isinstance(function, MethodType):
        function = function.__func__
    if isinstance(function, FunctionType):
        function = function.__code__
    return function if isinstance(function, CodeType) else None
