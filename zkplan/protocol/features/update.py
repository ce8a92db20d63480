"""Update: change several tasks of one plan, all or nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ...errors import (
    InvalidTask,
    PayloadTooLarge,
    PayloadUndecodable,
    ResultNotKept,
    TaskError,
    TransactionRejected,
    UpdateTooLarge,
)
from .. import failpoints
from ..core.add import NewTask, added_ops, dep_number, names_of, next_number, read_finished
from ..core.commit import commit_draft
from ..core.commit_part import outcomes
from ..core.load import load, read_all
from ..core.plans_and_queues import make_queues
from ..core.publish import still_complete
from ..core.repeatable_adds import AddChain
from ..fields import from_json, require_proven, to_json
from ..interference import skip_number
from ..layout import DEFAULT_QUEUE, PENDING, queue_in, task_key
from ..requests import Applied, Create, ReadData, ReadMany, Reason, Refused, SetData, Step
from ..transactions import (
    GROUP_BYTES_MAX,
    GROUP_OPS_MAX,
    GUARD,
    REFUSALS_MAX,
    Dependent,
    Draft,
    Registration,
    pending_bytes,
    rejected,
)
from .decisions import CUT, decide_facts
from .task_place import find_place, placed
from .update_changes import (
    DECIDED,
    FINISHED,
    UNDEFINED,
    UNKNOWN,
    Against,
    Change,
    Found,
    Meeting,
    objection,
    ops_of,
    weight_of,
)

#: The most that one transaction carries, by upper bounds of its size.
OPS_MAX, BYTES_MAX = 4 * GROUP_OPS_MAX, 2 * GROUP_BYTES_MAX
_PENDING, _ADDS = -2, -3


class Mark(NamedTuple):
    """The identity of an update: the path of its mark, the unique ID of its call, and a digest of
    the request."""

    path: str
    call: str
    body: str


class Updated(NamedTuple):
    """The result of an update.

    With `against`, nothing was written, for these reasons. `numbers` are the numbers of the added
    tasks, in order. The caller publishes `complete`, which settles `pending`. `repeated`: an
    earlier request with the same key, whose digest is `body`, made the update. `worker_gone`:
    nothing was written, because the worker must register again.
    """

    against: Sequence[Against] = ()
    numbers: Sequence[str] = ()
    complete: Sequence[Dependent] = ()
    pending: str = ""
    repeated: bool = False
    body: str = ""
    worker_gone: bool = False


def find_mark(mark: Mark) -> Step[Updated | None]:
    """The update that the mark names, if there is one. Raises PayloadRefused."""
    node = yield ReadData(mark.path)
    if node is None:
        return None
    require_proven(node.data)
    value = from_json(node.data, "the mark of an update")
    numbers = [str(each) for each in value.get("tasks") or ()]
    is_other = value.get("call") != mark.call
    return Updated(numbers=numbers, repeated=is_other, body=str(value.get("body")))


class Update:
    """One update. `changes` name each task once; `adds` are in the order of their edges. No task
    ever had a number in `never`: only a history can tell these from finished tasks."""

    def __init__(
        self,
        me: Registration,
        plan: str,
        mark: Mark,
        changes: Sequence[Change],
        adds: Sequence[NewTask],
        never: Collection[str] = (),
    ) -> None:
        self._never = never
        self._me, self._plan, self._mark = me, plan, mark
        self._path = me.paths.plan(plan)
        self._changes, self._adds = list(changes), list(adds)
        self._found: dict[int, Found] = {}
        # The same for all tries, so that no other record is left behind.
        self._pending = f"{me.claims_path}/{PENDING}{next(me.uids)}"
        self._named: dict[tuple[str, str], Dependent] = {}
        #: The predicted numbers of the new tasks.
        self._numbers: dict[NewTask, str] = {}
        #: Permits that are gone: deleted by hand, or with a claim that ended.
        self._gone: set[str] = set()

    def apply(self) -> Step[Updated]:
        """Apply the update, or return everything that is against it.

        Raises PlanNotFound, PlanCancelled, PlanDrained, UpdateTooLarge, ServerFull, and
        TransactionRejected if the tasks move all the time.
        """
        for _ in range(REFUSALS_MAX):
            known = yield from self._marked()
            if known is not None:
                return known
            against = yield from self.judge()
            if against:
                return Updated(against)
            self._refuse_too_large()
            first = yield from self._number()
            failpoints.reach("update.before")
            draft, complete_of = self._draft(first)
            try:
                answer = yield draft.multi
            except PayloadTooLarge as error:
                raise UpdateTooLarge(len(draft.ops), error.size, OPS_MAX, error.limit) from None
            if isinstance(answer, Applied):
                failpoints.reach("update.made")
                return self._applied(complete_of(answer.results))
            if not answer.is_race and answer.reason is not Reason.NOT_EMPTY:
                raise rejected(f"updating {self._path}", answer)
            if draft.owners[answer.at] == _PENDING and answer.reason is Reason.NO_NODE:
                return Updated(worker_gone=True)
            yield from self._learn(answer, draft.owners[answer.at])
        raise TransactionRejected(
            f"updating {self._path}: others move its tasks all the time; try again"
        )

    def _applied(self, complete: Sequence[Dependent]) -> Updated:
        for task, number in self._numbers.items():
            task.number = number
        pending = self._pending if self._named else ""
        return Updated((), [task.number for task in self._adds], complete, pending)

    def _marked(self) -> Step[Updated | None]:
        """The result if an earlier copy, or another update with the same key, was applied."""
        found = yield from find_mark(self._mark)
        if found is None or found.repeated:
            return found
        self._numbers = dict(zip(self._adds, found.numbers, strict=True))
        # The versions in the answer are lost, so read which dependents are complete now.
        return self._applied((yield from still_complete(self._me, list(self._named.values()))))

    # ---- judging

    def judge(self) -> Step[list[Against]]:
        """Everything against the update now. Raises PlanNotFound, PlanCancelled, PlanDrained."""
        yield from self._refuse_closed()
        against = yield from self._judge_changes()
        against += yield from self._judge_claims()
        against += yield from self._judge_adds()
        return sorted(against)

    def _refuse_closed(self) -> Step[None]:
        chain, needed = AddChain(self._path), ["add-ids"]
        if self._adds:
            needed.append("add-count")
        nodes = yield ReadMany([ReadData(f"{self._path}/{name}") for name in needed], strict=True)
        if None in nodes:
            # Returns only if the plan takes tasks by now.
            yield from chain.explain_plan()

    def _judge_changes(self) -> Step[list[Against]]:
        against: list[Against] = []
        self._found = {}
        wanted = [each for each in enumerate(self._changes) if each[1].part is None]
        hints = (yield from placed(self._me.paths, self._plan)) if wanted else {}
        for index, change in wanted:
            found = yield from self._find(change, hints.get(change.task))
            if isinstance(found, Found):
                self._found[index] = found
                no = objection(change, found, index)
                if no is not None:
                    against.append(no)
            elif not (change.verb == "check" and found == FINISHED == change.expect):
                against.append(Against(index, found))
        return against

    def _find(self, change: Change, hint: Any) -> Step[Found | str]:
        path = f"{self._path}/task-{change.task}"
        if change.task in self._never:
            return UNKNOWN
        try:
            place = yield from find_place(self._me.paths, self._plan, change.task, hint)
        except InvalidTask:
            return UNKNOWN
        except TaskError:
            return UNDEFINED
        except PayloadUndecodable:
            return "damaged"
        if place is None:
            return FINISHED if (yield ReadData(path)) is None else DECIDED
        place = place._replace(permits=tuple(p for p in place.permits if p not in self._gone))
        if place.state != "dead" or change.verb != "retry":
            return Found(place)
        gate, cut = yield ReadMany([ReadData(f"{path}/gate"), ReadData(f"{path}/{CUT}")])
        return Found(place, gate is not None, cut is not None)

    def _judge_claims(self) -> Step[list[Against]]:
        parts = [(i, each.part) for i, each in enumerate(self._changes) if each.part is not None]
        reads = [ReadData(part.loaded.claim.path) for _, part in parts]
        nodes = yield from read_all(reads)
        return [
            Against(index, DECIDED if node is not None else "")
            for (index, part), node in zip(parts, nodes, strict=True)
            if node is None or part.loaded.result is not None
        ]

    def _judge_adds(self) -> Step[list[Against]]:
        against: list[Against] = []
        keyed = [task for task in self._adds if task.key]
        nodes = yield from read_all([ReadData(task_key(self._path, each.key)) for each in keyed])
        for task, node in zip(keyed, nodes, strict=True):
            if node is not None:
                require_proven(node.data)
                task.is_there(node.data)
        for index, task in enumerate(self._adds, len(self._changes)):
            if task.existed or not task.deps:
                continue
            try:
                yield from read_finished(self._path, task)
            except ResultNotKept as error:
                unknown = any(dep_number(each) in self._never for each in task.deps)
                against.append(Against(index, UNKNOWN if unknown else FINISHED, str(error)))
        return against

    # ---- the transaction

    @property
    def _new(self) -> list[NewTask]:
        return [task for task in self._adds if not task.existed]

    def _refuse_too_large(self) -> None:
        ops, size = 4, 2000
        for index, change in enumerate(self._changes):
            found = self._found.get(index)
            more, bytes_more = weight_of(change, found.place if found is not None else None)
            ops, size = ops + more, size + bytes_more
        for task in self._new:
            ops, size = ops + task.op_count, size + task.size
        if ops > OPS_MAX or size > BYTES_MAX:
            raise UpdateTooLarge(ops, size, OPS_MAX, BYTES_MAX)

    def _number(self) -> Step[int]:
        """Make the queues of the new tasks. Returns the number that the next task gets."""
        if not self._new:
            return 0
        queues = {queue_in(task.queue) for task in self._new} - {DEFAULT_QUEUE}
        if (yield from make_queues(self._path, queues)) is None:
            yield from AddChain(self._path).explain_plan()
        plan = yield ReadData(self._path)
        return next_number(plan) if plan is not None else 0

    def _draft(self, first: int) -> tuple[Draft, Any]:
        """The transaction, and a function that finds the complete dependents in its results."""
        completed = [i for i, each in enumerate(self._changes) if each.part is not None]
        meeting = Meeting(self._changes, self._found)
        parts = [meeting.part(self._changes[i].part) for i in completed]  # type: ignore[arg-type]
        body = commit_draft(self._me, parts)
        new, draft = self._new, Draft()
        self._numbers = {task: f"{number:010d}" for number, task in enumerate(new, first)}
        numbers = [self._numbers.get(task) or task.number for task in self._adds]
        mark = {"call": self._mark.call, "body": self._mark.body, "tasks": numbers}
        draft.ops.append(Create(self._mark.path, to_json(mark)))
        if new:
            draft.ops.append(SetData(f"{self._path}/add-count"))
        draft.own(GUARD)
        for index, found in self._found.items():
            change = self._changes[index]
            draft.ops += ops_of(self._me, self._plan, change, found, meeting)
            draft.own(index)
            if change.sealed:
                skips = change.verb == "skip"
                draft.facts |= decide_facts(self._path, change.task, skips=skips)
        before = len(draft.ops)
        draft.ops += body.ops
        draft.owners += [completed[owner] for owner in body.owners]
        draft.ops += added_ops(self._path, new, first, *outcomes(parts))
        draft.own(_ADDS)
        draft.facts |= body.facts | names_of(self._path, new, first)
        if body.named:
            self._named.update({(each.plan, each.task): each for each in body.named})
            draft.ops.append(Create(self._pending, pending_bytes(body.named)))
            draft.own(_PENDING)
        return draft, lambda results: body.complete(results[before:])

    def _learn(self, answer: Refused, owner: int) -> Step[None]:
        """Learn from a refusal. In any case `apply` judges everything again."""
        if answer.path.endswith("/task-") and answer.reason is Reason.NODE_EXISTS:
            yield from skip_number(self._path)
        if owner < 0:
            return
        part = self._changes[owner].part
        if part is None:
            self._gone.add(answer.path)
        elif answer.path == f"{part.loaded.claim.task_path}/owner":
            part.loaded.owner = False
        elif not part.loaded.claim.lacks(answer):
            for item in (yield from load([part.loaded.claim])):
                part.loaded = item
