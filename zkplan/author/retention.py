"""Remove finished plans, and bound how many a root keeps.

Workers remove plans whose retention is over. Any number of workers may do so at once, because only
plans that have ended for good are removed. A failed plan could be retried, so the removal proves
again that no task can run, and cancels the plan in a transaction that fails after any change since.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ..basics.log import get_logger
from ..basics.public_calls import Duration, in_seconds, told_to_caller
from ..basics.text import age, count, size_from
from ..errors import UNREACHABLE, PlanNotFound, ZkplanError
from ..protocol.core.load import read_all
from ..protocol.core.plan_life import cancel_as_read
from ..protocol.core.plans_and_queues import (
    ended_at,
    list_plans,
    names_on_claims_nodes,
    plan_records,
)
from ..protocol.features.author import ensure_root
from ..protocol.features.bounds import (
    RETENTION_S,
    Bounds,
    Used,
    change_bounds,
    count_plans,
    read_bounds,
)
from ..protocol.fields import NUMBER_MAX
from ..protocol.layout import Paths, active_entry, number_of, parse_claim
from ..protocol.records import control_from_bytes
from ..protocol.requests import Node, ReadChildren, ReadData, ReadMany, Step
from ..transport.server_clock import ServerClock
from ..values.connection import Connection
from ..values.store_maintenance import remove
from ..views.deadlock import dead_if_deadlocked, status_of
from .archives import Archived, archive_plan, archived_plans

Ended = Literal["done", "cancelled", "failed"]
STATES: tuple[Ended, ...] = ("done", "cancelled", "failed")
#: The most dead tasks that one transaction checks. Failed plans with more are left to `plan rm`.
DEAD_MAX = 1000


class Expired(NamedTuple):
    """A finished plan that a rule removes. `ended` is in seconds since 1970 by the server's clock.

    `reason` is why the plan is removed. `outcome` is empty before the removal, then `removed`, or
    why the plan was kept. `znodes` is None unless the znodes were counted. `archived` is the name
    of the plan's archive in the store, if one was made. `holds` is True if the plan has failed but
    not ended, because its dead tasks hold back the tasks that wait for them. `end` identifies the
    end of the plan: see `remove_plan.remove`.
    """

    path: str
    name: str
    state: str
    ended: float
    reason: str
    znodes: int | None = None
    outcome: str = ""
    archived: str = ""
    holds: bool = False
    end: int = 0


def expired(
    client: Connection,
    *,
    older_than: float | None = None,
    keep: int | None = None,
    max_znodes: int | None = None,
    states: Collection[str] = ("done", "cancelled"),
) -> list[Expired]:
    """The plans to remove by these rules (see `Client.gc`) and their retention, oldest end first.

    Times are in seconds. Raises ZkplanError for a wrong rule.
    """
    rules = {"older_than": older_than, "keep": keep, "max_znodes": max_znodes}
    for name, value in rules.items():
        if value is not None and not value >= 0:  # also refuses NaN
            raise ZkplanError(f"{name} must be 0 or more, not {value!r}")
    if isinstance(states, str) or not set(states) <= set(STATES):
        raise ZkplanError(f"states must be a list of {', '.join(STATES)}, not {states!r}")
    default = client.transport.run(read_bounds(client.paths)).retention
    now = server_now(client)
    found, theirs = list[Expired](), list[Expired]()
    for plan, own in _ended_plans(client, states):
        retention = default if own is None else own
        # The root's retention spares a plan that holds dead tasks; only an explicit rule removes
        # it.
        if now - plan.ended >= retention and (own is not None or not plan.holds):
            whose = "the root's" if own is None else "its"
            reason = f"{whose} retention of {age(retention).removesuffix(' ago')} is over"
            theirs.append(plan._replace(reason=reason))
        elif own is None:
            found.append(plan)
    found.sort(key=lambda plan: (plan.ended, plan.path))
    going = [*theirs, *_by_rules(client, found, now, older_than, keep, max_znodes)]
    return sorted(going, key=lambda plan: (plan.ended, plan.path))


def server_now(client: Connection) -> float:
    """Seconds since 1970 by the server's clock; by the local one if this client cannot write."""
    clock = ServerClock()
    client.transport.run(clock.ask(client.paths.delayed))
    return clock.now()


def _by_rules(
    client: Connection,
    found: Sequence[Expired],
    now: float,
    older_than: float | None,
    keep: int | None,
    max_znodes: int | None,
) -> list[Expired]:
    """The plans of `found`, oldest first, that all given rules remove."""
    reasons = []
    going = list(found)
    if older_than is not None:
        going = [plan for plan in going if now - plan.ended >= older_than]
        reasons.append(f"it ended more than {age(older_than).removesuffix(' ago')} ago")
    if keep is not None:
        newest = {plan.path for plan in found[max(0, len(found) - keep) :]}
        going = [plan for plan in going if plan.path not in newest]
        reasons.append(f"it is not among the newest {keep:,}")
    if max_znodes is not None:
        sizes = {plan.path: client.transport.run(znodes_of(plan.path)) for plan in found}
        going = _over_budget(going, sizes, max_znodes)
        reasons.append(f"finished plans have more than {count(max_znodes, 'znode')}")
    return [plan._replace(reason="; ".join(reasons)) for plan in going] if reasons else []


