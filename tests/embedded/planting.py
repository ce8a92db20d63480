"""How a bug is planted: a patch with a name, in force for a while, here and in other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

Plant = Callable[[pytest.MonkeyPatch], None]
BUGS: dict[str, Plant] = {}
_planted: list[str] = [""]


def bug(plant: Plant) -> Plant:
    """Its name is the sentence that the function's name makes."""
    BUGS[plant.__name__.replace("_", " ")] = plant
    return plant


def now_planted() -> str:
    """The bug of the moment, so that a server in another process has it as well."""
    return _planted[-1]


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Servers have this bug meanwhile; '' is none."""
    with pytest.MonkeyPatch.context() as patch:
        if name:
            BUGS[name](patch)
        _planted.append(name)
        try:
            yield
        finally:
            _planted.pop()


def around(patch: pytest.MonkeyPatch, owner: Any, name: str, other: Callable[..., Any]) -> None:
    """Replace a method by `other`, which gets the real one first."""
    real = getattr(owner, name)

    def instead(*args: Any, **named: Any) -> Any:
        return other(real, *args, **named)

    patch.setattr(owner, name, instead)


def no_effect(*_: Any, **__: Any) -> None:
    pass
