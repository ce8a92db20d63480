"""Each fault once, on each kind of server it applies to: all promises are kept, all plans end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.tools.available import skip_without
from tests.tools.support import wait_until

from .cluster.cluster import Settings, opened
from .cluster.servers import KINDS, Kind
from .faults.catalogue import CATALOGUE, for_kind
from .run import Run
from .traffic.workloads import BRIEF
from .validate.validator import Validator

SEED = 4
SESSION_S = 1.5
#: The sample runs with every change, on busy machines too: a worker that loses its session there
#: would repeat what no fault had disturbed.
SAMPLE_SESSION_S = 8.0
SHOWN_S = 0.3
#: The faults of the store are played on clusters of their own.
WITH_STORE = " with store"
#: From the healing of a fault to the end of every plan that stood then.
BOUND_S = 60.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each fault and kind, all of a kind one after another in one cluster."""
    wanted = metafunc.config.getoption("--zookeeper-kind")
    kinds: list[Kind] = [kind for kind in KINDS if wanted in ("both", kind)]
    if "fault" in metafunc.fixturenames:
        pairs: list[tuple[str, str]]
        pairs = [(kind, entry.name) for kind in kinds for entry in for_kind(kind)]
        pairs += [
            (f"{kind}{WITH_STORE}", entry.name)
            for kind in kinds
            for entry in for_kind(kind, store=True)
            if entry.store
        ]
        metafunc.parametrize(("chaos", "fault"), pairs, indirect=["chaos"], scope="module")
    elif "chaos" in metafunc.fixturenames:
        metafunc.parametrize("chaos", kinds, indirect=True, scope="module")


def is_sample(session: pytest.Session) -> bool:
    """Whether no other fault was chosen."""
    chosen = [item for item in session.items if item.path == Path(__file__)]
    return all(item.get_closest_marker("sample") for item in chosen)


@pytest.fixture(scope="module")
def chaos(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """A run under way on that kind of server."""
    kind: Kind = request.param.removesuffix(WITH_STORE)
    store = request.param != kind
    skip_without(kind)
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    folder: Path = tmp_path_factory.mktemp(f"chaos-{kind}")
    with ExitStack() as stack:
        session_s = SAMPLE_SESSION_S if is_sample(request.session) else SESSION_S
        settings = Settings(
            *(kind, SEED),
            workers=3,
            session_s=session_s,
            backlog=3,
            shape=BRIEF,
            store=store,
            controls=True,
        )
        cluster = stack.enter_context(opened(settings, folder))
        run = Run(cluster, stack.enter_context(Validator(cluster, SHOWN_S)))
        run.warm_up()
        yield run
        outcome = run.finish()
    assert outcome.violations == []
    assert outcome.validator.tasks > 0
    assert run.validator.history.ticks, "the schedule's plans have run, too"


@pytest.mark.timeout(180)
def test_a_fault_breaks_no_promise(chaos: Run, fault: str) -> None:
    entry = CATALOGUE[fault]
    why = entry.fault().unable(chaos.cluster)
    if why:
        pytest.skip(why)
    before, without_effect = len(chaos.broken()), chaos.effects.without_effect.total()
    broke_off = chaos.outcome.broke_off.copy()
    chaos.at_once([entry])
    assert chaos.outcome.broke_off == broke_off, "no other fault is in its way"
    standing, finished = set(chaos.validator.standing), chaos.validator.finished

    def over() -> bool:
        chaos.cluster.tend()
        new = chaos.broken()[before:]
        assert new == []
        # First, as this look counts a fault that has waited in vain.
        waiting = chaos.effects.still_waiting()
        counted = chaos.effects.without_effect.total()
        assert counted == without_effect, f"{fault!r} had no effect"
        done = not standing & set(chaos.validator.standing)
        whole = done and chaos.cluster.is_whole() and not waiting
        return whole and chaos.validator.finished > finished

    wait_until(
        over,
        f"{fault!r} took effect, the plans that stood then are done, and everybody has a session; "
        f"no effect yet: {chaos.effects.still_waiting()}; plans: {standing}",
        BOUND_S,
    )
