"""A broken protocol is caught here too, by real processes; the real one passes the same scenes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from .actors.mutated import NAMES
from .scenes.races import CATCHES, Catch
from .scenes.stage import played

#: Most of a scene is waiting: sessions end, processes start.
AT_ONCE = 3
Verdicts = dict[tuple[str, str], "Future[list[str]]"]


def id_of(catch: Catch) -> str:
    return ", ".join(filter(None, (catch.name, catch.scene.play.__name__, catch.scene.altered)))


def mutants_of(catch: Catch, kind: str) -> tuple[str, ...]:
    """With what its scene is played in the test of that kind."""
    return (catch.name,) if kind == "caught" else catch.unbroken


CATCH = pytest.mark.parametrize("catch", CATCHES, ids=id_of)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Verdicts]:
    """What the scenes of all chosen tests came to, some of them played at once."""
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    found: Verdicts = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for item in request.session.items:
            if item.path != Path(__file__) or "catch" not in getattr(item, "fixturenames", ()):
                continue
            catch: Catch = item.callspec.params["catch"]  # type: ignore[attr-defined]
            for mutant in mutants_of(catch, "caught" if "caught" in item.name else "blamed"):
                folder = tmp_path_factory.mktemp("scene")
                found[id_of(catch), mutant] = pool.submit(played, catch.scene, mutant, folder)
        try:
            yield found
        finally:
            pool.shutdown(cancel_futures=True)


@CATCH
def test_a_mutant_is_caught(verdicts: Verdicts, catch: Catch) -> None:
    verdict = verdicts[id_of(catch), catch.name].result()
    # That a process dies of its own mutation, or that a scene breaks off, proves nothing.
    assert [text for text in verdict if text.startswith(catch.shows)], verdict


@CATCH
def test_the_real_protocol_is_not_blamed(verdicts: Verdicts, catch: Catch) -> None:
    for mutant in catch.unbroken:
        assert verdicts[id_of(catch), mutant].result() == [], mutant


def test_every_mutant_has_a_scene() -> None:
    assert {name for catch in CATCHES for name in catch.name.split("+")} >= set(NAMES)
