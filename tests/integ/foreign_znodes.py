"""What others may leave in the tree, kind by kind, and what workers have to say of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

import zkplan
from zkplan import Client, Plan

#: What no decoder accepts, and what some would accept too much of.
JUNK = [
    b"",
    b"\xff\xfe\x00junk",
    b"{nonsense",
    b"[" * 50_000,
    b"9" * 6000,
    b'{"format":99}',
    b'{"defaults":' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"name":"\\ud800","created":1e11,"error":"\\udfff","n":true,"k":-1}',
    b'{"n":NaN,"a":1e999,"when":Infinity,"created":-1e12,"state":["running"]}',
    bytes(1000),
]
NAMES = ["foo", "5000-x", "0000000001", "٣٣٣٣-0000000001.0.0", "5000-0000000001.01.0", "-", "ä b"]


class ForeignZnodes:
    """Leaves garbage under a root, from one seed; each method leaves one kind of it."""

    def __init__(self, client: Client, znodes: KazooClient, seed: int) -> None:
        self.client, self.znodes, self.root = client, znodes, client.root
        self.random = random.Random(seed)
        #: What workers have to say: each of these texts within one of their messages.
        self.wanted: list[str] = []

    def junk(self) -> bytes:
        return self.random.choice(JUNK)

    def put(self, path: str, data: bytes | None = None, **options: bool) -> None:
        data = self.junk() if data is None else data
        with suppress(NodeExistsError):  # another kind has made it
            self.znodes.create(f"{self.root}/{path}", data, makepath=True, **options)

    def victim(self, **options: object) -> Plan:
        """A plan of its own for garbage: a chain, a join, kept results."""
        plan = self.client.create_plan("victim", attempts=2, retry_delay=0.0, **options)  # type: ignore[arg-type]
        first = plan.add_task(int, name="first")
        second = plan.add_task(str, [first], name="second", keep=True)
        plan.add_task(lambda *values: values, [first, second], name="join")
        return plan

    def path(self, plan: Plan, number: int) -> str:
        """Of a task of a victim, below the root."""
        return f"{plan.path}/task-{plan_tasks(self.znodes, plan)[number]}"[len(self.root) + 1 :]

    def must_be_told(self, text: str) -> None:
        self.wanted.append(text)

    def must_fail(self, plan: Plan, name: str, why: str) -> None:
        """That task of a victim ends as dead, because of a znode that its error names."""
        self.must_be_told(f"{name} of {plan.path} is out of attempts: {why}")

    def in_the_way_of(self, plan: Plan, name: str, path: str) -> None:
        self.must_fail(
            plan,
            name,
            f"RuntimeError: its commit is refused again and again, the last time by {path}: ",
        )

    # ---- the kinds

    def names_that_are_no_plans(self) -> None:
        for name in ("plan-", "plan-x", "plan-٣٣٣٣٣٣٣٣٣٣", "plan-00000000001", "other"):
            self.put(f"{name}/runnable/5000-0000000001.0.0")
            self.put(f"{name}/ready", b"")

    def broken_plans(self) -> None:
        for number, data in enumerate(JUNK):
            self.put(f"plan-00000090{number:02d}", data)
            self.put(f"plan-00000090{number:02d}/ready", b"")
            if number != 7:  # that record is odd, no more
                path = f"{self.root}/plan-00000090{number:02d}"
                self.must_be_told(f"{path} is left to other workers: ")

    def a_number_taken_ahead(self) -> None:
        stat = self.znodes.exists(self.root)
        self.put(f"plan-{(stat.cversion + stat.children_count) // 2 + 1:010d}/add-ids/x/y")
        plan = self.victim()
        self.put(f"{plan.path[len(self.root) + 1 :]}/task-{8:010d}")

    def strange_entries(self) -> None:
        plan = self.victim()
        below = f"{plan.path[len(self.root) + 1 :]}/runnable"
        with self.znodes.transaction() as many:
            for number in range(1500):
                many.create(f"{self.root}/{below}/strange-{number}")
        for name in NAMES:
            self.put(f"{below}/{name}")
        self.put(f"{below}/5000-0000000777.0.0")
        entry = min(self.znodes.get_children(f"{self.root}/{below}"))
        self.put(f"{below}/{entry}/child/grandchild")
        plan.mark_ready()
        self.must_be_told(f"{plan.path}/runnable holds names that are not entries")

    def claims_nodes(self) -> None:
        plan = self.victim()
        plan.mark_ready()
        for name in NAMES:
            self.put(f"claims/no-worker/{name}/below")
            self.put(f"claims/no-worker-2/pending-{name}/below")
        number = plan_tasks(self.znodes, plan)[0]
        for where, n in (("no-worker-3", 0), ("no-worker-4", 9_999_999_999)):
            self.put(f"claims/{where}/{plan.number}-{number}.{n}.u/below/below", "٣٣٣٣.²".encode())
            self.put(f"claims/{where}/0000099999-0000000001.{n}.u")
        self.put("claims/no-worker-5/pending-0", f"{plan.number} {number} 0 50".encode())
        self.must_be_told(f"{self.root}/claims/no-worker holds znodes that zkplan did not make")

    def workers(self) -> None:
        for name in NAMES:
            self.put(f"workers/{name}")

    def delayed_entries(self) -> None:
        plan = self.victim()
        plan.mark_ready()
        for name in NAMES:
            self.put(f"delayed/0000000000001-{plan.number}-{name}")
        self.put("delayed/0000000000001-0000099999-5000-0000000001.0.0/below")
        self.put(f"delayed/0000000000001-{plan.number}-5000-0000000777.0.0")
        self.put(f"delayed/9999999999999-{plan.number}-5000-0000000777.0.0")
        self.must_be_told(f"{self.root}/delayed holds names that are not entries")

    def letters_and_outcomes(self) -> None:
        for on_failure in ("hold", "cascade"):
            plan = self.victim(on_failure=on_failure)
            failing = plan.add_task(int, ["no number"], name="failing")
            below = plan.path[len(self.root) + 1 :]
            for number in [*plan_tasks(self.znodes, plan), failing.number, "x", "0000009999"]:
                self.put(f"{below}/results/{number}/below")
                self.put(f"{below}/dead/{number}/below")
            plan.mark_ready()
            # What stands in the place of an outcome that is kept refuses the commit.
            second = plan_tasks(self.znodes, plan)[1]
            self.in_the_way_of(plan, "second", f"{plan.path}/results/{second}")

    def broken_tasks(self) -> None:
        for on_failure in ("hold", "cascade"):
            for child in (
                "arg-x",
                "arg-0000000007",
                "prov-0000000007",
                "log-x",
                "result",
                "incomplete",
            ):
                plan = self.victim(on_failure=on_failure)
                self.put(f"{self.path(plan, 0)}/{child}/below")
                plan.mark_ready()
                task = f"{self.root}/{self.path(plan, 0)}"
                if child.startswith(("arg-", "prov-")):
                    self.must_fail(plan, "first", f"InvariantViolated: {task} has ")
                elif child == "result":
                    self.must_be_told(f"{task} cannot run here and is left to others: ")
                # A note or a hold of somebody else goes with the task: it harms nothing.
            for number, data in ((0, JUNK[4]), (1, JUNK[1]), (1, b"0"), (2, JUNK[4])):
                plan = self.victim(on_failure=on_failure)
                ready = f"{self.root}/{self.path(plan, number)}/ready"
                self.znodes.set(ready, data)
                plan.mark_ready()
                if number == 1:  # the only one whose count of arrivals a commit compares
                    self.in_the_way_of(plan, "first", ready)
            plan = self.victim(on_failure=on_failure)
            task = f"{self.root}/{self.path(plan, 0)}"
            self.znodes.set(task, self.junk())
            self.put(f"{self.path(plan, 1)}/dep-0000000003")
            plan.mark_ready()
            self.must_be_told(f"{task} cannot run here and is left to others: ")

    def edges_to_nowhere(self) -> None:
        for on_failure in ("hold", "cascade"):
            for dep in ("task-0000000777/dep-0000000000", "task-x/dep-0000000000"):
                for k in (1, 2, -1, 0):
                    plan = self.victim(on_failure=on_failure)
                    edge = {"dep": dep, "k": k, "entry": "٣"}
                    path = f"{self.path(plan, 0)}/prov-"
                    self.put(path, json.dumps(edge).encode(), sequence=True)
                    plan.mark_ready()
                    task = f"{self.root}/{self.path(plan, 0)}"
                    self.must_fail(plan, "first", f"InvariantViolated: {task} has ")
            plan = self.victim(on_failure=on_failure)
            wide = plan.add_task(bytes, [700_000], name="wide")
            plan.add_tasks([zkplan.TaskSpec(len, [wide]) for _ in range(3)])
            edge = {"dep": "task-0000000777/dep-0000000000", "k": 2, "entry": "5000"}
            self.znodes.create(f"{wide.path}/prov-", json.dumps(edge).encode(), sequence=True)
            self.znodes.create(f"{wide.path}/prov-", self.junk(), sequence=True)
            plan.mark_ready()
            self.must_fail(plan, "wide", f"InvariantViolated: {wide.path} has ")

    def counts_beyond_all(self) -> None:
        plan = self.victim()
        ready = f"{self.root}/{self.path(plan, 1)}/ready"
        for _ in range(50):
            self.znodes.set(ready, b"2")
        plan.mark_ready()
        self.in_the_way_of(plan, "first", ready)

    def owners_that_stay(self) -> None:
        for below in ("owner", "owner/below/below"):
            plan = self.victim()
            for number in range(3):
                self.put(f"{self.path(plan, number)}/{below}")
            plan.mark_ready()

    def strange_children_of_plans(self) -> None:
        for name in (
            "task-x",
            "foo",
            "add-count/below",
            "add-ids/below/below",
            "ready/below",
            "done/x",
        ):
            plan = self.client.create_plan("odd")
            plan.add_task(int)
            plan.mark_ready()
            self.put(f"{plan.path[len(self.root) + 1 :]}/{name}")
            if name in ("task-x", "foo"):
                self.must_be_told(f"{plan.path}: {name}: is not a znode of zkplan")
        for name in ("add-ids", "add-count", "results", "dead", "runnable"):
            plan = self.client.create_plan("lacks one")
            if name != "runnable":
                plan.add_task(int)
            self.znodes.delete(f"{plan.path}/{name}", recursive=True)
            plan.mark_ready()


KINDS: list[Callable[[ForeignZnodes], None]] = [
    made for name, made in vars(ForeignZnodes).items()
    if name not in ("junk", "put", "victim", "path", "must_be_told", "must_fail", "in_the_way_of")
    and not name.startswith("_")
]  # fmt: skip
#: Kinds that no worker tells of, and why that is right.
SILENT = {
    "owners_that_stay": "the claim replaces the mark, and deletes the znodes below it",
    "names_that_are_no_plans": "others may keep what they like beside the plans",
    "a_number_taken_ahead": "authors pass over it; the plan looks like one that is being defined",
    "workers": "any name may be a worker's; `zkplan worker ls` lists it, and what would be its "
    "share of the tasks is taken by the others after a moment",
}


def plan_tasks(znodes: KazooClient, plan: Plan) -> list[str]:
    return sorted(name[5:] for name in znodes.get_children(plan.path) if name.startswith("task-"))
