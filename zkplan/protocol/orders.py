"""Orders to a worker from elsewhere (drain, pause, resume), and what it reports meanwhile.

Orders lie in the data of its registration. A worker reads that anyway, to notice the end of its
session. So an order needs no watch and no further request, and goes when the worker does.
"""

from __future__ import annotations

from ..errors import PayloadUndecodable, WorkerNotFound, ZkplanError
from .fields import from_json, to_json
from .layout import Paths
from .requests import Applied, Multi, ReadData, Reason, SetData, Step
from .shared import rejected
from .unproven import require_proven
from .worker_record import WorkerRecord, WorkerState, worker_state


def order(paths: Paths, worker: str, state: WorkerState) -> Step[bool]:
    """Have a worker drain, pause or run on. Returns False if it was told so before.

    What others have written meanwhile is read again. Raises WorkerNotFound if it is gone,
    ZkplanError if it drains already and is to do something else, TransactionRejected, and
    PayloadUndecodable if what it was told last is not sealed with a known key.
    """
    path = paths.worker(worker)
    while True:
        node = yield ReadData(path)
        if node is None:
            raise WorkerNotFound(worker, f"worker {worker} is gone")
        require_proven(node.data)
        had = worker_state(node.data)
        if had == state:
            return False
        if had == "draining":
            raise ZkplanError(f"worker {worker} drains, and cannot be told anything else")
        try:
            facts = from_json(node.data, "a worker") if node.data else {}
        except PayloadUndecodable:
            facts = {}
        data = to_json(facts | {"state": state})
        answer = yield Multi([SetData(path, data, node.version)])
        if isinstance(answer, Applied):
            return True
        if answer.reason not in (Reason.NO_NODE, Reason.BAD_VERSION):
            raise rejected(f"telling worker {worker}", answer)


def report(paths: Paths, me: WorkerRecord) -> Step[bool]:
    """Write anew what a worker says of itself. Returns False if its registration is gone.

    An order that somebody gives meanwhile is kept: the version read is the one written onto. Raises
    TransactionRejected, and PayloadUndecodable if what stands there is not sealed with a known key.
    """
    path = paths.worker(me.id)
    while True:
        node = yield ReadData(path)
        if node is None:
            return False
        if node.version > 0:  # else the worker wrote it itself, for everybody to read
            require_proven(node.data)
            me = me._replace(state=worker_state(node.data))
        answer = yield Multi([SetData(path, me.to_bytes(), node.version)])
        if isinstance(answer, Applied):
            return True
        if answer.reason not in (Reason.NO_NODE, Reason.BAD_VERSION):
            raise rejected(f"what worker {me.id} reports of itself", answer)
