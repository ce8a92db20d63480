"""What a client says of the bounds of its root: retention, archives, the budget; and `gc`."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from ..basics.durations import Duration, in_seconds
from ..basics.text import size_from
from ..basics.tracebacks import told_to_caller
from ..connection import Connection
from ..errors import ZkplanError
from ..log import get_logger
from ..protocol.author import ensure_root
from ..protocol.bounds import RETENTION_S, Bounds, Used, change_bounds, read_bounds
from ..protocol.fields import NUMBER_MAX
from ..protocol.layout import Paths
from ..protocol.look import list_plans
from ..protocol.requests import Step
from ..protocol.spending import count_plans
from . import Expired, Rules, expired, remove_expired, server_now
from .archived import Archived, archived_plans

logger = get_logger("zkplan.client")


class Bounded(Connection):
    """The part of a client that keeps its root from growing without bound."""

    @told_to_caller
    def gc(
        self,
        *,
        older_than: Duration | None = None,
        keep: int | None = None,
        max_znodes: int | None = None,
        states: Collection[str] = ("done", "cancelled"),
        dry_run: bool = False,
        archive: bool = False,
    ) -> list[Expired]:
        """Remove finished plans. Returns them, oldest end first, each with its outcome.

        A plan goes if each rule that is given lets it go: it ended more than `older_than` seconds
        ago; it is not among the `keep` plans that ended last; it is one of the oldest, which have
        to go so that finished plans have at most `max_znodes` znodes. A plan with a `retention` of
        its own goes when that is over, and not before, whatever the rules say; any other goes when
        that of its root is over, too. Without any rule only such plans go. `states` says which
        plans count as finished; "failed" must be asked for. With `dry_run` nothing is removed. With
        `archive` each plan is archived in the store first, and kept where that fails.

        It never removes a plan that runs or has a running task. Several clients may call it at
        once. It does not promise exact ages where the clocks of servers differ. Raises ZkplanError
        for a wrong rule.
        """
        found = expired(self, Rules(in_seconds(older_than), keep, max_znodes, states))
        return found if dry_run else self.remove_finished(found, archive=archive)

    def remove_finished(self, plans: Sequence[Expired], *, archive: bool = False) -> list[Expired]:
        """Remove plans that `gc` has found with `dry_run`. Returns what it does, and does the
        rest."""
        ended = list(remove_expired(self, plans, archive))
        if ended and self.transport.run(read_bounds(self.paths)).has_budget:
            self.bounds(count=True)
        return ended

    @told_to_caller
    def bounds(self, *, count: bool = False) -> Bounds:
        """How long finished plans stay under this root, whether they are archived, the budget, and
        how much of it was used when it was counted last.

        With `count` the plans are counted now: exactly, but for plans of more than some thousand
        znodes, for which a sample stands. Raises PayloadUndecodable if it was changed by hand.
        """
        if not count:
            return self.transport.run(read_bounds(self.paths))
        return self._change({}, count=True)

    @told_to_caller
    def set_retention(self, seconds: Duration = RETENTION_S, *, archive: bool = False) -> Bounds:
        """Say how long finished plans stay under this root whose authors say nothing, and whether
        workers archive each plan in their store before they remove it. Infinite is for ever.

        Raises ZkplanError for a time out of range.
        """
        seconds = in_seconds(seconds)
        known = type(seconds) in (int, float) and (0 <= seconds < NUMBER_MAX or seconds == math.inf)
        if not known:
            raise ZkplanError(f"a retention is a number of seconds from 0, not {seconds!r:.50}")
        return self._change({"retention": float(seconds), "archive": bool(archive)}, anew=True)

    @told_to_caller
    def set_budget(
        self,
        *,
        znodes: int | None = None,
        bytes: int | str | None = None,  # noqa: A002 - as on the command line
    ) -> Bounds:
        """Bound what the plans under this root take: their znodes, and their bytes of data, as a
        number or a text ("500MB"). None: no bound; without any there is no budget.

        At the budget `create_plan` raises BudgetSpent; plans that are there go on, so it may be
        exceeded. A worker counts every five minutes or more rarely. Names, and what ZooKeeper takes
        besides, are not counted. Raises ZkplanError for a bound that is wrong.
        """
        if znodes is not None and (type(znodes) is not int or znodes < 0):
            raise ZkplanError(f"znodes is a whole number from 0, not {znodes!r:.50}")
        try:
            most = None if bytes is None else size_from(bytes)
        except ValueError as error:
            raise ZkplanError(f"bytes is {error}, not {bytes!r:.50}") from None
        changes = {"znodes": znodes, "bytes": most, "used": None}
        has_one = znodes is not None or most is not None
        return self._change(changes, count=has_one, anew=True)

    @told_to_caller
    def archived_plans(self) -> list[Archived]:
        """The archives in the store, of all roots that share it: `import_plan(file, archived=True)`
        makes a plan of one. Raises StoreUnavailable."""
        return archived_plans(self)

    def _change(self, changes: dict[str, Any], count: bool = False, anew: bool = False) -> Bounds:
        self.transport.run(ensure_root(self.paths))
        if count:
            now = server_now(self)
            changes = changes | {"used": self.transport.run(_counted(self.paths, now))}
        return self.transport.run(change_bounds(self.paths, changes, anew))

    def _warn(self, warning: str) -> None:
        """Log it, but each text once: an author may create thousands of plans."""
        if warning not in self._warned:
            self._warned.add(warning)
            logger.warning("%s", warning)


def _counted(paths: Paths, now: float) -> Step[Used]:
    plans = yield from list_plans(paths)
    room = yield from count_plans(paths, plans, {}, ())
    return Used(len(plans), round(room.znodes), round(room.bytes), now, room.exact)
