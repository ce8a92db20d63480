"""`zkplan plan graph`: the graph that is left of a plan, as text, Mermaid, DOT or SVG."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from textwrap import wrap

import click

from ..errors import ZkplanError
from ..inspection.graph import Box, PlanGraph
from ..plan import Plan
from ..settings import Settings
from ..text import count
from .common import connection_options, open_client, output_option, print_facts
from .terminal import printable

#: From so many tasks on a terminal gets a first look, from so many of them.
LARGE, SAMPLE = 2000, 500
WIDTH = 80
#: The colours of the states, light enough for black text.
_COLOURS = {
    "runnable": "#cfe8ff",
    "claimed": "#c8f0c8",
    "delayed": "#ffe9b3",
    "gated": "#e0d4ff",
    "dead": "#ffc9c9",
    "waiting": "#eeeeee",
    "being defined": "#ffffff",
}


@click.command()
@click.argument("plan", metavar="PLAN")
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
@output_option
@connection_options
def graph(plan: str, form: str, sample: int | None, output: str, settings: Settings) -> None:
    """Draw the unfinished tasks of a plan. Those of one function in one state and on one level are
    one box; in a graph with more than 200 boxes, those of all levels, and if that does not do, rare
    functions share a box.

    On a terminal a large plan is first drawn from a sample, within a second, while the rest is
    read.
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
    elif form == "svg":
        click.echo(_svg("\n".join(_dot(found))))
    else:
        click.echo("\n".join(_FORMS[form](found)))


def _first_look(plan: Plan) -> None:
    """Draw a large plan from a sample, on stderr: the whole of it takes some seconds to read."""
    tasks = plan.status().tasks
    if tasks < LARGE:
        return
    click.echo(f"a first look, from {SAMPLE} of {tasks:,} tasks; all of them follow:", err=True)
    click.echo("\n".join(_text(plan.graph(SAMPLE))) + "\n", err=True)


def _label(found: PlanGraph, box: Box) -> str:
    number = found.tasks_of(box)
    tasks = f"task {int(box.tasks[0])}" if number == 1 else count(number, "task")
    if found.scale > 1:
        tasks = f"about {tasks}" if number else "few tasks"
    return printable(f"{box.function}: {tasks}, {box.state}").replace("\n", " ")


def _text(found: PlanGraph) -> Iterator[str]:
    if not found.boxes:
        yield "no unfinished task"
    level: int | None = -1
    for index, box in enumerate(found.boxes):
        if box.level != level:
            level = box.level
            yield f"level {level}" if level is not None else "all levels together"
        sources = [
            f"[{source + 1}]" + (f" ({number:,} edges)" if number > 1 else "")
            for (source, target), number in found.edges.items()
            if target == index
        ]
        after = f"  after {', '.join(sources)}" if sources else ""
        line = f"  [{index + 1}] {_label(found, box)}{after}"
        yield from _wrapped(line)


def _wrapped(line: str) -> list[str]:
    """Lines that no terminal of 80 columns breaks at a place of its own."""
    if len(line) <= WIDTH:
        return [line]
    return wrap(line, WIDTH, subsequent_indent="      ", drop_whitespace=True)


def _mermaid(found: PlanGraph) -> Iterator[str]:
    yield "flowchart TD"
    for index, box in enumerate(found.boxes):
        # Mermaid has no backslashes; what has a meaning in it or in HTML is written as an entity.
        text = _label(found, box)
        for character, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
            text = text.replace(character, entity)
        yield f'  n{index + 1}["{text}"]'
        yield f"  style n{index + 1} fill:{_COLOURS.get(box.state, '#ffffff')}"
    for (source, target), number in found.edges.items():
        arrow = f"-->|{number:,}|" if number > 1 else "-->"
        yield f"  n{source + 1} {arrow} n{target + 1}"


def _dot(found: PlanGraph) -> Iterator[str]:
    yield "digraph plan {"
    yield '  node [shape=box, style="filled,rounded", fontname="sans-serif"];'
    for index, box in enumerate(found.boxes):
        text = _label(found, box).replace("\\", "\\\\").replace('"', '\\"')
        colour = _COLOURS.get(box.state, "#ffffff")
        yield f'  n{index + 1} [label="{text}", fillcolor="{colour}"];'
    for (source, target), number in found.edges.items():
        label = f' [label="{number:,}"]' if number > 1 else ""
        yield f"  n{source + 1} -> n{target + 1}{label};"
    yield "}"


_FORMS: dict[str, Callable[[PlanGraph], Iterator[str]]] = {
    "text": _text,
    "mermaid": _mermaid,
    "dot": _dot,
}


def _svg(dot: str) -> str:
    program = shutil.which("dot")
    if program is None:
        raise ZkplanError("the program `dot` of Graphviz is not here: use --format dot or mermaid")
    ran = subprocess.run(
        [program, "-Tsvg"], input=dot, capture_output=True, text=True, check=False, timeout=60
    )
    if ran.returncode:
        raise ZkplanError(f"{program} has failed: {ran.stderr.strip()}")
    return ran.stdout
