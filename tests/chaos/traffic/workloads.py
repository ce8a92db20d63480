"""Plans made from seeds, and the oracle: every argument, result and fate."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import zkplan

#: How a task ends. A `cut` task depends on a dead one and is never executed.
Fate = Literal["finished", "dead", "cut"]
_PAD_BYTES = 100_000
#: 200 tasks with so much each fit no transaction.
_BALLAST_BYTES = 4 * 1024
#: More often than a task of a held plan has attempts, less often than twice that.
HELD_FAILS = 5
#: Between two attempts of a task, at most: a delay of 0.1 s that doubles.
_DELAY_S = 0.4
#: Until a dead task is retried; and what each task takes on a busy machine.
_RETRY_S, _TASK_S = 2.0, 0.02
BRIEF, PREFIX, REOPENED = "brief", "chaos-", "reopened"
_BRIEF_S = 0.05


class Item(NamedTuple):
    """One task. Its key is unique in its plan; a task added by task `7` is `7/0`, `7/1`, ….

    It fails while its attempt number is below `fails`, or always where it is `doomed`. `attempts`
    0: as many as its plan says. A `pure` one may be run ahead of its claim. A `limited` one shares
    the limit of the run. `ballast` makes its definition large.
    """

    key: str
    needs: tuple[str, ...] = ()
    seconds: float = 0.0
    pad: int = 0
    fails: int = 0
    doomed: bool = False
    adds: tuple[Item, ...] = ()
    attempts: int = 0
    pure: bool = False
    queue: str = "default"
    limited: bool = False
    ballast: bytes = b""

    def facts(self) -> dict[str, Any]:
        """As data of builtin types, which can be decoded without this class."""
        return self._asdict() | {"adds": [item.facts() for item in self.adds]}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Item:
        adds = tuple(cls.of(item) for item in facts["adds"])
        return cls(**{**facts, "needs": tuple(facts["needs"]), "adds": adds})


def attempts_of(item: Item) -> int | None:
    """How many it has; None: as many as its plan says, which is more than it needs."""
    return item.attempts or (3 if item.doomed or item.fails >= HELD_FAILS else None)


def drawn_shape(seed: int) -> str:
    """The shape of that seed's plan, where none is wanted."""
    return _drawn(random.Random(seed))


def _drawn(chance: random.Random) -> str:
    return chance.choices(list(SHAPES), [weight for weight, _ in SHAPES.values()])[0]


def _brief(item: Item) -> Item:
    adds = tuple(_brief(each) for each in item.adds)
    return item._replace(seconds=min(item.seconds, _BRIEF_S), adds=adds)


