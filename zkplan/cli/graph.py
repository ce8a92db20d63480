"""`zkplan plan graph`: the graph that is left of a plan, as text, Mermaid, DOT or SVG."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator

import click

from ..errors import ZkplanError
from ..inspection.graph import Box, PlanGraph
from ..settings import Settings
from ..text import count
from .common import connection_options, open_client, output_option, print_facts
from .terminal import printable

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
@output_option
@connection_options
def graph(plan: str, form: str, output: str, settings: Settings) -> None:
    """Draw the unfinished tasks of a plan. Those of one function in one state and on one level are
    one box; in a graph with more than 200 boxes, those of all levels."""
    with open_client(settings) as client:
        found = client.plan(plan).graph()
    if output == "json":
        edges = [{"from": a, "to": b, "count": n} for (a, b), n in found.edges.items()]
        boxes = [box._asdict() | {"count": len(box.tasks)} for box in found.boxes]
        print_facts({"boxes": boxes, "edges": edges}, output)
    elif form == "svg":
        click.echo(_svg("\n".join(_dot(found))))
    else:
        click.echo("\n".join(_FORMS[form](found)))


def _label(box: Box) -> str:
    tasks = f"task {int(box.tasks[0])}" if len(box.tasks) == 1 else count(len(box.tasks), "task")
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
        yield f"  [{index + 1}] {_label(box)}{after}"


def _mermaid(found: PlanGraph) -> Iterator[str]:
    yield "flowchart TD"
    for index, box in enumerate(found.boxes):
        # Mermaid has no backslashes; what has a meaning in it or in HTML is written as an entity.
        text = _label(box)
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
        text = _label(box).replace("\\", "\\\\").replace('"', '\\"')
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
