"""Random faults on real processes: python -m tests.chaos --kind ensemble --minutes 30 --seed 7."""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from .cluster.cluster import Settings, opened
from .cluster.servers import KINDS
from .faults.catalogue import CATALOGUE, for_kind
from .faults.fault import Entry
from .report.page import command_of, summary, versions, write_page
from .report.usage import growth
from .run import Outcome, Run
from .traffic.mutated import ALTERED, NAMES
from .traffic.workloads import SHAPES
from .validate.validator import Validator

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: In a help text: where no default is to be told.
_NO_DEFAULT = "%(default).0s"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[Entry]:
    if options.faults is None:
        return for_kind(options.kind, options.store)
    names = [name.strip() for name in options.faults.split(",") if name.strip()]
    for name in names:
        if name not in CATALOGUE:
            parser.error(f"no fault is named {name!r}; --list shows them")
        if options.kind not in CATALOGUE[name].kinds:
            parser.error(f"the fault {name!r} does not apply to {options.kind}")
        if CATALOGUE[name].store and not options.store:
            parser.error(f"the fault {name!r} needs --store")
    return [CATALOGUE[name] for name in names]


def chaos(settings: Settings, entries: list[Entry], minutes: float, folder: Path) -> Outcome:
    """One run; the histories and the logs of all processes stay in `folder`."""
    began = time.monotonic()
    with opened(settings, folder) as cluster, Validator(cluster) as validator:
        facts = versions(settings.kind, cluster.servers.hosts)
        run = Run(
            cluster, validator, lambda text: _say(f"{time.monotonic() - began:7.1f} s  {text}")
        )
        run.warm_up()
        run.rounds(entries, minutes)
        outcome = run.finish()
    outcome.violations += growth(outcome.usage, outcome.began)
    outcome.versions = facts
    return outcome


class Interrupted(BaseException):
    """A signal came: everything is closed and unmounted, nothing is reported."""


def _end_orderly(number: int, frame: object) -> NoReturn:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


def _minutes(text: str) -> float:
    minutes = float(text)
    if not minutes >= 0:
        raise argparse.ArgumentTypeError(f"{text} is no length of time")
    return minutes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--kind", choices=KINDS, default="embedded", help="of server")
    add("--minutes", type=_minutes, default=1.0, help="for how long there are new faults")
    add("--seed", type=int, help=f"a new one where none is given, printed{_NO_DEFAULT}")
    add("--faults", help=f"names, joined by commas; '' for none; all if not given{_NO_DEFAULT}")
    add("--list", action="store_true", help=f"print what each fault does, and end{_NO_DEFAULT}")
    add("--report", type=Path, help=f"a Markdown file to write{_NO_DEFAULT}")
    add("--workers", type=int, default=4, help="processes")
    add("--threads", type=int, default=2, help="of each worker")
    add("--session-timeout", type=float, default=3.0, help="in seconds")
    add("--keep", type=Path, help=f"a new folder for histories and logs{_NO_DEFAULT}")
    add("--backlog", type=int, default=4, help="plans that stand at once")
    add("--shape", choices=["", *SHAPES], default="", help=f"of every plan{_NO_DEFAULT}")
    add("--points", default="", help=f"failpoints armed in every worker{_NO_DEFAULT}")
    add("--long-lived", action="store_true", help=f"add processes that no fault ends{_NO_DEFAULT}")
    add("--store", action="store_true", help=f"every value lies in a store{_NO_DEFAULT}")
    add(
        "--mutant",
        choices=["", *NAMES, *ALTERED],
        default="",
        help=f"what is broken or altered{_NO_DEFAULT}",
    )
    return parser


def main(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        for entry in CATALOGUE.values():
            kinds = ", ".join([*entry.kinds, *["with --store"] * entry.store])
            _say(f"{entry.name:34}  {entry.does} ({kinds})")
        return 0
    entries = _chosen(parser, options)
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    _say(f"seed {seed}")
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    size = (options.workers, options.threads, options.session_timeout, options.backlog)
    what = (options.long_lived, options.points, options.shape, options.mutant, options.store)
    settings = Settings(options.kind, seed, *size, *what, controls=True)
    for each in _SIGNALS:
        signal.signal(each, _end_orderly)
    folder = options.keep or Path(tempfile.mkdtemp(prefix="zkplan-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        outcome = chaos(settings, entries, options.minutes, folder)
    except Interrupted as signalled:
        (number,) = signalled.args
        _say(f"ended by {signal.Signals(number).name}; histories and logs: {folder}")
        return 128 + int(number)
    for violation in outcome.violations[:30]:
        _say(f"VIOLATION  {violation}")
    for mismatch in outcome.mismatches:
        _say(f"ZOOKEEPER  {mismatch}: its tree differed from the leader's, by its log")
    _say(summary(outcome))
    if options.report is not None:
        write_page(outcome, options.report, command_of(arguments, seed))
    if outcome.passed and options.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        _say(f"histories and logs: {folder}")
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
