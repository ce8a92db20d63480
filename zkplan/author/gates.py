"""Define gates: the tasks that wait for the conditions of when()."""

from __future__ import annotations

from dataclasses import replace

from ..errors import InvalidTask
from ..gates import When, passed, sealed_condition
from ..protocol.core.add import NewTask
from ..protocol.layout import rank_of
from ..protocol.records import TaskRecord
from ..protocol.task_options import At, TaskOptions, options_at
from ..values import codec as codecs
from ..values.function_codec import dump_function
from ..values.plan_values import Values
from .task_specs import TaskSpec

#: The options that a gate may have, apart from `key`, which is not in its record.
_OPTIONS = options_at(At.GATE)
_OTHERS = [name for name in options_at(At.TASK) if name not in _OPTIONS]


class Gates:
    """The gates of one call of `Plan.add_tasks`: one per `When`, however many tasks wait for it."""

    def __init__(
        self, plan_path: str, values: Values, defaults: TaskOptions, as_json: bool
    ) -> None:
        self._plan_path, self._values, self._as_json = plan_path, values, as_json
        # A gate's function only hands on a value, so it needs no process, deadline or permit.
        self._defaults = replace(
            defaults,
            name="",
            timeout=None,
            pure=False,
            keep=None,
            isolation="thread",
            memory_limit=None,
            not_before=None,
            deadline=None,
            limits=(),
        )
        self._made: dict[tuple[int, bool], NewTask] = {}

    @property
    def made(self) -> list[NewTask]:
        """The gates without specs of their own, to add before the tasks that wait for them."""
        return list(self._made.values())

    def of(
        self, when: When, spec: TaskSpec, taker: TaskOptions, position: int, *, take: bool
    ) -> NewTask:
        """The gate of the argument at `position`, or, without `take`, of an entry of `after`.

        The gate has the rank and the queue of `taker`, the first task that waits for it, so that a
        worker that can run `taker` can run the gate. The gate has a key if `taker` has one, so that
        both are added once.
        """
        known = id(when), take
        if known not in self._made:
            options = replace(self._defaults, **when.zkplan_options, queue=taker.queue)
            # The line break keeps this key apart from those of authors, which are printable.
            key = f"{spec.key}\n{position}" if spec.key else ""
            gate = self._define(
                f"the gate {when!r}", when, options, rank_of(taker.priority), key, take=take
            )
            gate.implied = True
            self._made[known] = gate
        return self._made[known]

    def define(self, spec: TaskSpec, when: When) -> NewTask:
        """The gate of a spec that has `when` in place of a function. Raises InvalidTask."""
        wrong = [name for name in _OTHERS if getattr(spec, name) is not None]
        wrong += [name for name in ("args", "kwargs", "after") if getattr(spec, name)]
        if wrong:
            raise InvalidTask(
                spec.label,
                f"{when!r} takes no {wrong[0]}: the options of a gate are {', '.join(_OPTIONS)} "
                "and key, and `when` takes its timeout. Give other options to the task that takes "
                "the gate",
            )
        given = {name: each for name in _OPTIONS if (each := getattr(spec, name)) is not None}
        options = replace(self._defaults, **{**when.zkplan_options, **given})
        rank = rank_of(options.priority)
        return self._define(spec.label, when, options, rank, spec.key or "", take=True)

    def _define(
        self, label: str, when: When, options: TaskOptions, rank: str, key: str, *, take: bool
    ) -> NewTask:
        if self._as_json:
            raise InvalidTask(
                label,
                f"{label}: a plan with serializer json takes no gate, because the data of a znode "
                "are bytes, which JSON does not have: put the gate into a plan with serializer "
                "pickle",
            )
        function = self._values.function(self._plan_path, dump_function(passed))
        arguments = codecs.dump_call([when], {}, lambda value: 0 if value is when else None)
        body = TaskRecord(1, options.to_json(), function, arguments).to_bytes()
        codec = self._values.codec
        return NewTask(
            label=label,
            rank=rank,
            record=codec.seal(codecs.TASK, body),
            deps=[],
            keep=options.keep,
            queue=options.queue,
            key=key,
            gate=sealed_condition(codec, when.condition._replace(take=take)),
            name=options.name or repr(when),
        )
