"""Random faults on real processes: python -m tests.chaos --kind ensemble --minutes 30 --seed 7."""

from __future__ import annotations

import argparse
import logging
import shlex
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from .actors.mutated import NAMES
from .actors.workloads import SHAPES
from .faults.catalogue import CATALOGUE, for_kind
from .faults.fault import Entry
from .judges.referee import Referee
from .report import summary, write_report
from .run import Outcome, Run
from .world.arena import Settings, opened
from .world.servers import KINDS


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[Entry]:
    if options.faults is None:
        return for_kind(options.kind)
    names = [name.strip() for name in options.faults.split(",") if name.strip()]
    for name in names:
        if name not in CATALOGUE:
            parser.error(f"no fault is named {name!r}; --list shows them")
        if options.kind not in CATALOGUE[name].kinds:
            parser.error(f"the fault {name!r} does not apply to {options.kind}")
    return [CATALOGUE[name] for name in names]


def chaos(settings: Settings, entries: list[Entry], minutes: float, folder: Path) -> Outcome:
    """One run; the histories and the logs of all processes stay in `folder`."""
    began = time.monotonic()
    with opened(settings, folder) as arena, Referee(arena) as referee:
        run = Run(arena, referee, lambda text: _say(f"{time.monotonic() - began:7.1f} s  {text}"))
        run.warm_up()
        if entries:
            run.rounds(entries, minutes)
        else:
            run.rest(minutes)
        return run.finish()


def _end_orderly(number: int, frame: object) -> NoReturn:
    """As Ctrl-C: what is open is closed, what is mounted is unmounted, nothing is reported."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, _end_orderly)
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="embedded")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--faults", default=None, help="names, joined by commas; '' for none")
    parser.add_argument("--list", action="store_true", help="the faults, and end")
    parser.add_argument("--report", type=Path, default=None, help="a Markdown file to write")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--session-timeout", type=float, default=3.0)
    parser.add_argument("--keep", type=Path, default=None, help="a new folder for histories, logs")
    parser.add_argument("--backlog", type=int, default=4, help="plans that stand at once")
    parser.add_argument("--shape", choices=["", *SHAPES], default="", help="of every plan")
    parser.add_argument("--points", default="", help="armed in every worker")
    parser.add_argument("--veterans", action="store_true", help="watch some that no fault ends")
    parser.add_argument("--mutant", choices=["", *NAMES], default="", help="a broken protocol")
    options = parser.parse_args(arguments)
    if options.list:
        for entry in CATALOGUE.values():
            _say(f"{entry.name:32} {entry.case:>3}  {entry.does} ({', '.join(entry.kinds)})")
        return 0
    entries = _chosen(parser, options)
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    _say(f"seed {seed}")
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    settings = Settings(
        options.kind,
        seed,
        options.workers,
        options.threads,
        options.session_timeout,
        options.backlog,
        options.veterans,
        options.points,
        options.shape,
        options.mutant,
    )
    folder = options.keep or Path(tempfile.mkdtemp(prefix="zkplan-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    outcome = chaos(settings, entries, options.minutes, folder)
    for violation in outcome.violations[:30]:
        _say(f"VIOLATION  {violation}")
    _say(summary(outcome))
    if options.report is not None:
        # Where things were put is no part of what can be repeated.
        places = ("--report", str(options.report), "--keep", str(options.keep))
        words = [word for word in arguments if word not in places]
        command = shlex.join(["python", "-m", "tests.chaos", *words])
        write_report(outcome, options.report, command)
    if outcome.passed and options.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        _say(f"histories and logs: {folder}")
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
