"""The list of modules in docs/internals/architecture.md: `python3 dev.py docs` writes it."""

from __future__ import annotations

import ast
from pathlib import Path

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "internals" / "architecture.md"
BEGIN, END = "<!-- modules -->\n", "<!-- end of modules -->"


def with_modules(page: str) -> str:
    """The page with the first sentence of each module of zkplan between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines: list[str] = []
    for folder in [TOP / "zkplan", *sorted((TOP / "zkplan").glob("*/"))]:
        files = sorted(folder.rglob("*.py") if folder.name != "zkplan" else folder.glob("*.py"))
        if not files:
            continue
        lines += [f"### `{folder.relative_to(TOP).as_posix()}/`", ""]
        for path in files:
            text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
            sentence = " ".join(text.partition("\n\n")[0].split())
            lines.append(f"- `{path.relative_to(folder).as_posix()}`: {sentence}")
        lines.append("")
    return "\n".join([before + BEGIN, *lines, END]) + after


if __name__ == "__main__":
    PAGE.write_text(with_modules(PAGE.read_text("utf-8")), "utf-8")
