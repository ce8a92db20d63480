"""The private members of kazoo that zkplan uses exist, and only one module uses them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from kazoo.client import KazooClient
from kazoo.version import __version__

from zkplan.backoff import CHANCE
from zkplan.transport import kazoo_private
from zkplan.transport.kazoo_client import Draws

PACKAGE = Path(kazoo_private.__file__).parents[1]
USED = kazoo_private.OF_CLIENT | kazoo_private.OF_CONNECTION


def missing(owner: object, needed: dict[str, str]) -> list[str]:
    """A sentence for each member that `owner` lacks."""
    whose = getattr(owner, "__name__", type(owner).__name__)
    return [
        f"kazoo {__version__} has no {whose}.{name} any more: zkplan needs it to {use}"
        for name, use in needed.items()
        if not hasattr(owner, name)
    ]


@pytest.fixture(scope="module")
def client() -> KazooClient:
    return KazooClient("127.0.0.1:1")


def test_the_installed_kazoo_has_each_private_member_that_zkplan_uses(client: KazooClient) -> None:
    assert missing(client, kazoo_private.OF_CLIENT) == []
    assert missing(client._connection, kazoo_private.OF_CONNECTION) == []


def test_a_missing_private_member_is_named_with_its_use() -> None:
    (told,) = missing("", {"_queue": "send", "upper": "shout"})
    assert told == f"kazoo {__version__} has no str._queue any more: zkplan needs it to send"


@pytest.mark.parametrize("module", kazoo_private.DRAWS)
def test_kazoo_draws_from_a_generator_that_can_be_replaced(module: ModuleType) -> None:
    use = "leave the shared generator of a program alone"
    assert missing(module, {"random": use}) == []
    assert module.random is Draws
    assert (Draws.uniform, Draws.shuffle) == (CHANCE.uniform, CHANCE.shuffle)
    assert {Draws.randint(1, 3) for _ in range(1000)} == {1, 2, 3}


def private_names(path: Path) -> Iterator[str]:
    """Private members of other objects, and strings that name one of kazoo's."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            if ast.unparse(node.value) not in ("self", "cls", "super()"):
                yield node.attr
        elif isinstance(node, ast.Constant) and node.value in USED:
            yield node.value


def test_only_one_module_touches_private_members_of_kazoo(client: KazooClient) -> None:
    of_kazoo = {
        name
        for owner in (client, client._connection, client.handler, client.retry)
        for name in dir(owner)
        if name.startswith("_") and not name.startswith("__")
    }
    own = Path(kazoo_private.__file__)
    assert set(private_names(own)) == set(USED)
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in PACKAGE.rglob("*.py")
        if path != own and "embedded" not in path.parts  # which never sees a kazoo client
        for name in private_names(path)
        if name in of_kazoo
    }
    assert found == set()
