"""The contract, asked for what a route takes: its methods, and the parameters of its query."""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

from fastapi import FastAPI, Request
from starlette.routing import compile_path

from .problems import Problem


class _Known(NamedTuple):
    """The path of a route as a pattern, and the names in the query of each of its methods."""

    pattern: re.Pattern[str]
    methods: dict[str, frozenset[str]]


class Contract:
    """What the contract of an application says of its paths."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    @cached_property
    def _known(self) -> list[_Known]:
        found = []
        for path, methods in self._app.openapi()["paths"].items():
            names = {
                method.upper(): frozenset(
                    each["name"] for each in of.get("parameters", ()) if each["in"] == "query"
                )
                for method, of in methods.items()
            }
            found.append(_Known(compile_path(path)[0], names))
        return found

    def methods(self, path: str) -> list[str]:
        """The methods of a path; none if it has no such path."""
        for known in self._known:
            if known.pattern.match(path):
                return sorted(known.methods)
        return []

    def check_query(self, request: Request) -> None:
        """Raise Problem for a parameter that nobody would look at: most likely a typing error."""
        if not request.query_params:
            return
        for known in self._known:
            names = known.methods.get(request.method)
            if names is None or not known.pattern.match(request.url.path):
                continue
            for name in request.query_params:
                if name not in names:
                    told = ", ".join(sorted(names)) or "none"
                    raise Problem(
                        422,
                        "unknown-parameter",
                        f"the query has no parameter {name[:60]!r}",
                        f"It may have: {told}.",
                    )
            return
