"""Each mutant is caught with real processes; the real protocol passes the same scenarios."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from .scenarios.races import MUTANT_CASES, MutantCase
from .scenarios.scenario import played
from .traffic.mutated import NAMES

#: Most of a scenario is waiting: sessions end, processes start.
AT_ONCE = 3
Verdicts = dict[tuple[str, str], "Future[list[str]]"]


def id_of(case: MutantCase) -> str:
    return ", ".join(filter(None, (case.name, case.scenario.play.__name__, case.scenario.altered)))


def mutants_of(case: MutantCase, kind: str) -> tuple[str, ...]:
    """The variants with which the test of that kind plays its scenario."""
    return (case.name,) if kind == "caught" else case.unbroken


CASE = pytest.mark.parametrize("case", MUTANT_CASES, ids=id_of)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Verdicts]:
    """The violations in the scenarios of all chosen tests; some are played at once."""
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    found: Verdicts = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for item in request.session.items:
            if item.path != Path(__file__) or "case" not in getattr(item, "fixturenames", ()):
                continue
            case: MutantCase = item.callspec.params["case"]  # type: ignore[attr-defined]
            for mutant in mutants_of(case, "caught" if "caught" in item.name else "blamed"):
                folder = tmp_path_factory.mktemp("scenario")
                found[id_of(case), mutant] = pool.submit(played, case.scenario, mutant, folder)
        try:
            yield found
        finally:
            pool.shutdown(cancel_futures=True)


@CASE
def test_a_mutant_is_caught(verdicts: Verdicts, case: MutantCase) -> None:
    verdict = verdicts[id_of(case), case.name].result()
    # That a process dies of its own mutation, or that a scenario breaks off, proves nothing.
    assert [text for text in verdict if text.startswith(case.shows)], verdict


@CASE
def test_the_real_protocol_is_not_blamed(verdicts: Verdicts, case: MutantCase) -> None:
    for mutant in case.unbroken:
        assert verdicts[id_of(case), mutant].result() == [], mutant


def test_every_mutant_has_a_scenario() -> None:
    assert {name for case in MUTANT_CASES for name in case.name.split("+")} >= set(NAMES)
