"""The report of a run: one line, and a page of Markdown."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from benchmarks import machine
from zkplan.testing.server_process import server_version

from ..cluster.servers import Kind
from ..faults.catalogue import CATALOGUE
from ..recovery import Taken
from ..run import Outcome
from .usage import by_process, early_and_late

_TAKEOVERS = """\
From the end of a worker process to the next attempt of each task that it was running. It takes the
session time-out, a tick of the server, and longer where other faults hold up servers or workers.
"By itself": a failpoint killed it, or its task did. `python -m tests.chaos.takeover` measures
without other faults."""
_LONG_LIVED = """\
Early: from the 5th to the 10th minute; late: the last 5 minutes; medians, of blocks the least.
Violations: late there are more threads, sockets or descriptors, over 1 % more blocks,
or over 10 % more memory. A run of less than 15 minutes is not judged so. Blocks are
counted once a minute after a garbage collection; freed memory is given back to the system then."""


def write_page(outcome: Outcome, file: Path, command: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(_page(outcome, command)) + "\n")


def summary(outcome: Outcome) -> str:
    """The run in one line."""
    judged = outcome.validator
    return (
        f"{outcome.settings.kind}, seed {outcome.settings.seed}: "
        f"{judged.finished} plans, {judged.tasks} tasks, {judged.executions} executions, "
        f"{_faults(outcome)}, {outcome.without_effect.total()} without effect, "
        f"{outcome.broke_off.total()} broke off, {len(judged.takeovers)} takeovers, "
        f"{judged.effects.repeated.total()} repeated, {judged.effects.fenced.total()} fenced, "
        f"S8 lenient for {_excused(outcome)}, {outcome.ended - outcome.began:.0f} s, "
        f"violations: {len(outcome.violations)}"
    )


def versions(kind: Kind, hosts: str) -> dict[str, object]:
    """Asked at the beginning of a run, as the checkout may change during a long one."""
    zookeeper = {} if kind == "embedded" else {"ZooKeeper": server_version(hosts)}
    return {
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        **machine.facts(),
        **zookeeper,
    }


def command_of(arguments: Sequence[str], seed: int) -> str:
    """The command of a run like this one: with its seed."""
    given = any(word.partition("=")[0] == "--seed" for word in arguments)
    words = [*arguments, *([] if given else ["--seed", str(seed)])]
    return shlex.join(["python", "-m", "tests.chaos", *words])


def _faults(outcome: Outcome) -> str:
    return f"{outcome.faults.total()} faults ({len(outcome.faults)} different)"


def _excused(outcome: Outcome) -> str:
    """The share of the time in which S8 excuses a repeated attempt of any worker."""
    return f"{100 * outcome.excused_s / max(outcome.ended - outcome.began, 0.001):.0f} %"


def _listed(counts: Counter[str]) -> str:
    names = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
    return f"{counts.total()}: {names}" if counts else "0"


def _page(outcome: Outcome, command: str) -> Iterator[str]:
    yield f"# Chaos on {outcome.settings.kind}, violations: {len(outcome.violations)}"
    yield f"\n`{command}`\n"
    yield "| | |\n| --- | --- |"
    yield from (f"| {name} | {value} |" for name, value in _facts(outcome).items())
    if outcome.violations:
        yield "\n## Violations\n"
        yield from (f"- `{text}`" for text in outcome.violations[:50])
    header = "Why the worker ended | Takeovers | Median | Worst"
    yield from _table("Takeovers", _TAKEOVERS, header, _takeovers(outcome))
    header = "Fault | Injected | Took effect | What it does"
    yield from _table("Faults", "", header, _injected(outcome))
    header = "Process | When | Memory | Blocks | Threads | Sockets | Descriptors"
    yield from _table("Long-lived processes", _LONG_LIVED, header, _usage(outcome))


def _facts(outcome: Outcome) -> dict[str, object]:
    settings, judged, scope = outcome.settings, outcome.validator, outcome.validator.coverage
    long_lived = ", one of them long-lived" if settings.long_lived else ""
    workers = settings.workers + settings.long_lived
    return {
        **outcome.versions,
        "seed": settings.seed,
        "time": f"{(outcome.ended - outcome.began) / 60:.1f} minutes",
        "workers": f"{workers}{long_lived}; threads of each: {settings.threads}",
        "session time-out": f"{settings.session_s:g} s",
        "plans checked when done, cancelled or removed": judged.finished,
        "of these cancelled, each task and edge at rest (S1, S2)": scope.at_rest,
        "of these cancelled because their author left them half defined": judged.half_defined,
        "tasks": f"{scope.ran} ran, {scope.dead} ended dead; "
        f"{judged.tasks} were added to plans that nobody removed",
        "executions, their arguments compared with the oracle (S3)": f"{judged.executions}: "
        f"{scope.ran} first ones, {scope.retried} after a planned failure, "
        f"{judged.effects.repeated.total()} after a fault",
        "values followed to the one execution that returned them (S4)": scope.values,
        "kept results compared with the oracle (S4)": scope.kept,
        "answers to waiters compared with the commits (S7)": scope.waits,
        **_stored(outcome),
        "returned too late, and fenced": judged.effects.fenced.total(),
        "faults": _faults(outcome),
        "faults without effect": _listed(outcome.without_effect),
        "steps of faults that broke off": _listed(outcome.broke_off),
        "S8 lenient for": f"{_excused(outcome)} of the time",
        "all plans done after the last fault": outcome.drained,
        "all plans done in between, without new faults": _worst(outcome.recoveries),
        "transactions after which members of ZooKeeper differed": (
            "; ".join(outcome.mismatches) or "none"
        ),
        "**violations**": f"**{len(outcome.violations)}**",
    }


def _stored(outcome: Outcome) -> dict[str, object]:
    if not outcome.settings.store:
        return {}
    blobs = outcome.validator.blobs
    return {
        "plans at rest, their references compared with the store (S10)": (
            f"{blobs.plans}, {blobs.references} references"
        ),
        "of these with files that nothing refers to, which a check deletes": blobs.checked,
    }


def _worst(recoveries: Sequence[Taken]) -> str:
    if not recoveries:
        return "never waited for"
    worst = max(recoveries, key=lambda each: each.seconds / each.allowed_s)
    return f"{len(recoveries)} times, at worst after {worst}"


def _table(title: str, text: str, header: str, rows: Iterator[str]) -> Iterator[str]:
    """A section with a table, or nothing where it has no rows."""
    found = list(rows)
    if not found:
        return
    yield f"\n## {title}\n"
    if text:
        yield f"{text}\n"
    yield f"| {header} |\n|{' --- |' * (header.count('|') + 1)}"
    yield from found


def _injected(outcome: Outcome) -> Iterator[str]:
    for name, count in sorted(outcome.faults.items()):
        yield f"| {name} | {count} | {outcome.took_effect[name]} | {CATALOGUE[name].does} |"
    yield from (f"| {name} | skipped | | {why} |" for name, why in outcome.skipped.items())


def _takeovers(outcome: Outcome) -> Iterator[str]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for takeover in outcome.validator.takeovers:
        found[takeover.why].append(takeover.seconds)
        found["all"].append(takeover.seconds)
    for why, waits in sorted(found.items(), key=lambda pair: (pair[0] == "all", pair[0])):
        yield f"| {why} | {len(waits)} | {median(waits):.2f} s | {max(waits):.2f} s |"


def _usage(outcome: Outcome) -> Iterator[str]:
    for name, series in by_process(outcome.usage).items():
        found = early_and_late(series, outcome.began) or {"at last": series[-1].used}
        for when, used in ({"at first": series[0].used} | found).items():
            memory, *numbers = used.values()
            others = " | ".join(str(number or "-") for number in numbers)
            yield f"| {name} | {when} | {memory / 1e6:.1f} MB | {others} |"
