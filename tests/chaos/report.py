"""The report of a chaos run: a page of Markdown, with its pictures beside it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from .faults.catalogue import CATALOGUE
from .peace import Breath
from .pictures import histogram, lines, throughput
from .run import Outcome
from .validate.measures import Effects
from .vitals import BLOCKS_MORE, MEMORY_MORE, Vitals, by_process, stretches
from .words import counted

JUDGED = """\
The numbers are those of docs/protocol.md; tests/chaos/README.md tells the checks, and its mutants
that each of them bites. Most of them hold all the time; some are lenient where a fault may have
touched whom they judge, and tests/chaos/README.md names each. S8, that an attempt is repeated only
after such a fault, is lenient for all workers while a server is down, say. A process may end by
itself only where a fault ends that very process, with the exit code that the fault gives. A fault
is felt where it reached what it was aimed at; steps of it break off where another one keeps a
server down. What an author that was killed had half defined is cancelled, and judged as every
cancelled plan."""
TAKEOVERS = """\
From the end of a worker process to the next attempt of each task that it was running: the session
time-out, the server's tick, and what a worker takes. Where other faults hold up servers or all
workers meanwhile it is longer; `python -m tests.chaos.takeover` measures without those. By
itself: at a point of the code that a fault has armed, or by a task that exits, crashes or eats
its memory."""
#: How many session time-outs a takeover may take before the page tells what was under way.
LONGEST_TIMES = 2
LONGEST = f"""\
Those of over {LONGEST_TIMES} session time-outs. A fault is given with the time of its healing, from
the end of that process."""
VETERANS = f"""\
At first; then early, from the 5th to the 10th minute; in 5 minutes half-way; and late, in the last
5 minutes. Those are medians, of blocks the least. A violation is what is more late than early: any
thread, socket or descriptor, over {BLOCKS_MORE:.0%} of the blocks, or over {MEMORY_MORE:.0%} of the
memory. Memory is the resident size. Blocks are those that Python has in use once its garbage is
collected: what the process holds. For both, garbage is collected once a minute besides, and the C
library gives freed memory back to the system (`malloc_trim`), as no worker does by itself: without,
the resident size is that of the largest peak. A run of less than 15 minutes is not judged so."""
OUTAGES = """\
From when all servers serve again to the first task that begins. Where other faults are under way
then it is longer."""


def write_report(outcome: Outcome, file: Path, command: str) -> None:
    """Write `file` and two pictures named like it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pictures = {}
    seconds = outcome.ended - outcome.began
    marks = [
        (begin - outcome.began, end - outcome.began, name) for begin, end, name in outcome.marks
    ]
    times = [at - outcome.began for at in outcome.ended_at]
    pictures["throughput"] = throughput(times, seconds, marks)
    waits = [takeover.seconds for takeover in outcome.takeovers]
    if waits:
        pictures["takeovers"] = histogram(waits)
    if outcome.vitals:
        pictures["memory"] = memory(outcome)
    for name, svg in pictures.items():
        file.with_name(f"{file.stem}-{name}.svg").write_text(svg)
    file.write_text("\n".join(_page(outcome, command, file.stem, list(pictures))) + "\n")


def summary(outcome: Outcome) -> str:
    """The run in one line."""
    broke_off = outcome.broke_off.total()
    return ", ".join(
        [
            f"{outcome.settings.kind}, seed {outcome.settings.seed}: "
            + counted(outcome.plans, "plan"),
            counted(outcome.tasks, "task"),
            counted(outcome.executions, "execution"),
            _faults(outcome),
            f"{outcome.unfelt.total()} of them not felt",
            counted(len(outcome.takeovers), "takeover"),
            f"{outcome.effects.repeated.total()} repeated, {outcome.effects.fenced.total()} fenced",
            f"{counted(broke_off, 'step')} of faults broke off",
            f"S8 lenient for {excused_percent(outcome):.0f} %",
            f"{outcome.ended - outcome.began:.0f} s",
            f"violations: {len(outcome.violations)}",
        ]
    )


def _faults(outcome: Outcome) -> str:
    return f"{counted(outcome.faults.total(), 'fault')} of {counted(len(outcome.faults), 'kind')}"


def excused_percent(outcome: Outcome) -> float:
    """The share of the time in which S8 excuses a repeated attempt of any worker."""
    return 100 * outcome.excused_s / max(outcome.ended - outcome.began, 0.001)


def _listed(counts: Counter[str]) -> str:
    """How many, and what: those that nobody felt have proved nothing."""
    names = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
    return f"{counts.total()}: {names}" if counts else "0"


