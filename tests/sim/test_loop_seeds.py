"""Hundreds of seeded runs of the worker's real loop, with faults at every request."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest

from zkplan.embedded.operations import Create
from zkplan.protocol.core.workers import register
from zkplan.protocol.layout import Paths
from zkplan.protocol.transactions import Registration

from .loop_shares import SHARES_EACH, loop_world
from .network import CALM, Faults, Network
from .seeds import failures
from .test_seeds import SEEDS, SHOWN

#: How many worlds with loops are run: each takes as long as fifty of the others.
LOOP_SEEDS = max(200, SEEDS // 50)


@pytest.mark.timeout(max(600, LOOP_SEEDS * 2))
def test_no_seed_breaks_a_promise_or_a_policy() -> None:
    found = failures(0, LOOP_SEEDS, "--loops")
    assert not found, "\n".join([f"{len(found)} of {LOOP_SEEDS} seeds failed:", *found[:SHOWN]])


@pytest.mark.parametrize("seed", [3, 11, SHARES_EACH - 1])
def test_a_seed_replays_to_the_same_events(seed: int) -> None:
    first: list[str] = []
    second: list[str] = []
    loop_world(seed, first.append).run()
    loop_world(seed, second.append).run()
    assert first == second
    assert len(first) > 20


def test_a_registration_whose_answer_was_lost_is_removed() -> None:
    """Found by these worlds: the others left it a share of the plans, and nobody served that."""
    paths, network = Paths("/z"), Network(random.Random(1), "/z")
    for path in (paths.root, paths.workers, paths.claims):
        network.tree.apply(Create(path))
    client, found = network.connect("w"), list[Registration | None]()

    def registering() -> Generator[Any, Any, None]:
        found.append((yield from register(paths, "w", b"", iter("ab"))))

    network.start(client, "register", registering(), {})
    network.faults = Faults(mute=1.0)
    network.deliver(client)
    assert network.tree.children(paths.workers)[0] == ["w"]
    network.faults = CALM
    while client.queue:
        network.deliver(client)
    assert found == [None]  # another ID is needed
    assert network.tree.children(paths.workers)[0] == []
