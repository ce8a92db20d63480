"""With serializer json functions travel by name, values as JSON, and no pickle is ever decoded."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkplan
from tests.tools.support import (
    WAIT_S,
    Bomb,
    Here,
    Run,
    WorkerProcess,
    key_file,
    pass_gate,
    pickles_in,
    secret_of,
    tree,
    wait_until,
    zkplan_command,
)
from zkplan import Client, NotSerialisable, Plan, PlanError, Task, TaskSpec
from zkplan.protocol.core.edges import argument_of
from zkplan.protocol.records import Failure, PlanRecord, TaskRecord
from zkplan.protocol.requests import Create, Multi, ReadData, SetData
from zkplan.values import functions_by_name as kinds
from zkplan.values.codec import FAILURE, LOG, TASK, VALUE, dump
from zkplan.values.function_codec import HERE, dump_function

from .looks import OF_PLAN, OF_TASK, Shown

ALLOWED = (f"{__name__}:*", f"{pass_gate.__module__}:pass_gate", "builtins:len")
SECRET = secret_of("json")


def same(*args: Any, **kwargs: Any) -> Any:
    return kwargs or (args[0] if len(args) == 1 else list(args))


def double(x: int) -> int:
    return 2 * x


def broken(text: str) -> None:
    zkplan.current().log({"seen": text})
    raise ValueError(text)


def pair() -> tuple[int, int]:
    return 1, 2


def grow() -> None:
    zkplan.current().plan.add_task(same, [zkplan.current().name], name="grown")


def forged(trace: Path) -> list[bytes]:
    """The bytes of a pickle that tells that it was decoded, in each encoding of a value."""
    bomb = pickle.dumps(Bomb(trace))
    return [b"P" + bomb, b"C" + HERE + bomb, b"D" + HERE + bomb, b"J" + bomb, b"N\0\1xP" + bomb]


@contextmanager
def working(here: Here, *allowed: str, **options: Any) -> Iterator[None]:
    with zkplan.connect(*here, secret=SECRET, **options) as client:
        worker = zkplan.Worker(client, 4, allow=allowed)
        registered = threading.Event()
        worker.on_ready(lambda _: registered.set())
        with worker:
            assert registered.wait(WAIT_S)
            yield


@pytest.fixture
def author(here: Here) -> Iterator[Client]:
    with zkplan.connect(*here, secret=SECRET, serializer="json") as client:
        yield client


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_a_plan_in_json_runs_on_workers_of_both_serializers(
    author: Client, here: Here, serializer: str
) -> None:
    value = {"é\ud800": [None, True, -1.5, 10**4000, {}], "$": [[], 2**53 + 1]}
    allowed = (*ALLOWED, "zkplan:shell") if serializer == "json" else ()
    with working(here, *allowed, serializer=serializer):
        with author.create_plan("in json", attempts=1) as plan:
            first = plan.add_task(same, [value], keep=True)
            deep = plan.add_task(same, [{"a": [1, {"b": first}]}, first], {})
            named = plan.add_task(same, kwargs={"x": [first], "y": 1}, after=[deep])
            mapped = plan.map(double, range(7), chunksize=3)
            told = plan.add_task(zkplan.shell("echo {x}"), [mapped.tasks[0]])
            failed = plan.add_task(broken, ["no such thing"])
            odd = plan.add_task(pair)
            plan.add_task(grow, name="grows")
        assert named.result(WAIT_S) == {"x": [value], "y": 1}
        assert first.result(WAIT_S) == value
        assert mapped[:] == [0, 2, 4, 6, 8, 10, 12]
        assert told.result(WAIT_S) == "0 2 4"
        with pytest.raises(zkplan.PlanFailed):
            plan.wait(WAIT_S)
        assert plan.task("grown").result(WAIT_S) == "grows"
    assert deep.info().state == "finished"
    written = author.transport.ask(ReadData(plan.path)).data
    assert PlanRecord.from_bytes(written).serializer == "json"
    dead = dict(plan.dead())
    assert dead[failed.number].error == "ValueError: no such thing"
    assert "tuple does not travel as JSON: give a list" in dead[odd.number].error
    assert failed.info().progress() == [{"seen": "no such thing"}]
    assert not pickles_in(author.transport.client, plan.path)


def test_an_exception_is_shown_by_its_text_and_rebuilt_by_its_type(
    author: Client, here: Here
) -> None:
    with working(here, *ALLOWED, serializer="json"):
        with author.create_plan(attempts=1, on_failure="cascade") as plan:
            failed = plan.add_task(broken, ["no"], keep=True)
            last = plan.add_task(same, [failed])
        with pytest.raises(ValueError, match=r"^no$") as found:
            last.result(WAIT_S)
    assert isinstance(found.value.__cause__, zkplan.TaskFailed)
    assert "raise ValueError(text)" in found.value.__cause__.remote_traceback
    error = failed.exception(WAIT_S)
    assert isinstance(error, ValueError)
    assert "is out of attempts: ValueError: no" in str(error.__cause__)


def local_function() -> Any:
    def inner() -> None: ...

    return inner


def _private() -> None: ...


def test_a_value_that_json_cannot_hold_is_refused_with_its_place(author: Client) -> None:
    plan = author.create_plan()
    before = tree(author.transport.client, plan.path)
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    looped: list[Any] = []
    looped.append(looped)
    for args, told in (
        ([1, {"rows": [0, (1, 2)]}], r"'two' \(same\): its argument 1: at \['rows'\]\[1\]: a tup"),
        ([{1: 2}], "argument 0: the keys of a dict must be texts, not an int"),
        ([[float("nan")]], r"at \[0\]: JSON has no nan"),
        ([[{1}]], r"at \[0\]: a set does not .*: give a sorted list"),
        ([b""], "argument 0: a bytes does not"),
        ([10**5000], "more than 4,200 digits"),
        ([1, deep], r"argument 1: it is nested too deeply \(more than 200"),
        ([looped], "holds itself"),
    ):
        with pytest.raises(NotSerialisable, match=told):
            plan.add_tasks([TaskSpec(double, [1]), TaskSpec(same, args, name="two")])
    with pytest.raises(NotSerialisable, match=r"its argument 'x': at \['a'\]: a complex does not"):
        plan.add_task(same, kwargs={"x": {"a": 1j}})
    for function, told in (
        (lambda: 1, "a lambda, or is defined inside a function: put it at the top of a module"),
        (local_function(), "inside a function"),
        (_private, "_private is private"),
        ({}.keys, "objects have no name|names another object"),
    ):
        with pytest.raises(NotSerialisable, match=f"travels by its name, which .*{told}"):
            plan.add_task(function)
    with pytest.raises(NotSerialisable, match="check=False"):
        plan.add_tasks([TaskSpec(zkplan.shell("true")), TaskSpec(zkplan.shell("a", check=False))])
    with pytest.raises(NotSerialisable, match="chunksize=1"):
        plan.map(zkplan.shell("echo {x}"), range(3), chunksize=2)
    assert tree(author.transport.client, plan.path) == before


def test_clients_of_different_serializers_refuse_plans_of_each_other(
    author: Client, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "_functions", {})  # other tests of this process have kinds
    with zkplan.connect(*here, secret=SECRET) as other:
        theirs = other.create_plan("pickles")
        with pytest.raises(PlanError, match="with serializer pickle"):
            author.plan("pickles").add_task(double, [1])
        author.create_plan("json")
        with pytest.raises(NotSerialisable, match="travels by its name"):
            other.plan("json").add_task(lambda: 1)
        with pytest.raises(zkplan.ZkplanError, match="needs serializer json"):
            zkplan.Worker(other, allow=["a:b"])
        with pytest.raises(zkplan.ZkplanError, match="say which"):
            zkplan.Worker(author)
        theirs.remove()


def plant(client: Client, path: str, data: bytes) -> None:
    """As somebody does who has the keys."""
    client.transport.ask(Multi([SetData(path, data)]))


def json_task(client: Client, plan: Plan, function: bytes, arguments: bytes) -> Task:
    """A task whose definition is written by hand."""
    task = plan.add_task(same, [1], attempts=1)
    body = TaskRecord(0, b'{"attempts":1}', function, arguments).to_bytes()
    plant(client, task.path, client.codec.seal(TASK, body))
    return task


def test_a_function_that_is_not_allowed_fails_and_is_not_imported(
    author: Client, here: Here, tmp_path: Path
) -> None:
    trace = tmp_path / "imported"
    (tmp_path / "left_out.py").write_text(f"open({str(trace)!r}, 'w')\ndef f(): ...\n")
    names = ["left_out:f", f"{__name__}:pickle.loads", f"{__name__}:Path.touch"]
    names += [f"{__name__}:_private", f"{__name__}:same.__globals__.get", "builtins:eval"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        plan = author.create_plan()
        for name in names:
            json_task(author, plan, f"J{name}".encode(), b"J[[],{},[]]")
        plan.mark_ready()
        with working(here, *ALLOWED, serializer="json"):
            letters = wait_until(
                lambda: found if len(found := dict(plan.dead())) == len(names) else None,
                "all of them are dead",
            )
    errors = {plan.task(number).info().function: letters[number].error for number in letters}
    assert {error.partition(":")[0] for error in errors.values()} == {"FunctionNotAllowed"}
    left_out = errors["left_out.f"]
    assert left_out.startswith("FunctionNotAllowed: left_out:f is not on the list of allowed")
    assert (
        "start workers (or the replay) with --allow 'left_out:f', then retry the task" in left_out
    )
    imported = errors[f"{__name__}.pickle.loads"]
    assert f"{__name__}:pickle is not a function or class of that module" in imported
    assert not trace.exists()


def wait_refused(task: Task) -> None:
    wait_until(lambda: task.info().last_error, "a worker has refused it, and said why")


def wait_arrived(task: Task) -> None:
    wait_until(lambda: task.info().arrived, "the early result has arrived")


def test_no_worker_decodes_a_planted_pickle(
    author: Client, here: Here, znodes: KazooClient, tmp_path: Path
) -> None:
    """In definitions, arguments and results of others, in every encoding."""
    trace, gate = tmp_path / "decoded", tmp_path / "gate"
    me = f"J{__name__}:same".encode()
    by_value = dump_function(lambda: trace.touch()), dump(((), {}))
    definitions = [by_value]
    for body in forged(trace):
        definitions += [(me, body), (body, b"J[[],{},[]]"), (b"F" + body[1:], b"J[[],{},[]]")]
    with working(here, *ALLOWED, serializer="json"):
        for function, arguments in definitions:
            plan = author.create_plan()
            task = json_task(author, plan, function, arguments)
            plan.mark_ready()
            wait_refused(task)
        for body in forged(trace):
            with author.create_plan() as plan:
                early = plan.add_task(double, [1])
                late = plan.add_task(pass_gate, [str(gate)])
                fed = plan.add_task(same, [early, late], keep=True)
            wait_arrived(fed)
            (arrived,) = [each for each in znodes.get_children(fed.path) if each[:4] == "arg-"]
            argument = argument_of(early.number, author.codec.seal(VALUE, body))
            plant(author, f"{fed.path}/{arrived}", argument)
            gate.touch()
            wait_refused(fed)
            gate.unlink()
    assert not trace.exists()


@pytest.mark.parametrize("looks", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_no_author_or_command_decodes_a_planted_pickle(
    looks: int, author: Client, here: Here, run: Run, tmp_path: Path
) -> None:
    """In logs, results, failures, dead letters and the plan's record, in every encoding.

    Commands look at so many of the encodings, in the quick form at one.
    """
    trace, seal = tmp_path / "decoded", author.codec.seal
    with author.create_plan("planted", attempts=1) as plan:
        kept, dead = plan.add_task(double, [1]), plan.add_task(broken, ["no"])
        waiting = plan.add_task(same, [dead])
    with working(here, *ALLOWED, serializer="json"):
        kept.result(WAIT_S)
        wait_until(lambda: dict(plan.dead()), "one is dead")
    plan.pause()  # a plan that runs is not exported
    shown = Shown(run, key_file(tmp_path, "json"), tmp_path / "exported", plan, ALLOWED)
    fine = [0] * (len(OF_TASK) - 1)
    wanted = [0] * len(OF_PLAN) + [*fine, 2, *fine, 1, *fine, 2]  # only what is dead is replayed
    assert shown(kept, dead, waiting) == wanted
    outcome = f"{plan.path}/results/{kept.number}"
    bodies = forged(trace)
    for number, body in enumerate(bodies):
        failure = Failure("ValueError", "m", "", "w", 0, 1.0, body).to_bytes()
        for kind, data in enumerate((seal(LOG, body), seal(FAILURE, failure))):
            author.transport.ask(Multi([Create(f"{waiting.path}/log-{number}{kind}", data)]))
        plant(author, outcome, seal(VALUE, body))
        if number < looks:
            assert shown(kept, waiting).count(2) > 2  # what has ended, or waits, is not replayed
        for read in (
            plan.task(kept.number).result,
            lambda: [*plan.results([plan.task(kept.number)])],
        ):
            with pytest.raises(zkplan.PayloadUndecodable):
                read()
        plant(author, outcome, seal(FAILURE, failure))
        if number < looks:
            shown(kept)
        assert isinstance(plan.task(kept.number).exception(), zkplan.TaskFailed)
    with pytest.raises(zkplan.PayloadUndecodable):
        waiting.info().progress()
    for path in (f"{plan.path}/dead/{dead.number}", waiting.path, plan.path):
        for body in bodies[:looks]:
            plant(author, path, body)
            assert shown(dead, waiting).count(2) > 1
    assert not trace.exists()


def test_a_pickle_in_the_store_is_refused_and_json_there_is_read(
    here: Here, tmp_path: Path
) -> None:
    trace, store = tmp_path / "decoded", f"file://{tmp_path}/store"
    options: Any = {"secret": SECRET, "store": store, "inline_limit": 100}
    with (
        zkplan.connect(*here, serializer="json", **options) as author,
        zkplan.connect(*here, **options) as evil,
    ):
        # The worker has left before the forged blob comes: it would sweep what is left over.
        with working(here, *ALLOWED, serializer="json", store=store, inline_limit=100):
            with author.create_plan() as plan:
                first = plan.add_task(same, [["x" * 500]], keep=True)
                last = plan.add_task(same, [first, "y" * 500])
            assert last.result(WAIT_S) == [["x" * 500], "y" * 500]
            plan.wait(WAIT_S)
        sealed = evil.values.seal(plan.path, "add", [Bomb(trace), "x" * 500])
        plant(author, f"{plan.path}/results/{first.number}", sealed)
        with pytest.raises(zkplan.PayloadUndecodable, match="only JSON is decoded here"):
            plan.task(first.number).result()
    assert not trace.exists()


def test_a_plan_file_and_a_worker_import_from_the_given_path(
    author: Client, here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKPLAN_SECRET_FILES", str(key_file(tmp_path, "json")))
    (tmp_path / "my_tasks.py").write_text("def triple(x):\n    return 3 * x\n")
    (tmp_path / "plan.toml").write_text(
        '[plan]\nname = "from a file"\n[tasks.a]\ncall = "my_tasks:triple"\nargs = [4]\n'
    )
    common = ("--hosts", here[0], "--root", here[1], "--serializer", "json")
    file = ("run", "plan.toml", "--no-wait", *common)
    missing = zkplan_command(*file, cwd=tmp_path)
    assert "my_tasks:triple cannot be imported: ModuleNotFoundError" in missing.stderr
    started = zkplan_command(*file, "--import-path", ".", cwd=tmp_path)
    options = ("--serializer", "json", "--import-path", str(tmp_path), "--allow", "my_tasks:*")
    with WorkerProcess(*here, tmp_path / "log", *options, "--processes", "2"):
        assert author.plan(started.stdout.strip()).task("a").result(WAIT_S) == 12


def test_commands_name_their_serializer_and_missing_options(here: Here, run: Run) -> None:
    json_only = ("--serializer", "json")
    assert "--allow 'mypkg.tasks:*'" in run("worker", *json_only).err
    assert "MODULE:PATTERN" in run("worker", *json_only, "--allow", "os").err
    assert "--allow needs --serializer json" in run("worker", "--allow", "x:y").err
    assert "--serializer pickle" in run("stress", *json_only).err
    rows = {row["field"]: row for row in run("config", "show", "-o", "json", *json_only).data}
    assert rows["serializer"] == {"field": "serializer", "value": "json", "origin": "--serializer"}
    assert "serializer: json" in run("config", "check", *json_only).out
    assert "serializer must be one of pickle, json" in run("plan", "ls", "--serializer", "x").err