def _over_budget(going: Sequence[Expired], sizes: dict[str, int], budget: int) -> list[Expired]:
    """The oldest plans of `going`, as many as must go to bring all `sizes` down to `budget`."""
    total, chosen = sum(sizes.values()), []
    for plan in going:
        if total <= budget:
            break
        total -= sizes[plan.path]
        chosen.append(plan._replace(znodes=sizes[plan.path]))
    return chosen


def znodes_of(plan_path: str) -> Step[int]:
    """The number of znodes of a plan, with the plan's own."""
    names = (yield ReadChildren(plan_path)) or []
    lists = yield from read_all([ReadChildren(f"{plan_path}/{name}") for name in names])
    return 1 + len(names) + sum(len(each or ()) for each in lists)


def _ended_plans(
    client: Connection, states: Collection[str]
) -> Iterator[tuple[Expired, float | None]]:
    """The plans in these states, each with its own retention."""
    run = client.transport.run
    records = run(plan_records(client.paths))
    reads = [
        ReadData(f"{path}/{name}") for path, _ in records for name in ("ready", "done", "dead")
    ]
    nodes = run(read_all(reads, strict=False))
    # Read the claims after the states: a cancelled plan gets no further claim (S9).
    claims = [parse_claim(name) for _, name in run(names_on_claims_nodes(client.paths, True))]
    claimed = {claim.plan for claim in claims if claim is not None}
    for at, (path, record) in enumerate(records):
        state, ended = _end(client, path, nodes[3 * at : 3 * at + 3], "failed" in states)
        found = nodes[3 * at : 3 * at + 3]
        holds = state == "failed"
        has_failed = state == "done" and found[2] is not None and bool(found[2].child_count)
        is_meant = state in states or (has_failed and "failed" in states)
        if record is not None and is_meant and number_of(path) not in claimed:
            shown = "failed" if has_failed else state
            end = found[1].czxid if found[1] is not None else 0
            expired = Expired(path, record.name, shown, ended, "", holds=holds, end=end)
            yield expired, record.retention


def _end(
    client: Connection, path: str, nodes: Sequence[Node | None], failed: bool
) -> tuple[str, float]:
    """The state and the time of end of a plan that has ended; an empty text for any other plan."""
    ready, done, dead = nodes
    state, ended = ended_at(ready, done)
    if state or ready is None:
        return state, ended
    if not (failed and dead is not None and dead.child_count):
        return "", 0.0
    try:
        state = status_of(client, path).state
    except PlanNotFound:
        return "", 0.0
    if state != "failed":
        return "", 0.0
    names = client.transport.ask(ReadChildren(f"{path}/dead")) or ()
    letters = client.transport.run(read_all([ReadData(f"{path}/dead/{name}") for name in names]))
    return "failed", max((node.created_ms for node in letters if node), default=0) / 1000


def remove_expired(
    client: Connection, plans: Sequence[Expired], archive: bool = False
) -> Iterator[Expired]:
    """Remove `plans`. Yields each with its outcome; a plan that cannot be removed does not stop the
    others.

    With `archive` each plan is archived first, and kept if that fails. Raises ZooKeeperUnavailable
    and the like; the next run then removes the plans that are left.
    """
    for plan in plans:
        try:
            if plan.holds and (why := _cancel_failed(client, plan.path)):
                yield plan._replace(outcome=f"kept: {why}")
                continue
            if archive:
                plan = plan._replace(archived=archive_plan(client, plan.path))
            if remove(client.transport, client.values, plan.path, plan.end) is None:
                yield plan._replace(outcome="kept: somebody has retried it")
                continue
        except PlanNotFound:
            yield plan._replace(outcome="removed")  # by another process at the same time
        except UNREACHABLE:
            raise
        except ZkplanError as error:
            yield plan._replace(outcome=f"kept: {error}")
        else:
            yield plan._replace(outcome="removed")


def _cancel_failed(client: Connection, path: str) -> str:
    """Cancel a failed plan if none of its tasks can run. A change that lets one run prevents this.

    Returns why the plan was not cancelled; empty if it was.
    """
    changed = "it is not failed any more, or has changed"
    names = client.transport.ask(ReadChildren(f"{path}/dead")) or []
    ready, adds, entry = client.transport.ask(
        ReadMany(
            [ReadData(at) for at in (f"{path}/ready", f"{path}/add-count", active_entry(path))]
        )
    )
    if len(names) > DEAD_MAX:
        return f"it has {len(names):,} dead tasks, more than one transaction can check: `plan rm`"
    if ready is None or adds is None or not names or control_from_bytes(ready.data) != "running":
        return changed
    if client.transport.run(dead_if_deadlocked(client.paths, path)) != len(names):
        return changed
    step = cancel_as_read(path, ready, adds, entry is not None, names)
    return "" if client.transport.run(step) else changed