def _page(outcome: Outcome, command: str, stem: str, pictures: Sequence[str]) -> Iterator[str]:
    violations = counted(len(outcome.violations), "violation")
    yield f"# Chaos on {_server(outcome.settings.kind)}: {violations}"
    yield f"\n`{command}`\n"
    yield "| | |\n| --- | --- |"
    yield from (f"| {name} | {value} |" for name, value in _facts(outcome).items())
    if outcome.violations:
        yield "\n## Violations\n"
        yield from (f"- `{text}`" for text in outcome.violations[:50])
    yield from _table("What was judged", JUDGED, "What | How often", _judged(outcome))
    yield "\n## Throughput\n"
    yield "Executions that returned, over time. Faults are under way where it is shaded.\n"
    yield f"![Throughput over time]({stem}-throughput.svg)"
    yield from _table(
        "Takeovers",
        TAKEOVERS,
        "Why it ended | Takeovers | Median | Worst",
        _takeovers(outcome),
    )
    if "takeovers" in pictures:
        yield f"\n![Take-over times]({stem}-takeovers.svg)"
    yield from _table(
        "The longest takeovers",
        LONGEST,
        "Takeover | Why it ended | Other faults under way in that time",
        _longest(outcome),
    )
    yield from _table("After outages", OUTAGES, "Fault | Times | Median | Worst", _back(outcome))
    yield from _table(
        "What faults have cost",
        "By the faults under way. Repeated: executions that had not failed as planned, whose claim "
        "was lost\nor handed back, and whose task ran again. Fenced: executions that returned too "
        "late, and were not committed.",
        "Faults | Repeated | Fenced",
        _effects(outcome.effects),
    )
    yield from _vitals(outcome, stem)
    yield from _table("Faults", "", "Fault | Times | What it does", _injected(outcome))
    yield from _table(
        "Transactions lost on purpose", "", "Step and loss | Times", _pairs(outcome.lost)
    )
    yield from _table("Plans", "", "Shape | Plans", _pairs(outcome.shapes))
    if outcome.trouble:
        yield "\n## What tasks and waiters met that was not planned\n"
        yield "What no fault explains is among the violations.\n"
        yield from (f"- `{text}`" for text in outcome.trouble[:20])


def _facts(outcome: Outcome) -> dict[str, object]:
    settings, seconds = outcome.settings, outcome.ended - outcome.began
    scope = outcome.coverage
    spared = "and one that no fault ends, " if settings.veterans else ""
    return {
        **outcome.origin,
        "seed": settings.seed,
        "time": f"{seconds / 60:.1f} minutes",
        "worker processes": f"{settings.workers}, {spared}each with "
        f"{counted(settings.threads, 'thread')}",
        "session time-out": f"{settings.session_s:g} s",
        "plans checked": outcome.plans,
        # A plan that an operator removed does not tell any more how many were added to it.
        "tasks": f"{scope.ran} ran, {scope.dead} ended dead; "
        f"{outcome.tasks} were added to plans that nobody removed",
        "executions": f"{outcome.executions}: {scope.ran} first ones, {scope.retried} after a "
        f"planned failure, {outcome.effects.repeated.total()} after a fault",
        "tasks per second": f"{outcome.tasks / max(seconds, 1e-9):.0f}",
        "returned too late, and fenced": outcome.effects.fenced.total(),
        "faults": _faults(outcome),
        "faults that nobody felt": _listed(outcome.unfelt),
        "steps of faults that broke off": _listed(outcome.broke_off),
        "S8 lenient for": f"{excused_percent(outcome):.0f} % of the time",
        "drained after the last fault": f"{outcome.drained_s:.1f} s "
        f"of {outcome.drain_allowed_s:.0f} s allowed",
        "waits in between, without new faults, until all plans were done": _breaths(
            outcome.breaths
        ),
        "plans cancelled half defined": outcome.half_defined,
        "transactions after which members of ZooKeeper differed, by their digests": (
            "; ".join(outcome.mismatches) or "none"
        ),
        "**violations**": f"**{len(outcome.violations)}**",
    }


def _breaths(breaths: Sequence[Breath]) -> str:
    if not breaths:
        return "none"
    worst = max(breaths, key=lambda each: each.lasted_s / each.allowed_s)
    lasted = f"{worst.lasted_s:.1f} s of {worst.allowed_s:.0f} s allowed"
    return f"{len(breaths)}, the one nearest to its bound took {lasted}"


