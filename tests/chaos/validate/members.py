"""What the members of an ensemble show, each asked by a client of its own, after a sync."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from zkplan.testing.server_process import ServerProcess

_ASK_S = 10.0
T = TypeVar("T")


@dataclass(frozen=True)
class Silence:
    """Why a member has not answered."""

    why: str


@dataclass(frozen=True)
class Shown:
    """By their numbers, from 1: whether the members show a path."""

    answers: dict[int, bool | Silence]

    @property
    def differ(self) -> bool:
        """Whether some show it, and others do not."""
        return {True, False} <= set(self.answers.values())

    def __str__(self) -> str:
        said = {True: "shows it", False: "does not"}
        return ", ".join(
            f"member {number} "
            + (f"gives no answer ({each.why})" if isinstance(each, Silence) else said[each])
            for number, each in self.answers.items()
        )


def shown_by(members: Sequence[ServerProcess], path: str) -> Shown:
    """Which of them show it."""
    return Shown(_answers(members, path, lambda client: client.exists(path) is not None))


def children_at(members: Sequence[ServerProcess], path: str) -> dict[int, list[str] | Silence]:
    """What each of them lists there."""
    return _answers(members, path, lambda client: list(client.get_children(path)))


def _answers(
    members: Sequence[ServerProcess], path: str, ask: Callable[[KazooClient], T]
) -> dict[int, T | Silence]:
    return {number: _asked(member, path, ask) for number, member in enumerate(members, 1)}


def _asked(member: ServerProcess, path: str, ask: Callable[[KazooClient], T]) -> T | Silence:
    client = KazooClient(member.hosts)
    try:
        client.start(timeout=_ASK_S)
        # What any member has acknowledged by now, this one knows afterwards.
        client.sync_async(path).get(timeout=_ASK_S)
        return ask(client)
    except (client.handler.timeout_exception, KazooException) as error:
        return Silence(repr(error)[:100])
    finally:
        client.stop()
        client.close()
