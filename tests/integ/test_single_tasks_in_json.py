"""With serializer json: failures as values, skipped values, and rules, without any pickle."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zkplan
from tests.tools.support import WAIT_S, Bomb, Here, pickles_in, wait_until, working
from zkplan import Client, Failure
from zkplan.protocol.records import Failure as FailureRecord
from zkplan.protocol.records import TaskRecord
from zkplan.values.codec import FAILURE, TASK, VALUE
from zkplan.values.function_codec import HERE, dump_function, skipped

ALLOWED = {"allow": [f"{__name__}:*"]}
DICT: Any = {"a": [1, None]}


def fail(text: str) -> None:
    raise ValueError(text)


def seen(*values: Any) -> list[Any]:
    return [str(each) if isinstance(each, Failure) else each for each in values]


def is_worth_it(error: BaseException) -> bool:
    return "later" in str(error)


@pytest.fixture
def author(here: Here) -> Iterator[Client]:
    with zkplan.connect(*here, serializer="json") as client:
        yield client


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_failures_skipped_values_and_rules_are_stored_as_json(
    author: Client, here: Here, serializer: str
) -> None:
    with author.create_plan("nightly", retry_delay=0, retry_if=is_worth_it) as plan:
        bad, again = plan.add_task(fail, ["no"]), plan.add_task(fail, ["later"])
        both = plan.add_task(seen, [bad, [7]], run_if="all_finished", keep=True)
        unasked = plan.add_task(seen, [both], run_if="any_failed")
        instead, gone = plan.add_task(seen, keep=True), plan.add_task(seen)
        end = plan.add_task(seen, [unasked, instead], keep=True)
    with pytest.raises(zkplan.NotSerialisable, match="a tuple does not travel as JSON"):
        instead.skip((1,))
    assert instead.state() == "runnable"
    with pytest.raises(zkplan.NotSerialisable, match=r"retry_if: .*serializer json.*a lambda"):
        plan.add_task(seen, retry_if=lambda error: True)
    with zkplan.connect(*here, serializer=serializer) as operator:
        assert operator.plan("nightly").task(instead.number).skip(DICT)
        assert operator.plan("nightly").task(gone.number).cancel()
    with working(*here, serializer=serializer, of_worker=(serializer == "json" and ALLOWED) or {}):
        assert end.result(WAIT_S) == [None, DICT]
        assert both.result(WAIT_S) == ["ValueError: no", [7]]
        assert instead.result(WAIT_S) == DICT
        with pytest.raises(zkplan.TaskFailed, match="TaskCancelled: cancelled by an operator"):
            gone.result(WAIT_S)
        wait_until(lambda: plan.status().dead == 3, "all have failed for good")
    attempts = {number: letter.a for number, letter in plan.dead()}
    assert (attempts[bad.number], attempts[again.number]) == (1, 3)
    assert unasked.info().skipped
    assert not pickles_in(author.transport.client, plan.path)


def test_no_pickle_is_decoded_in_a_rule_a_skipped_value_or_a_failure(
    author: Client, here: Here, tmp_path: Path
) -> None:
    trace = tmp_path / "decoded"
    client, seal = author.transport.client, author.codec.seal
    bomb = b"C" + HERE + pickle.dumps(Bomb(trace))
    with author.create_plan("planted", attempts=2, retry_delay=0) as plan:
        ruled, told, handed = (plan.add_task(fail, ["no"]) for _ in range(3))
        kept = plan.add_task(seen, keep=True)
        handler = plan.add_task(seen, [told], run_if="all_finished")
        taker = plan.add_task(seen, [handed])
        assert told.cancel()
        assert handed.skip(1)
    for index, rule in enumerate((dump_function(lambda error: trace.touch()), bomb)):
        text = base64.b64encode(rule).decode()
        options = f'{{"attempts":{index + 2},"retry_delay":0,"retry_if":"{text}"}}'.encode()
        record = TaskRecord(0, options, f"J{__name__}:fail".encode(), b'J[["no"],{},[]]')
        client.set((ruled, kept)[index].path, seal(TASK, record.to_bytes()))
    failure = FailureRecord("ValueError", "planted", "", "w", 0, 1.0, bomb).to_bytes()
    client.set(f"{told.path}/result", seal(FAILURE, failure))
    client.set(f"{handed.path}/result", seal(VALUE, skipped(bomb)))
    with working(*here, serializer="json", of_worker=ALLOWED):
        assert handler.result(WAIT_S) == ["ValueError: planted"]
        # A rule that cannot be asked costs no attempt, and what cannot be decoded is handed back.
        wait_until(lambda: dict(plan.dead()).keys() >= {ruled.number, kept.number}, "both failed")
        wait_until(lambda: "only JSON" in taker.info().last_error, "a worker has refused it")
    assert [dict(plan.dead())[each.number].a for each in (ruled, kept)] == [2, 3]
    with pytest.raises(zkplan.PayloadUndecodable):
        plan.task(handed.number).result()
    assert isinstance(told.exception(), zkplan.TaskFailed)
    assert not trace.exists()