def _back(outcome: Outcome) -> Iterator[str]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for name, seconds in outcome.back_s:
        found[name].append(seconds)
    for name, waits in sorted(found.items()):
        yield f"| {name} | {len(waits)} | {median(waits):.2f} s | {max(waits):.2f} s |"


def _judged(outcome: Outcome) -> Iterator[str]:
    scope = outcome.coverage
    yield f"| plans, when done, cancelled or removed | {outcome.plans} |"
    yield f"| of these cancelled, each task and edge at rest (S1, S2) | {scope.at_rest} |"
    yield f"| executions, their arguments compared with the oracle (S3) | {outcome.executions} |"
    yield f"| values followed to the one execution that returned them (S4) | {scope.values} |"
    yield f"| kept results compared with the oracle (S4) | {scope.kept} |"
    yield f"| answers to waiters compared with the commits (S7) | {scope.waits} |"


def _table(title: str, text: str, header: str, rows: Iterator[str]) -> Iterator[str]:
    """With its heading, or nothing at all where it has no rows."""
    found = list(rows)
    if not found:
        return
    yield f"\n## {title}\n"
    if text:
        yield f"{text}\n"
    yield f"| {header} |\n|{' --- |' * (header.count('|') + 1)}"
    yield from found


def _effects(effects: Effects) -> Iterator[str]:
    repeated, fenced = effects.repeated, effects.fenced
    for name in sorted({*repeated, *fenced}):
        yield f"| {name} | {repeated[name]} | {fenced[name]} |"


def _pairs(counts: Counter[str]) -> Iterator[str]:
    yield from (f"| {name} | {count} |" for name, count in sorted(counts.items()))


def _injected(outcome: Outcome) -> Iterator[str]:
    for name, count in sorted(outcome.faults.items()):
        yield f"| {name} | {count} | {CATALOGUE[name].does} |"
    yield from (f"| {name} | skipped | {why} |" for name, why in outcome.skipped.items())


def _takeovers(outcome: Outcome) -> Iterator[str]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for takeover in outcome.takeovers:
        found[takeover.why].append(takeover.seconds)
        found["all"].append(takeover.seconds)
    for why, waits in sorted(found.items(), key=lambda pair: (pair[0] == "all", pair[0])):
        yield f"| {why} | {len(waits)} | {median(waits):.2f} s | {max(waits):.2f} s |"


def _longest(outcome: Outcome) -> Iterator[str]:
    """With what may have held them up."""
    bound = LONGEST_TIMES * outcome.settings.session_s
    found = (each for each in outcome.takeovers if each.seconds > bound)
    for at, seconds, why in sorted(found, key=lambda each: -each.seconds):
        meanwhile = ", ".join(
            f"{name} ({end - at:.1f} s)"
            for begin, end, name in outcome.marks
            if begin <= at + seconds and end >= at and name != why
        )
        yield f"| {seconds:.2f} s | {why} | {meanwhile or 'none'} |"


def _vitals(outcome: Outcome, stem: str) -> Iterator[str]:
    """Of those that no fault ended: early in the run, and at its end."""
    found = by_process(outcome.vitals)
    if not found:
        return
    yield f"\n## Processes that lived through all of it\n\n{VETERANS}\n"
    yield "| Process | When | Memory | Blocks | Threads | Sockets | Descriptors |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for series in found.values():
        yield _vitals_row(_minutes(series[0], outcome), series[0])
        parts = stretches(series, outcome.began)
        yield from (_vitals_row(when, held) for when, held in parts.items())
        if not parts:
            yield _vitals_row(_minutes(series[-1], outcome), series[-1])
    yield f"\n![Memory over time]({stem}-memory.svg)"


def _minutes(held: Vitals, outcome: Outcome) -> str:
    return f"{(held.at - outcome.began) / 60:.1f} min"


def _vitals_row(when: str, held: Vitals) -> str:
    memory = f"{held.memory_bytes / 1e6:.1f} MB"
    return (
        f"| {held.name} ({held.pid}) | {when} | {memory} | {held.blocks or '-'} | "
        f"{held.threads} | {held.sockets} | {held.descriptors} |"
    )


def memory(outcome: Outcome) -> str:
    """The resident size of those that no fault ended, in MB over time."""
    series: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in outcome.vitals:
        if each.memory_bytes:
            series[each.name].append((each.at - outcome.began, each.memory_bytes / 1e6))
    return lines(series, outcome.ended - outcome.began, "MB")


def _server(kind: str) -> str:
    names = {"embedded": "the embedded server", "zookeeper": "one ZooKeeper"}
    return names.get(kind, "an ensemble of three")
