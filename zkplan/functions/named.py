"""A function that is given by its name alone, and not imported: another machine has it."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from ..serialization.by_name import NAME_BYTES_MAX, Name, why_unfit
from ..serialization.json_values import JSON

#: What stands in place of a module where a function is known by its kind.
KIND = "kind"
_KIND = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


class NamedFunction:
    """Stands for the function MODULE:NAME in a task of a plan with serializer json.

    Whether there is such a function, and whether the arguments fit it, only a worker can say.
    """

    #: The kind that it names, which its entries have, too; see `kinds`.
    zkplan_kind = ""

    def __init__(self, path: str) -> None:
        """Raises ValueError, whose text says what is wrong with the name."""
        module, _, qualname = path.partition(":")
        why = why_unfit(Name(module, qualname)) if qualname else "it is no MODULE:FUNCTION"
        if why:
            raise ValueError(f"{path!r:.100} names no function that may be run: {why}")
        if module == KIND:
            raise ValueError(f"no module is called {KIND}: give `{KIND}` in place of the function")
        self._take(path, module, qualname)

    @classmethod
    def of_kind(cls, kind: str) -> NamedFunction:
        """The function that workers have registered for this kind of task, in any language.

        Raises ValueError.
        """
        if not _KIND.fullmatch(kind):
            raise ValueError(
                f"a kind has 1 to 40 of the characters a-z 0-9 . _ -, not {kind!r:.100}"
            )
        made = cls.__new__(cls)
        made._take(f"{KIND}:{kind}", KIND, kind)
        made.zkplan_kind = kind
        return made

    def _take(self, path: str, module: str, qualname: str) -> None:
        self.__module__, self.__qualname__ = module, qualname
        #: What the definition of a task holds.
        self.zkplan_dumped = JSON + path.encode()
        if len(self.zkplan_dumped) > NAME_BYTES_MAX:
            raise ValueError(f"the name of a function has at most {NAME_BYTES_MAX - 1} bytes")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"{self.__module__}:{self.__qualname__} is not imported here")
