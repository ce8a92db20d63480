"""Polling pages and renewals cost ZooKeeper little while nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import zkplan
from tests.tools.claiming import claim
from tests.tools.support import Here
from zkplan import TaskSpec, ZooKeeperUnavailable
from zkplan.service.lease_records import BATCH_MAX, Failed, RenewalOut
from zkplan.service.leases import Leases
from zkplan.service.work import APART_S, Renewals
from zkplan.views.plan_changes import Changes

STEP = zkplan.kind("step")


def test_a_plan_is_read_again_only_after_that_plan_has_changed(here: Here) -> None:
    with zkplan.connect(*here, serializer="json") as client, Leases(client) as leases:
        plans = [client.create_plan(attempts=3, retry_delay=60) for _ in range(2)]
        for plan in plans:
            plan.add_tasks([TaskSpec(STEP, [n]) for n in range(2)])
        plans[0].mark_ready()
        first, second = (plan.number for plan in plans)
        changes = Changes(client)
        (held,) = claim(leases, kinds=["step"], wait=5)
        known = changes.look([first, second])

        def states() -> list[str]:
            seen = known[first]
            return sorted(seen.states.values()) if seen is not None else []

        def changed() -> list[bool]:
            before, now = dict(known), changes.look([first, second])
            known.update(now)
            return [now[each] is not before[each] for each in (first, second)]

        assert (changed(), states()) == ([False, False], ["runnable", "running"])
        assert leases.renew([held.id])[0].ok
        assert changed() == [False, False], "a renewal changes nothing that is shown"
        (other,) = claim(leases, kinds=["step"], wait=5)
        assert changed() == [True, False]
        assert leases.fail([Failed(other.id, "no")])[0].ok
        assert (changed(), states()) == ([True, False], ["delayed", "running"])
        plans[1].mark_ready()
        assert changed() == [False, True]


def renewal(text: str) -> RenewalOut:
    return RenewalOut(text, True, 0.0, "", "")


def test_renewals_of_many_programs_are_sent_together_a_few_times_a_second() -> None:
    sent: list[list[str]] = []

    async def send(ids: Sequence[str]) -> list[RenewalOut]:
        sent.append(list(ids))
        if "bad" in ids:
            raise ZooKeeperUnavailable("away")
        return [renewal(each) for each in ids]

    async def story() -> None:
        renewing = Renewals(send)
        assert await renewing.renew(["a"]) == [renewal("a")]
        loop = asyncio.get_running_loop()
        begin = loop.time()
        answers = await asyncio.gather(*(renewing.renew([f"{n}", "both"]) for n in range(100)))
        assert loop.time() - begin < 10 * APART_S
        assert answers == [[renewal(f"{n}"), renewal("both")] for n in range(100)]
        assert list(map(len, sent)) == [1, 101]
        many = [[f"{part}.{n}" for n in range(BATCH_MAX)] for part in range(2)]
        await asyncio.gather(*map(renewing.renew, many))
        assert sent[2:] == many, "no more in one call than it takes"
        with pytest.raises(ZooKeeperUnavailable):
            await renewing.renew(["bad"])
        assert await renewing.renew(["c"]) == [renewal("c")]

    asyncio.run(story())
