"""The tables of options in docs/start/reference.md, of commands and of tasks: `python3 dev.py docs`
writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from zkplan.cli import cli
from zkplan.protocol.task_options import DEFAULT_OPTIONS, OPTIONS, At

PAGE = Path(__file__).parents[2] / "docs" / "start" / "reference.md"
BEGIN, END = "<!-- options -->\n", "<!-- end of options -->"
TASK_BEGIN, TASK_END = "<!-- options of tasks -->\n", "<!-- end of options of tasks -->"
#: How the reference calls the places where an option of tasks may be given.
PLACES = {
    At.TASK: "`add_task`, `map`, `TaskSpec`",
    At.FUNCTION: "`@task`",
    At.PLAN: "`create_plan`, `[plan]`",
    At.FILE: "`[tasks.NAME]`",
    At.HTTP: "HTTP",
    At.GATE: "gates",
}
#: Options with the same text in so many commands are listed once.
SHARED = 5


def with_options(page: str) -> str:
    """The page with the table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    found = list(_options(cli, click.Context(cli, info_name="zkplan", **cli.context_settings)))
    many = Counter(record for _, record in found)
    shared = [record for record, count in many.items() if count >= SHARED]
    rows = [("most commands", record) for record in shared]
    rows += [(f"`{path}`", record) for path, record in found if record not in shared]
    lines = ["| Command | Option | What it does |", "| --- | --- | --- |"]
    for command, (option, text) in rows:
        lines.append(f"| {command} | `{_cell(option)}` | {_cell(text)} |")
    return "\n".join([before + BEGIN, *lines, "", END]) + rest.partition(END)[2]


def with_task_options(page: str) -> str:
    """The page with the table of the options of tasks between its two marks."""
    before, _, rest = page.partition(TASK_BEGIN)
    lines = ["| Option | Default | What it is | What it means | Where |", "|" + " --- |" * 5]
    for name, (values, given, means) in OPTIONS.items():
        places = ", ".join(text for place, text in PLACES.items() if given & place)
        if places:
            default = f"`{getattr(DEFAULT_OPTIONS, name)!r}`"
            must_be = _cell(values.must_be)
            lines.append(f"| `{name}` | {default} | {must_be} | {_cell(means)} | {places} |")
    return "\n".join([before + TASK_BEGIN, *lines, "", TASK_END]) + rest.partition(TASK_END)[2]


def _options(
    command: click.Command, context: click.Context
) -> Iterator[tuple[str, tuple[str, str]]]:
    """The path of the command, the option with its kind of value, and its help."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        for parameter in command.params:
            record = parameter.get_help_record(context)
            if isinstance(parameter, click.Option) and record is not None:
                yield context.command_path, record
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _options(found, click.Context(found, context, info_name=name))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(with_task_options(with_options(PAGE.read_text("utf-8"))), "utf-8")
