"""A pytest plugin that gives kazoo's suite our server: pytest -p tests.kazoo_suite.plugin ...

ZKPLAN_KAZOO_SERVER is `embedded` (default) or `java`; ZKPLAN_KAZOO_REPORT names a file for the
outcomes.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
import types
from collections.abc import Generator
from pathlib import Path

import pytest

from .servers import Cluster
from .skips import SKIPPED

_outcomes: dict[str, tuple[str, str, float]] = {}


def _replace_packages() -> None:
    """Stand-ins for what the suite imports and these tests do not need, where it is missing."""
    for name in ("OpenSSL", "jks"):  # for the keystores of the tests with TLS, which are left out
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = types.ModuleType(name)
    if importlib.util.find_spec("objgraph") is None:
        module = types.ModuleType("objgraph")
        vars(module)["count"] = lambda name: sum(
            type(each).__name__ == name for each in gc.get_objects()
        )
        sys.modules["objgraph"] = module


_replace_packages()
_cluster = Cluster(os.environ.get("ZKPLAN_KAZOO_SERVER", "embedded"))


def name_of(item: pytest.Item) -> str:
    """File, class and name of a test: the beginning of a node id depends on where pytest is run."""
    return f"{item.path.name}::{item.nodeid.partition('::')[2]}"


def pytest_configure() -> None:
    from kazoo.testing import harness

    harness.get_global_cluster = lambda: _cluster


def pytest_unconfigure() -> None:
    _cluster.close()
    report = os.environ.get("ZKPLAN_KAZOO_REPORT")
    if report:
        Path(report).write_text(json.dumps(_outcomes))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = SKIPPED.get(name_of(item))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or report.outcome != "passed":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        _outcomes[name_of(item)] = (report.outcome, reason, report.duration)
    return report
