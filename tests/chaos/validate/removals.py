"""The removal of plans beside their checks; and what stands though it was, or is to be, removed.

One removal that does not come to its end must not keep the others waiting: each has a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

import zkplan

from .members import Shown

#: A leader that is cut off from its followers leads on for 10 s (the ensemble's `syncLimit`), and
#: answers a sync all the same: so long nobody is to blame for what it does not know.
LASTS_S = 20.0
#: One look may wait for servers, or for the gavel, as long.
_LOOKS = 5
#: So often a removal is tried whose outcome is unknown; each try waits for servers.
_TRIES = 3
#: An ordinary removal has ended by then.
_WAIT_S = 2.0


@dataclass
class _Removal:
    """Of one path. `looks` have seen it stand, one after another, the first of them at `since`."""

    thread: threading.Thread | None = None
    since: float = 0.0
    looks: int = 0
    error: str = ""
    is_told: bool = False
    #: When it was first tried to remove it.
    begun: float = float("inf")

    @property
    def is_under_way(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


class Removed(NamedTuple):
    """A plan that is gone, when we were told so, and when its removal had begun."""

    name: str
    at: float
    begun: float


class Removals:
    """Removes, and tells of each path that stands for too long, once. Safe for threads."""

    def __init__(
        self,
        tell: Callable[[str], None],
        shown: Callable[[str], Shown],
        lasts_s: float = LASTS_S,
    ) -> None:
        """`tell` takes a violation, `shown` asks all members for a path."""
        self._tell, self._shown, self._lasts_s = tell, shown, lasts_s
        self._lock = threading.Lock()
        self._of: dict[str, _Removal] = {}
        #: By their paths: the plans of which we were told that they are gone.
        self.done: dict[str, Removed] = {}

    def remove(self, plan: zkplan.Plan) -> None:
        """Have it removed, unless that is under way; waits a moment for the end."""
        removal = self._removal(plan.path)
        if not removal.is_under_way:
            removal.begun = min(removal.begun, time.monotonic())
            thread = threading.Thread(target=self._remove, args=(plan, removal), daemon=True)
            removal.thread = thread
            thread.start()
            thread.join(_WAIT_S)

    def _remove(self, plan: zkplan.Plan, removal: _Removal) -> None:
        for _ in range(_TRIES):
            try:
                plan.remove()
            except zkplan.ClientClosed:
                return  # the run is over
            except zkplan.ZooKeeperUnavailable as error:
                # It may have been done, but for the folder in the store: again, as a user would.
                removal.error = repr(error)[:200]
                continue
            except zkplan.PlanNotFound:
                pass  # an earlier removal has done it
            except Exception as error:  # A thread that dies silently would find nothing.
                removal.error = repr(error)[:200]
                self._say(removal, plan.name, plan.path, "cannot be removed")
                return
            self.is_gone(plan.name, plan.path, removal.begun)
            return

    def is_gone(self, name: str, path: str, begun: float) -> None:
        """A removal was acknowledged, or a look after a sync has shown that it is gone."""
        self.done[path] = Removed(name, time.monotonic(), begun)

    def stands(self, name: str, path: str, how: str, began: float) -> None:
        """It stands at this look, of which a sync came first, though it should be gone.

        A client never goes back behind what it was told: who was told of the end of a removal
        before the look has to see it.
        """
        removal, done = self._removal(path), self.done.get(path)
        removal.looks += 1
        if done is not None and done.at < began:
            self._say(removal, name, path, f"{how} and removed, and it stands again")
        elif removal.looks == 1:
            removal.since = time.monotonic()
        elif removal.looks > _LOOKS and time.monotonic() - removal.since > self._lasts_s:
            self._say(removal, name, path, f"{how}, and stands for {self._lasts_s:g} s")

    def _say(self, removal: _Removal, name: str, path: str, what: str) -> None:
        with self._lock:
            if removal.is_told:
                return
            removal.is_told = True
        self._tell(self.sentence(name, path, what))

    def sentence(self, name: str, path: str, what: str) -> str:
        """A violation, with what the members show: where they differ, zkplan is not to blame."""
        shown, error = self._shown(path), self._removal(path).error
        blame = "ZooKeeper: its members differ after a sync" if shown.differ else "S6"
        last = f", the last error was {error}" if error else ""
        return f"{blame}: {name} ({path}) {what}{last}; {shown}"

    def listed(self, paths: Collection[str]) -> None:
        """At this look these stand: the others stand no more."""
        for path, removal in list(self._of.items()):
            if path not in paths:
                removal.looks = 0
                if not removal.is_told and not removal.is_under_way:
                    del self._of[path]

    def no_answer(self) -> None:
        """The servers do not answer: how long anything stands nobody knows."""
        for removal in list(self._of.values()):
            removal.looks = 0

    def is_told(self, path: str) -> bool:
        """Whether it was told of that path that it stands."""
        removal = self._of.get(path)
        return removal is not None and removal.is_told

    def _removal(self, path: str) -> _Removal:
        with self._lock:
            return self._of.setdefault(path, _Removal())
