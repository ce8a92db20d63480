"""Faults of operators: plans are paused and resumed while they run."""

from __future__ import annotations

import random

import zkplan
from tests.sim.world import ROOT

from .arena import Arena
from .fault import Entry, Fault, enter

_PATIENCE_S = 3.0
_CONNECT_S = 30.0


class PlansPaused(Fault):
    """Every plan that is running is paused; those and only those are resumed."""

    lasts = (0.1, 0.6)

    def inject(self, arena: Arena, chance: random.Random) -> None:
        self._paused: list[str] = []
        try:
            with zkplan.connect(arena.servers.hosts, ROOT, patience=_PATIENCE_S) as client:
                for plan in client.plans():
                    if plan.status().state == "running":
                        self._paused.append(plan.path)  # first: it may happen without an answer
                        plan.pause()
        except (zkplan.KeeperUnavailable, zkplan.PlanNotFound):
            return  # another fault has the servers; what was paused is known

    def heal(self, arena: Arena) -> None:
        # Whatever another fault has done to the servers: no plan may stay paused.
        arena.servers.make_serve()
        with zkplan.connect(arena.servers.hosts, ROOT, connect_timeout=_CONNECT_S) as client:
            for path in self._paused:
                try:
                    plan = client.plan(path)
                    if plan.status().state == "paused":
                        plan.resume()
                except zkplan.PlanNotFound:
                    continue  # it was done, checked and removed


enter([Entry("plans paused", "35", "every running plan is paused, then resumed", PlansPaused)])
