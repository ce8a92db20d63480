"""What lives through a run may not hold ever more: each thing that it holds is judged."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .actors.held import Held
from .vitals import Vitals, growth, vitals_of

BEGAN = 1000.0


def an_hour() -> list[Vitals]:
    """A sample every ten seconds: peaks and lost connections, but no growth."""
    made = []
    for number in range(361):
        peak, cut = number % 7 == 0, number % 11 == 0
        made.append(
            Vitals(
                "veteran worker",
                7,
                BEGAN + 10.0 * number,
                36_000_000 + 2_000_000 * peak,
                threads=6,
                sockets=3 - cut,
                descriptors=8 - cut,
                # Noted once a minute; not before the first task.
                blocks=0 if number % 6 or not number else 124_000 + 5_000 * peak + number,
            )
        )
    return made


def broken(samples: list[Vitals]) -> list[str]:
    return list(growth(samples, BEGAN))


def late(change: Callable[[Vitals], Vitals], after_s: float = 3000.0) -> list[Vitals]:
    """The same, but for what `change` makes of all samples of the last minutes."""
    return [change(each) if each.at >= BEGAN + after_s else each for each in an_hour()]


def test_peaks_and_connections_that_are_made_anew_are_no_growth() -> None:
    assert broken(an_hour()) == []


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("threads", lambda each: each._replace(threads=7)),
        ("sockets", lambda each: each._replace(sockets=each.sockets + 2)),
        ("descriptors", lambda each: each._replace(descriptors=each.descriptors + 2)),
        ("blocks", lambda each: each._replace(blocks=each.blocks and each.blocks + 1700)),
        ("memory_bytes", lambda each: each._replace(memory_bytes=each.memory_bytes + 4_000_000)),
    ],
)
def test_what_grows_is_found(what: str, change: Callable[[Vitals], Vitals]) -> None:
    (found,) = broken(late(change))
    assert f"veteran worker holds ever more {what}: " in found


def test_what_grows_for_a_moment_is_not() -> None:
    samples = [
        each._replace(threads=9, sockets=9, descriptors=20, memory_bytes=99_000_000)
        if each.at == BEGAN + 3500
        else each
        for each in an_hour()
    ]
    assert broken(samples) == []


def test_who_notes_no_blocks_is_found() -> None:
    (found,) = broken(late(lambda each: each._replace(blocks=0)))
    assert "did not note" in found


def test_who_ended_is_found() -> None:
    (found,) = broken(late(lambda each: each._replace(pid=8), after_s=3590.0))
    assert "veteran worker ended" in found
    assert "[7, 8]" in found


def test_the_moments_after_its_end_do_not_count() -> None:
    ended = Vitals("veteran worker", 7, BEGAN + 3610.0)
    assert broken([*an_hour(), ended]) == []


def test_a_short_run_is_judged_by_its_ends_alone() -> None:
    samples = [each for each in an_hour() if each.at < BEGAN + 890]
    assert broken([each._replace(threads=int(each.at)) for each in samples]) == []
    assert broken([*samples[:-1], samples[-1]._replace(pid=8)]) != []


def test_the_blocks_of_a_moment_are_those_noted_last(tmp_path: Path) -> None:
    """The fewest of many would be of another stretch: the start for early, half-way for late."""
    journal = tmp_path / "journal"
    blocks = []
    for noted in (118_700, 118_900, 119_100):
        with journal.open("a") as file:
            file.write(f'{{"event": "begun"}}\n{{"event": "plan closed", "blocks": {noted}}}\n')
            file.write('{"event": "begun"}\n{"event": "cut')
        blocks.append(vitals_of("veteran author", os.getpid(), 0.0, journal).blocks)
        with journal.open("a") as file:
            file.write(' short"}\n')
    assert blocks == [118_700, 118_900, 119_100]


def test_garbage_is_collected_only_when_blocks_are_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, collected = [100.0], []
    monkeypatch.setattr("tests.chaos.actors.held.time.monotonic", lambda: now[0])
    monkeypatch.setattr(gc, "collect", lambda: collected.append(now[0]))
    held = Held()
    for second in range(125):
        now[0] = 100.0 + second
        assert bool(held.noted()) == (second % 60 == 0)
    assert collected == [100.0, 160.0, 220.0]


def test_what_is_kept_of_a_peak_is_given_back() -> None:
    """A block that stays above the others keeps the C library from doing so by itself."""
    code = (
        "import os\n"
        "from pathlib import Path\n"
        "from tests.chaos.actors.held import Held\n"
        "from tests.chaos.vitals import vitals_of\n"
        "def memory(): return vitals_of('', os.getpid(), 0.0, Path('none')).memory_bytes\n"
        "peak = [b'x' * 100_000 for _ in range(200)]\n"
        "above = b'x' * 100_000\n"
        "del peak\n"
        "kept = memory()\n"
        "Held().noted()\n"
        "print(kept - memory())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ran.stdout) > 10_000_000
