"""Each planted bug is found by the test that it names: that test fails on a server with the bug."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools import session
from tests.unit import test_embedded_storage, test_tree

from . import test_floods, test_fuzz, test_limits, test_promises, test_sessions
from .planting import BUGS, planted

# On a server whose bug makes it silent, tests wait less long than for a slow server.
SILENCE_S = 2.0
#: pytest.fail and pytest.raises end in Failed, which is no AssertionError; with the others a client
#: says that the server was silent, or closed the connection.
FOUND = (AssertionError, pytest.fail.Exception, TimeoutError, ConnectionError)
MODULES = (
    *(test_floods, test_fuzz, test_limits, test_promises, test_sessions),
    *(test_embedded_storage, test_tree),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, bug in BUGS.items() if bug.finder])
def test_a_planted_bug_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ANSWER_S_MAX", SILENCE_S)
    finder = BUGS[name].finder
    (test,) = (getattr(module, finder) for module in MODULES if hasattr(module, finder))
    fixtures = {"tmp_path": tmp_path, "monkeypatch": monkeypatch}
    names = test.__code__.co_varnames[: test.__code__.co_argcount]
    given = {each: fixtures[each] for each in names if each in fixtures}
    with planted(name), pytest.raises(FOUND):
        test(**given, **BUGS[name].given)
