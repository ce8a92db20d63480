"""What the members of an ensemble show, each asked by a client of its own, after a sync."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from zkplan.testing.server_process import ServerProcess

_ASK_S = 10.0
#: The children of a path; None where it does not exist; or why there is no answer.
Answer: TypeAlias = "list[str] | Exception | None"


class Shown(NamedTuple):
    """What the members answer about a path, by their numbers, from 1."""

    answers: dict[int, Answer]

    @property
    def differ(self) -> bool:
        """Whether some show it, and others do not."""
        answers = [each for each in self.answers.values() if not isinstance(each, Exception)]
        return {True, False} <= {each is not None for each in answers}

    def __str__(self) -> str:
        return ", ".join(f"member {n} {_told(each)}" for n, each in self.answers.items())


def _told(answer: Answer) -> str:
    if isinstance(answer, Exception):
        return f"gives no answer ({repr(answer)[:100]})"
    return "does not" if answer is None else "shows it"


def shown_by(members: Sequence[ServerProcess], path: str) -> Shown:
    """Ask all of them."""
    return Shown({number: _asked(member, path) for number, member in enumerate(members, 1)})


def _asked(member: ServerProcess, path: str) -> Answer:
    client = KazooClient(member.hosts)
    try:
        client.start(timeout=_ASK_S)
        # What any member has acknowledged by now, this one knows afterwards.
        client.sync_async(path).get(timeout=_ASK_S)
        return list(client.get_children(path))
    except NoNodeError:
        return None
    except (client.handler.timeout_exception, KazooException) as error:
        return error  # type: ignore[no-any-return]
    finally:
        client.stop()
        client.close()