# ---- The calls of a client about the bounds of its root: retention, archives, the budget, `gc`.


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

        A plan is removed if all rules that are given allow it: the plan ended more than
        `older_than` seconds ago; it is not among the `keep` plans that ended last; it is one of the
        oldest, which must go to bring finished plans down to `max_znodes` znodes. The rules do not
        apply to a plan with a `retention` of its own, which is removed when that is over, and not
        before. Any other plan is also removed when the root's retention is over. Without rules only
        retention counts. `states` are the states that count as finished; "failed" is not one by
        default. With `dry_run` nothing is removed. With `archive` each plan is archived in the
        store first, and kept if that fails.

        This never removes a plan that runs or has a running task. Several clients may call it at
        once. Ages are not exact if the clocks of servers differ. Raises ZkplanError for a wrong
        rule.
        """
        found = expired(
            self,
            older_than=in_seconds(older_than),
            keep=keep,
            max_znodes=max_znodes,
            states=states,
        )
        return found if dry_run else self.remove_finished(found, archive=archive)

    def remove_finished(self, plans: Sequence[Expired], *, archive: bool = False) -> list[Expired]:
        """Remove the plans that `gc` has found with `dry_run`. Returns them with their outcomes."""
        ended = list(remove_expired(self, plans, archive))
        if ended and self.transport.run(read_bounds(self.paths)).has_budget:
            self.bounds(count=True)
        return ended

    @told_to_caller
    def bounds(self, *, count: bool = False) -> Bounds:
        """How long finished plans stay under this root, whether they are archived, the budget, and
        how much of the budget was used at the last count.

        With `count` the plans are counted now: exactly, except that plans of more than some
        thousand znodes are estimated from a sample. Raises PayloadUndecodable if the bounds were
        changed by hand.
        """
        if not count:
            return self.transport.run(read_bounds(self.paths))
        return self._change({}, count=True)

    @told_to_caller
    def set_retention(self, seconds: Duration = RETENTION_S, *, archive: bool = False) -> Bounds:
        """Set how long finished plans without a `retention` of their own stay under this root.
        `math.inf` means for ever.

        With `archive`, workers archive each plan in their store before they remove it. Raises
        ZkplanError for a time out of range.
        """
        seconds = in_seconds(seconds)
        known = type(seconds) in (int, float) and (0 <= seconds < NUMBER_MAX or seconds == math.inf)
        if not known:
            raise ZkplanError(f"a retention must be 0 or more seconds, not {seconds!r:.50}")
        return self._change({"retention": float(seconds), "archive": bool(archive)}, anew=True)

    @told_to_caller
    def set_budget(
        self,
        *,
        znodes: int | None = None,
        bytes: int | str | None = None,  # noqa: A002 - as on the command line
    ) -> Bounds:
        """Bound the room of the plans under this root: their znodes, and their bytes of data, as a
        number or a text ("500MB"). None means no bound. Without any bound there is no budget.

        When the budget is used up, `create_plan` raises BudgetSpent; existing plans go on, so they
        may exceed it. A worker counts every five minutes or more rarely. Names, and what ZooKeeper
        itself needs, are not counted. Raises ZkplanError for a wrong bound.
        """
        if znodes is not None and (type(znodes) is not int or znodes < 0):
            raise ZkplanError(f"znodes must be a whole number from 0, not {znodes!r:.50}")
        try:
            most = None if bytes is None else size_from(bytes)
        except ValueError as error:
            raise ZkplanError(f"bytes must be {error}, not {bytes!r:.50}") from None
        changes = {"znodes": znodes, "bytes": most, "used": None}
        has_one = znodes is not None or most is not None
        return self._change(changes, count=has_one, anew=True)

    @told_to_caller
    def archived_plans(self) -> list[Archived]:
        """The archives in the store, of all roots that share it. `import_plan(file, archived=True)`
        makes a plan from an archive. Raises StoreUnavailable."""
        return archived_plans(self)

    def _change(self, changes: dict[str, Any], count: bool = False, anew: bool = False) -> Bounds:
        self.transport.run(ensure_root(self.paths))
        if count:
            now = server_now(self)
            changes = changes | {"used": self.transport.run(_counted(self.paths, now))}
        return self.transport.run(change_bounds(self.paths, changes, anew))

    def _warn(self, warning: str) -> None:
        """Log each warning only once, because an author may create thousands of plans."""
        if warning not in self._warned:
            self._warned.add(warning)
            logger.warning("%s", warning)


def _counted(paths: Paths, now: float) -> Step[Used]:
    plans = yield from list_plans(paths)
    room = yield from count_plans(paths, plans, {}, ())
    return Used(len(plans), round(room.znodes), round(room.bytes), now, room.exact)
