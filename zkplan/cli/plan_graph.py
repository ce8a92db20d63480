"""`zkplan plan graph`: draw the remaining graph of a plan as text, Mermaid, DOT or SVG."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from textwrap import wrap

import click

from ..basics.settings import Settings
from ..basics.text import count, printable
from ..errors import ZkplanError
from ..plan import Plan
from ..views.graph import STATES, Box, PlanGraph
from .common import open_client, plan_argument, print_facts, result_options

#: On a terminal, a plan with LARGE tasks or more is first drawn from a SAMPLE of its tasks.
LARGE, SAMPLE = 2000, 500
WIDTH = 80
#: A text lists, and a picture draws, this many of the edges into a box: the strongest.
LISTED, DRAWN = 4, 2
#: A picture with more edges than this for each box draws only the strongest.
EDGES_PER_BOX = 3
#: The colours of the states, light enough for black text.
_COLOURS = {
    "runnable": "#cfe8ff",
    "running": "#c8f0c8",
    "delayed": "#ffe9b3",
    "gated": "#e0d4ff",
    "dead": "#ffc9c9",
    "waiting": "#eeeeee",
    "being defined": "#ffffff",
}


@click.command()
@plan_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid", "dot", "svg"]),
    default="text",
    help="SVG needs the program `dot` of Graphviz.",
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    help="Read only N tasks, spread evenly: numbers are then estimates, and there are no levels.",
)
@result_options
def graph(plan: str, form: str, sample: int | None, output: str, settings: Settings) -> None:
    """Draw the unfinished tasks of a plan. Tasks with the same function, state and level share a
    box. With more than 50 boxes, the levels are merged, and then rare functions. If there are many
    edges, only those that stand for the most dependencies are drawn; -o json has all.

    On a terminal, a sample of a large plan is drawn first, within a second, while the rest is read.
    """
    with open_client(settings) as client:
        of = client.plan(plan)
        if form == "text" and output != "json" and sample is None and sys.stderr.isatty():
            _first_look(of)
        found = of.graph(sample)
    if output == "json":
        edges = [{"from": a, "to": b, "count": n} for (a, b), n in found.edges.items()]
        boxes = [box._asdict() | {"count": found.tasks_of(box)} for box in found.boxes]
        print_facts({"boxes": boxes, "edges": edges}, output)
        return
    draw = {"text": _text, "mermaid": _mermaid}.get(form, _dot)
    drawn = "\n".join(draw(found))
    click.echo(_svg(drawn) if form == "svg" else drawn)


def _first_look(plan: Plan) -> None:
    """Draw a large plan from a sample, on stderr: reading all of it takes some seconds."""
    tasks = plan.status().tasks
    if tasks >= LARGE:
        head = f"a first look, from {SAMPLE} of {tasks:,} tasks; the whole graph follows:"
        click.echo("\n".join([head, *_text(plan.graph(SAMPLE)), ""]), err=True)


def _label(found: PlanGraph, box: Box) -> str:
    number = found.tasks_of(box)
    tasks = f"task {int(box.tasks[0])}" if number == 1 else count(number, "task")
    if found.scale > 1:
        tasks = f"about {tasks}" if number else "few tasks"
    return printable(f"{box.function}: {tasks}, {box.state}").replace("\n", " ")


def _summary(found: PlanGraph) -> str:
    """Return the number of tasks in each state, and the length of the longest chain, in words."""
    states: Counter[str] = Counter()
    for box in found.boxes:
        states[box.state] += found.tasks_of(box)
    about = "about " if found.scale > 1 else ""
    known = sorted(states, key=lambda name: STATES.index(name) if name in STATES else len(STATES))
    counts = ", ".join(f"{states[name]:,} {name}" for name in known if states[name])
    longest = f"; longest chain: {count(found.longest, 'task')}" if found.longest else ""
    return f"{about}{count(states.total(), 'unfinished task')}: {counts}{longest}"


def _strongest(found: PlanGraph, most: int) -> dict[int, list[tuple[int, int]]]:
    """Return for each box the `most` boxes with the most edges into it, and how many edges."""
    ways: dict[int, list[tuple[int, int]]] = {}
    for (source, target), number in found.edges.items():
        ways.setdefault(target, []).append((source, number))
    return {
        target: sorted(each, key=lambda way: (-way[1], way[0]))[:most]
        for target, each in ways.items()
    }


def _text(found: PlanGraph) -> Iterator[str]:
    if not found.boxes:
        yield "no unfinished task"
        return
    yield from _wrapped(_summary(found))
    before = _strongest(found, len(found.boxes))
    about = "about " if found.scale > 1 else ""
    level: int | None = -1
    for index, box in enumerate(found.boxes):
        if box.level != level:
            level = box.level
            yield f"level {level}" if level is not None else "all levels together"
        sources = [
            (f"[{source + 1}]" if source != index else "one another")
            + (f" ({about}{number:,} edges)" if number > 1 else "")
            for source, number in before.get(index, ())
        ]
        if len(sources) > LISTED + 1:
            sources[LISTED:] = [f"{len(sources) - LISTED} other boxes"]
        after = f"  after {', '.join(sources)}" if sources else ""
        line = f"  [{index + 1}] {_label(found, box)}{after}"
        for each in _wrapped(line):
            yield click.style(each, fg="red", bold=True) if box.state == "dead" else each


def _wrapped(line: str) -> list[str]:
    """Break a line for a terminal of 80 columns."""
    if len(line) <= WIDTH:
        return [line]  # `wrap` would change the blanks
    return wrap(line, WIDTH, subsequent_indent="      ")


def _drawn(found: PlanGraph) -> tuple[list[tuple[int, int, int]], str]:
    """Return the edges of a picture, and a note on the edges left out: in a graph without levels
    all edges would hide each other."""
    edges = [(source, target, number) for (source, target), number in found.edges.items()]
    if len(edges) <= EDGES_PER_BOX * len(found.boxes):
        return edges, ""
    ways = {(source, target) for source, target, _ in edges if source != target}
    graph = PlanGraph(found.boxes, {way: found.edges[way] for way in ways})
    strong = _strongest(graph, DRAWN)
    drawn = [
        (source, target, number) for target in sorted(strong) for source, number in strong[target]
    ]
    return drawn, (
        f"of the edges into each box, only the {DRAWN} strongest are drawn; "
        f"{len(edges) - len(drawn):,} others are left out"
    )


def _mermaid(found: PlanGraph) -> Iterator[str]:
    yield "flowchart TD"
    for index, box in enumerate(found.boxes):
        # Mermaid has no backslash escapes: characters special to it or to HTML become entities.
        text = _label(found, box)
        for character, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
            text = text.replace(character, entity)
        yield f'  n{index + 1}["{text}"]'
        yield f"  style n{index + 1} fill:{_COLOURS.get(box.state, '#ffffff')}"
    edges, left_out = _drawn(found)
    for source, target, number in edges:
        arrow = f"-->|{number:,}|" if number > 1 else "-->"
        yield f"  n{source + 1} {arrow} n{target + 1}"
    if found.boxes:
        yield f'  about["{_summary(found)}{"<br>" if left_out else ""}{left_out}"]'
        yield "  style about fill:none,stroke:none"


def _dot(found: PlanGraph) -> Iterator[str]:
    yield "digraph plan {"
    yield '  node [shape=box, style="filled,rounded", fontname="sans-serif"];'
    yield '  edge [color="#777777", fontname="sans-serif", fontsize=10];'
    edges, left_out = _drawn(found)
    if found.boxes:
        text = "\\l".join(filter(None, [_summary(found), left_out]))
        yield f'  label="{text}\\l"; labelloc=t; labeljust=l; fontname="sans-serif";'
    for index, box in enumerate(found.boxes):
        text = _label(found, box).replace("\\", "\\\\").replace('"', '\\"')
        colour = _COLOURS.get(box.state, "#ffffff")
        yield f'  n{index + 1} [label="{text}", fillcolor="{colour}"];'
    for source, target, number in edges:
        label = f' [label="{number:,}"]' if number > 1 else ""
        yield f"  n{source + 1} -> n{target + 1}{label};"
    yield "}"


def _svg(dot: str) -> str:
    program = shutil.which("dot")
    if program is None:
        raise ZkplanError(
            "the program `dot` of Graphviz is not installed: use --format dot or mermaid"
        )
    ran = subprocess.run(
        [program, "-Tsvg"], input=dot, capture_output=True, text=True, check=False, timeout=60
    )
    if ran.returncode:
        raise ZkplanError(f"{program} has failed: {ran.stderr.strip()}")
    return ran.stdout
