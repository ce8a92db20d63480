"""Refuse classes that only their author can make: with keywords that Python keeps nowhere."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any


def require_no_keywords(cls: type) -> None:
    """Raises TypeError if `class X(Base, keyword=…)` needs its keywords: no worker would know them,
    and so none could decode a task that uses the class."""
    kind: Any = type(cls)
    made: tuple[Any, ...] = (kind, cls.__name__, cls.__bases__, {})
    subclassed: Any = super(cls, cls).__init_subclass__  # type: ignore[arg-type]
    makers: list[tuple[Any, tuple[Any, ...]]]
    makers = [(subclassed, ()), (kind.__new__, made), (kind.__init__, made)]
    for maker, arguments in makers:
        if not isinstance(getattr(maker, "__func__", maker), FunctionType):
            continue  # Python's own, which needs none
        try:
            inspect.signature(maker).bind(*arguments)
        except TypeError as error:
            raise TypeError(
                f"the class {cls.__qualname__} is made with keywords, which cannot travel "
                f"({maker.__qualname__}: {error}): move it into a module that workers import"
            ) from None