def digest_of(key: str, arguments: Sequence[tuple[str, str]]) -> str:
    """The digest of a task: that of its key and of all its arguments, in their order.

    An argument is the key of a task and its digest.
    """
    text = f"{key} {arguments!r}"
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def pad_of(key: str, size: int) -> bytes:
    """The bytes that make a result large; another task's are different."""
    word = hashlib.blake2b(key.encode()).digest()
    return (word * (size // len(word) + 1))[:size]


@dataclass(frozen=True)
class Workload:
    """One plan. `batches` are its adds; it is marked ready before the add number `ready_before`.

    A `growing` plan is marked ready first and keeps all results: its tasks, and even the plan, may
    end before their dependents are added.
    """

    shape: str
    seed: int
    batches: list[list[Item]]
    ready_before: int
    #: Dependents of a dead task wait for its retry (on_failure="hold").
    held: bool = False
    #: Its author waits for permission before each add but the first.
    gated: bool = False
    #: How many adds are answered when a scenario marks it ready itself; None: its author does.
    ready_by: int | None = None

    @classmethod
    def make(cls, seed: int, shape: str = "") -> Workload:
        """The workload of that seed, of that shape or the shape that the seed draws.

        `BRIEF` is no shape: the seed draws one, and all tasks are short.
        """
        if shape in SCENARIO_PLANS:
            return replace(SCENARIO_PLANS[shape], shape=shape, seed=seed)
        name, _, count = shape.partition(" ")
        if name in SIZED:
            return cls(shape, seed, [SIZED[name](int(count))], 1)
        chance = random.Random(seed)
        drawn, brief = _drawn(chance), shape == BRIEF
        shape = drawn if brief else shape or drawn
        items = SHAPES[shape][1](chance)
        if brief:
            items = [_brief(item) for item in items]
        batches = []
        while items:
            size = len(items) if shape == "huge join" else chance.randint(1, 60)
            batches.append(items[:size])
            items = items[size:]
        growing = shape == "growing"
        before = 0 if growing else chance.choice([len(batches), chance.randint(1, len(batches))])
        if shape == REOPENED:
            before = len(batches)
        return cls(shape, seed, batches, before, held=shape == "held")

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.seed}"

    @property
    def reopened(self) -> bool:
        """Whether it ends as failed, and all of it finishes once it is retried."""
        return self.shape == REOPENED

    @property
    def ready_after(self) -> int:
        """How many of its adds are answered before it is marked ready."""
        return self.ready_before if self.ready_by is None else self.ready_by

    @property
    def growing(self) -> bool:
        # Tasks of a plan that runs already may finish before a later batch needs them.
        return self.ready_before < len(self.batches)

    @property
    def work_s(self) -> float:
        """How long it takes at most without faults: its longest path, and the cost of each task.

        A task without attempts waits for its retry, in a plan that is `held` or `reopened`.
        """
        found: dict[str, float] = {}
        for item in self.items.values():
            parent = parent_of(item.key)
            above = [found[key] for key in (*item.needs, *([parent] if parent else []))]
            tries = 3 if item.doomed else item.fails + 1
            retries = item.fails // 3 if self.held or self.reopened else 0
            took = item.seconds * tries + _DELAY_S * (tries - 1) + _RETRY_S * retries
            found[item.key] = max(above, default=0.0) + took
        return max(found.values(), default=0.0) + _TASK_S * len(found)

    def forget(self) -> None:
        """Free the memory of what can be computed again."""
        for name in ("items", "has_pure", "digests", "fates"):
            vars(self).pop(name, None)

    @cached_property
    def has_pure(self) -> bool:
        return any(item.pure for item in self.items.values())

    @cached_property
    def items(self) -> dict[str, Item]:
        """Every task, also those that tasks add; each after the tasks that it needs."""
        return {item.key: item for batch in self.batches for item in _with_added(batch)}

    @cached_property
    def digests(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for item in self.items.values():
            found[item.key] = digest_of(item.key, [(key, found[key]) for key in item.needs])
        return found

    @cached_property
    def fates(self) -> dict[str, Fate]:
        found: dict[str, Fate] = {}
        for item in self.items.values():
            lost = any(found[key] != "finished" for key in item.needs)
            parent = parent_of(item.key)
            if parent is not None and found[parent] != "finished":
                continue  # it is never added
            found[item.key] = "cut" if lost else "dead" if item.doomed else "finished"
        return found


def workloads_in(client: zkplan.Client) -> list[zkplan.Plan]:
    """The plans that authors have made; others are those of faults."""
    return [plan for plan in client.plans() if plan.name.startswith(PREFIX)]


def parent_of(key: str) -> str | None:
    """The task that adds the task; None where an author adds it."""
    return key.rpartition("/")[0] or None


def _with_added(items: Iterator[Item] | list[Item] | tuple[Item, ...]) -> Iterator[Item]:
    for item in items:
        yield item
        yield from _with_added(item.adds)


def _seconds(chance: random.Random) -> float:
    """Mostly short, now and then long."""
    return chance.choices([0.0, 0.003, 0.05, 0.4, 2.0], [40, 30, 20, 8, 1])[0]


def _random_graph(chance: random.Random) -> list[Item]:
    count, most = chance.randint(40, 150), chance.randint(1, 8)
    items: list[Item] = []
    for number in range(count):
        needs = chance.sample(items, min(number, chance.randint(0, most)))
        keys = tuple(item.key for item in needs)
        items.append(Item(str(number), keys, _seconds(chance)))
    return items


def _chain(chance: random.Random) -> list[Item]:
    """Several chains side by side."""
    items = []
    for line in range(chance.randint(1, 4)):
        above: tuple[str, ...] = ()
        for number in range(chance.randint(15, 40)):
            key = f"{line}.{number}"
            items.append(Item(key, above, chance.choice([0.0, 0.0, 0.01, 0.05])))
            above = (key,)
    return items


def _pure_chain(chance: random.Random) -> list[Item]:
    """Chains of which most tasks are pure, with some that fail, and ends that meet in one."""
    items = []
    for item in _chain(chance):
        fails = chance.choices([0, 1], [95, 5])[0]
        seconds = min(item.seconds, 0.01)
        items.append(item._replace(seconds=seconds, fails=fails, pure=chance.random() < 0.9))
    needed = {key for item in items for key in item.needs}
    return [*items, _join("end", [item for item in items if item.key not in needed])]


def _join(key: str, items: Sequence[Item]) -> Item:
    return Item(key, tuple(item.key for item in items))


def _hub(chance: random.Random) -> list[Item]:
    """One task feeds many, and all of those meet in one."""
    width = chance.randint(60, 250)
    middle = [Item(f"m{n}", ("top",), chance.choice([0.0, 0.0, 0.02])) for n in range(width)]
    return [Item("top"), *middle, _join("end", middle), Item("after", ("end",))]


def _diamonds(chance: random.Random) -> list[Item]:
    """Rows in which every task waits for all of the row above: many last arrivals at once."""
    rows, width = chance.randint(3, 6), chance.randint(3, 8)
    above: tuple[str, ...] = ()
    items = []
    for row in range(rows):
        made = [Item(f"{row}.{n}", above, chance.choice([0, 0, 0.01])) for n in range(width)]
        above = tuple(item.key for item in made)
        items += made
    return items


def _wide_delivery(chance: random.Random) -> list[Item]:
    """A large result goes to many dependents: its delivery takes several transactions."""
    width = chance.randint(10, 40)
    leaves = [Item(f"leaf{n}", ("top",)) for n in range(width)]
    return [Item("top", pad=_PAD_BYTES), *leaves, _join("end", leaves)]


def _adding(chance: random.Random) -> list[Item]:
    """Tasks that add tasks, two levels deep, some of which need the task that adds them."""
    items: list[Item] = []
    for number in range(chance.randint(4, 15)):
        key = str(number)
        inner = [Item(f"{key}/0/{n}", (f"{key}/0",) * (n % 2)) for n in range(2)]
        adds = [Item(f"{key}/0", (key,), adds=tuple(inner))]
        for n in range(1, chance.randint(2, 5)):
            needs = tuple(chance.sample([key, *(item.key for item in adds)], 1))
            adds.append(Item(f"{key}/{n}", needs, chance.choice([0, 0.02])))
        above = (items[-1].key,) if items and chance.random() < 0.3 else ()
        items.append(Item(key, above, chance.choice([0, 0.05, 0.3]), adds=tuple(adds)))
    return items


def _many_added(chance: random.Random) -> list[Item]:
    """Tasks that add more than one transaction takes, also a join of it."""
    items: list[Item] = []
    for key in "pq"[: chance.randint(1, 2)]:
        ballast = chance.randbytes(_BALLAST_BYTES)
        adds = [
            Item(f"{key}/{n}", (key,) * (n % 2), ballast=ballast)
            for n in range(chance.randint(200, 300))
        ]
        items.append(Item(key, adds=(*adds, _join(f"{key}/join", chance.sample(adds, 60)))))
    return items


def _failing(chance: random.Random) -> list[Item]:
    """Attempts fail; a few tasks fail for good, and their failure travels down the edges."""
    items: list[Item] = []
    for number in range(chance.randint(20, 60)):
        above = chance.sample(items, min(number, chance.randint(0, 2)))
        keys = tuple(item.key for item in above)
        doomed = chance.random() < 0.05
        fails = chance.choices([0, 1, 2], [70, 20, 10])[0]
        items.append(Item(str(number), keys, chance.choice([0, 0.01]), 0, fails, doomed))
    return items


def _held(chance: random.Random) -> list[Item]:
    """Tasks that fail too often, in a plan that holds them: only a retry lets it go on."""
    items: list[Item] = []
    for number in range(chance.randint(10, 30)):
        above = chance.sample(items, min(number, chance.randint(0, 2)))
        keys = tuple(item.key for item in above)
        fails = chance.choices([0, 1, HELD_FAILS], [70, 20, 10])[0] if number else HELD_FAILS
        items.append(Item(str(number), keys, chance.choice([0, 0.01]), 0, fails))
    return items


def _reopened(chance: random.Random) -> list[Item]:
    """First tasks that fail for good, and all that depends on them by it, until a retry.

    None of them depends on another one, so each dies once.
    """
    items: list[Item] = []
    for number in range(chance.randint(10, 30)):
        above = chance.sample(items, min(number, chance.randint(0, 3)))
        keys = tuple(item.key for item in above)
        fails = HELD_FAILS if not keys and (not number or chance.random() < 0.5) else 0
        items.append(Item(str(number), keys, chance.choice([0, 0.01]), 0, fails))
    return items


def _huge_join(chance: random.Random) -> list[Item]:
    """A join too wide for one transaction: its author defines it in steps."""
    many = [Item(str(number)) for number in range(chance.randint(1210, 1400))]
    return [*many, _join("join", many), Item("end", ("join",))]


def _long(chance: random.Random) -> list[Item]:
    """Tasks that outlast a session: who lost its claim returns while its rival still runs."""
    first = [Item(f"a{n}", (), chance.uniform(0.5, 3.0)) for n in range(chance.randint(4, 8))]
    keys = [item.key for item in first]
    second = [Item(f"b{n}", (key,), chance.uniform(0.0, 1.0)) for n, key in enumerate(keys)]
    return [*first, *second, _join("end", second)]


def _steady(chance: random.Random) -> list[Item]:
    """Tasks that run for seconds, each alone: whoever ends a worker ends some of them."""
    return [Item(str(number), (), chance.uniform(4.0, 7.0)) for number in range(8)]


def _fan(width: int) -> list[Item]:
    """One task feeds so many, and all of those meet in one."""
    middle = [Item(f"m{n}", ("top",)) for n in range(width)]
    return [Item("top"), *middle, _join("end", middle)]


def _groups(leaves: int) -> list[Item]:
    """Leaves, a join for each hundred of them, and one join of all joins."""
    keys = [f"leaf{n}" for n in range(leaves)]
    groups = [tuple(keys[start : start + 100]) for start in range(0, leaves, 100)]
    joins = [Item(f"join{n}", group) for n, group in enumerate(groups)]
    return [*map(Item, keys), *joins, _join("end", joins)]


#: Shapes with a size, as in `fan 600`: never drawn, added at once.
SIZED = {"fan": _fan, "groups": _groups}
SHAPES: dict[str, tuple[int, Callable[[random.Random], list[Item]]]] = {
    "random": (30, _random_graph),
    "growing": (15, _random_graph),
    "chain": (12, _chain),
    "hub": (12, _hub),
    "diamonds": (15, _diamonds),
    "wide delivery": (8, _wide_delivery),
    "adding": (15, _adding),
    "failing": (10, _failing),
    "huge join": (2, _huge_join),
    "long": (5, _long),
    "steady": (0, _steady),
    "held": (5, _held),
    REOPENED: (5, _reopened),
    "many added": (3, _many_added),
    "pure chain": (8, _pure_chain),
}


def _plan(*batches: list[Item], ready_before: int = 1, **more: Any) -> Workload:
    return Workload("", 0, list(batches), ready_before, **more)


#: One more than an add takes in one transaction; and so many, each of which needs the one before.
HELD_JOIN, LINE = 1201, 16
_MANY = [Item(f"d{number}") for number in range(HELD_JOIN)]
_LEAVES = [Item(f"leaf{number}", ("top",)) for number in range(12)]
_LINE = [Item(f"{n}", (f"{n - 1}",) if n else ()) for n in range(LINE)]
PURE_LINE = [item._replace(pure=True) for item in _LINE[:4]]
#: Never drawn at random: the plans of the scenarios, by name.
SCENARIO_PLANS: dict[str, Workload] = {
    "one": _plan([Item("T")]),
    "one slow": _plan([Item("T", seconds=1.5)]),
    "diamond": _plan([Item("a"), Item("b", ("a",)), Item("c", ("a",)), Item("d", ("b", "c"))]),
    "shared": _plan([Item("a"), Item("b", ("a",)), Item("c", ("a",), seconds=3.0)]),
    "join": _plan([Item("r0"), Item("r1"), Item("T", ("r0", "r1"))]),
    "adding itself": _plan([Item("p", adds=(Item("p/0", ("p",)),))]),
    "wide adding": _plan([Item("top", pad=_PAD_BYTES, adds=(Item("top/0"),)), *_LEAVES]),
    "wide": _plan([Item("top", pad=_PAD_BYTES), *_LEAVES]),
    "wide end": _plan([Item("T", pad=5 * _PAD_BYTES)]),
    "late": _plan([Item("a")], [Item("b", seconds=0.5)], ready_before=0, gated=True),
    "retried": _plan([Item("T", fails=2, attempts=1)], held=True),
    "line": _plan(_LINE),
    "pure line": _plan(PURE_LINE),
    "pure line, grown": _plan(PURE_LINE, [Item("late", ("1",))], ready_before=0, gated=True),
    "held join": _plan(_MANY, [_join("T", _MANY)], ready_before=2, ready_by=1),
}
