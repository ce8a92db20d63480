"""The last line and the page of a run tell all that it showed, and no table without rows."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest

import zkplan

from .__main__ import main
from .origin import command_of, commit_of, origin_of
from .peace import Breath
from .report import summary, write_report
from .run import Outcome
from .takeover import Measured, Series, _page
from .validate.measures import Coverage, Takeover
from .vitals import Vitals, vitals_of
from .words import counted
from .world.arena import Settings


def outcome() -> Outcome:
    made = Outcome(Settings("embedded", 7), 0.0, 100.0, plans=1, tasks=2, executions=1)
    made.origin = origin_of("embedded", "")
    return made


def page(made: Outcome, folder: Path) -> str:
    file = folder / "page.md"
    write_report(made, file, "the command")
    return file.read_text()


def test_the_page_says_who_was_excused_and_what_broke_off(tmp_path: Path) -> None:
    made = outcome()
    made.excused_s = 25.0
    made.broke_off.update({"link cut (heal)": 2})
    text = page(made, tmp_path)
    assert "| S8 lenient for | 25 % of the time |" in text
    assert "| steps of faults that broke off | 2: link cut (heal) (2) |" in text
    assert "S8 lenient for 25 %" in summary(made)
    assert "2 steps of faults broke off" in summary(made)


def test_the_page_says_how_long_it_took_without_faults(tmp_path: Path) -> None:
    made = outcome()
    assert "until all plans were done | none |" in page(made, tmp_path)
    assert "## After outages" not in page(made, tmp_path)
    made.drained_s, made.drain_allowed_s = 5.0, 30.0
    made.breaths = [Breath(3, 9.0, 40.0), Breath(1, 8.0, 20.0)]
    made.back_s = [("outage", 0.5), ("outage", 2.5)]
    text = page(made, tmp_path)
    assert "| drained after the last fault | 5.0 s of 30 s allowed |" in text
    assert "| 2, the one nearest to its bound took 8.0 s of 20 s allowed |" in text
    assert "| outage | 2 | 1.50 s | 2.50 s |" in text


def test_the_page_says_what_held_up_the_longest_takeovers(tmp_path: Path) -> None:
    made = outcome()
    made.marks = [(1.0, 9.0, "quorum lost"), (10.0, 10.5, "worker killed"), (30.0, 31.0, "outage")]
    made.marks += [(11.0, 25.0, "leader killed"), (2.0, 12.0, "waiter expired")]
    made.takeovers = [Takeover(10.0, 3.3, "worker killed"), Takeover(90.0, 7.0, "by itself")]
    assert "| 7.00 s | by itself | none |" in page(made, tmp_path)
    made.takeovers.append(Takeover(10.0, 16.0, "worker killed"))
    text = page(made, tmp_path)
    long = "| 16.00 s | worker killed | leader killed (15.0 s), waiter expired (2.0 s) |"
    assert text.index(long) < text.index("| 7.00 s | by itself | none |")
    assert "| 3.30 s |" not in text


def test_the_page_lists_what_nobody_felt(tmp_path: Path) -> None:
    made = outcome()
    made.faults.update({"worker expired": 3})
    made.felt.update({"worker expired": 2})
    made.unfelt.update({"worker expired": 1})
    assert "| faults that nobody felt | 1: worker expired (1) |" in page(made, tmp_path)
    assert "1 of them not felt" in summary(made)


def test_the_page_says_where_it_comes_from(tmp_path: Path) -> None:
    text = page(outcome(), tmp_path)
    assert f"| zkplan | {zkplan.__version__} |" in text
    assert f"| Python | {platform.python_version()} |" in text
    for name in ("date", "commit", "kazoo", "processors"):
        assert f"\n| {name} | " in text
    assert platform.node() not in text
    assert str(Path(__file__).parents[2]) not in text


def test_the_page_of_takeovers_says_where_it_comes_from() -> None:
    measured = Measured([Series("killed", 1, [3.0], 4.0)], "", origin_of("embedded", ""))
    text = _page(measured, Settings("embedded", 7), "the command", "page")
    assert f"| zkplan | {zkplan.__version__} |" in text
    assert "\n| commit | " in text


def test_a_real_server_is_named_with_its_version() -> None:
    facts = origin_of("zookeeper", "127.0.0.1:1")
    assert facts["ZooKeeper"] == "unknown"  # nobody is there to tell
    assert facts["Java"]
    assert "ZooKeeper" not in origin_of("embedded", "")


def test_the_commit_has_a_plus_where_the_checkout_was_changed(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == ""
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "one"]):
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(["git", *words], cwd=tmp_path, check=True, env=environment)
    clean = commit_of(tmp_path)
    assert clean
    assert not clean.endswith("+")
    (tmp_path / "docs" / "evidence").mkdir(parents=True)
    (tmp_path / "docs" / "evidence" / "page.md").touch()
    assert commit_of(tmp_path) == clean
    (tmp_path / "code.py").touch()
    assert commit_of(tmp_path) == clean + "+"


def test_the_page_says_what_a_veteran_holds_early_half_way_and_late(tmp_path: Path) -> None:
    """A peak is no leak: it is medians that count, and of blocks the fewest."""
    made = outcome()
    for at, blocks in ((0.0, 0), (290.0, 400), (310.0, 900), (400.0, 500), (590.0, 500)):
        made.vitals.append(Vitals("veteran", 7, at, 31_000_000, 4, 3, 7, blocks))
    for at in (1900.0, 3400.0, 3500.0):
        made.vitals.append(Vitals("veteran", 7, at, 32_000_000, 4, 2, 7, 510))
    made.vitals.append(Vitals("veteran", 7, 3600.0, 99_000_000, 5, 9, 7, 2000))
    rows = [line for line in page(made, tmp_path).splitlines() if line.startswith("| veteran")]
    assert rows == [
        "| veteran (7) | 0.0 min | 31.0 MB | - | 4 | 3 | 7 |",
        "| veteran (7) | early | 31.0 MB | 500 | 4 | 3 | 7 |",
        "| veteran (7) | half-way | 32.0 MB | 510 | 4 | 2 | 7 |",
        "| veteran (7) | late | 32.0 MB | 510 | 4 | 2 | 7 |",
    ]
    short = outcome()
    short.vitals = [each for each in made.vitals if each.at < 600]
    rows = [line for line in page(short, tmp_path).splitlines() if line.startswith("| veteran")]
    assert [row.split(" | ")[1] for row in rows] == ["0.0 min", "9.8 min"]


def test_a_process_tells_the_blocks_that_it_noted_last(tmp_path: Path) -> None:
    journal = tmp_path / "worker-1.jsonl"
    assert vitals_of("here", os.getpid(), 0.0, journal).blocks == 0
    cut = '{"event": "end", "blo'
    lines = ['cks": 1}', '{"blocks": 80}', '{"event": "begin"}', '{"blocks": 90}', cut]
    journal.write_text("\n".join(lines))
    assert vitals_of("here", os.getpid(), 0.0, journal).blocks == 90


def test_a_table_without_rows_is_not_printed(tmp_path: Path) -> None:
    made = outcome()
    empty = page(made, tmp_path)
    for title in (
        "Takeovers",
        "What faults have cost",
        "Faults",
        "Transactions lost on purpose",
        "Plans",
    ):
        assert f"## {title}\n" not in empty
    made.faults.update(["worker killed"])
    made.shapes.update(["chain"])
    made.lost.update(["claim answer"])
    full = page(made, tmp_path)
    assert "| Fault | Times | What it does |\n| --- | --- | --- |\n" in full
    assert "| worker killed | 1 | SIGKILL, worker |" in full
    assert "| Shape | Plans |\n| --- | --- |\n| chain | 1 |" in full
    assert "| claim answer | 1 |" in full


def test_the_page_says_what_faults_have_cost(tmp_path: Path) -> None:
    made = outcome()
    made.effects.repeated.update({"worker paused": 3, "leader killed": 1})
    made.effects.fenced.update({"worker paused": 2})
    text = page(made, tmp_path)
    assert "| leader killed | 1 | 0 |\n| worker paused | 3 | 2 |" in text
    assert "4 repeated, 2 fenced" in summary(made)


def test_the_page_says_how_much_was_judged(tmp_path: Path) -> None:
    made = outcome()
    made.tasks, made.executions = 12, 16
    made.coverage = Coverage(ran=10, retried=4, values=25, kept=3, waits=2, dead=1)
    made.effects.repeated.update({"worker paused": 2})
    text = page(made, tmp_path)
    assert "| tasks | 10 ran, 1 ended dead; 12 were added to plans that nobody removed |" in text
    assert "| executions | 16: 10 first ones, 4 after a planned failure, 2 after a fault |" in text
    for many, what in ((16, "S3"), (25, "returned them (S4)"), (3, "oracle (S4)"), (2, "S7")):
        assert any(what in line and f"| {many} |" in line for line in text.splitlines())


def test_one_is_not_told_as_many() -> None:
    made = outcome()
    made.faults.update({"worker killed": 4})
    made.broke_off.update(["one"])
    line = summary(made)
    for words in ("1 plan,", "2 tasks,", "1 execution,", "4 faults of 1 kind,", "1 step of"):
        assert words in line
    assert counted(0, "fault") == "0 faults"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "--seed 5"),
        ("--seed 5", "--seed 5"),
        ("--seed=5 --minutes 2", "--seed=5 --minutes 2"),
        ("--keep there --minutes 2 --report=page.md", "--minutes 2 --seed 5"),
    ],
)
def test_the_command_has_the_seed_and_no_places(given: str, told: str) -> None:
    assert command_of(given.split(), 5) == f"python -m tests.chaos {told}"
    assert command_of(given.split(), 5, "another") == f"python -m another {told}"


@pytest.mark.parametrize("minutes", ["-1", "nan", "soon"])
def test_a_length_of_time_that_is_none_is_refused(
    minutes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--minutes", minutes])
    assert refused.value.code == 2
    assert "--minutes" in capsys.readouterr().err


def test_help_shows_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert "(default: embedded)" in said
    assert "(default: 3.0)" in said
    assert "None" not in said
