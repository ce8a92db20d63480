"""Arenas for the tests of what drives them: without servers, and with nobody or with sleepers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .world.arena import Actor, Arena, Role, Settings
from .world.link import Link

#: What a sleeper does that is told to end: it says when it would hear that.
DEAF = "trap '' TERM; echo it is ready; exec sleep 600"
ENDS_WITH = "trap 'exit {code}' TERM; echo it is ready; while :; do sleep 0.05; done"


class Quiet(Arena):
    """No servers, no processes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Settings("embedded", 1), folder)
        self.actors = []

    def fallen(self) -> list[str]:
        return []

    def mismatches(self) -> list[str]:
        return []

    def heal(self) -> None:
        """There is nothing."""


class Sleepers(Quiet):
    """Real processes that do nothing, or what a shell makes of `does`, by their roles."""

    def __init__(self, folder: Path, does: dict[Role, str]) -> None:
        super().__init__(folder)
        self.does = does

    def _command(self, actor: Actor) -> list[str]:
        does = self.does.get(actor.role, "exec sleep 600")
        return ["sh", "-c", f"cd {shlex.quote(str(self.folder))}; {does}"]


@contextmanager
def sleeping(
    folder: Path, names: Sequence[tuple[str, Role]], does: dict[Role, str] | None = None
) -> Iterator[Sleepers]:
    """All of them run."""
    arena = Sleepers(folder, does or {})
    arena.actors = [Actor(name, role, Link([])) for name, role in names]
    try:
        for actor in arena.actors:
            arena.start(actor)
        yield arena
    finally:
        for actor in arena.actors:
            arena.kill(actor, "the end")
            actor.link.close()
        arena.journal.close()
