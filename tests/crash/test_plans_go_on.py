"""Workers keep their sessions and claims while their server is killed, and the plan finishes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import zkplan
from tests.crash.tasks import write_down, write_down_behind
from tests.tools.support import WorkerProcess, notes, plain_client, wait_for_notes
from zkplan.testing.server_process import EmbeddedServerProcess

ROOT = "/zkplan"
WIDTH, ROWS = 10, 6
KILLS = 3


@pytest.mark.timeout(180)
def test_a_plan_finishes_even_if_its_server_is_killed_three_times(tmp_path: Path) -> None:
    file, gate = tmp_path / "runs", tmp_path / "gate"
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServerProcess(data=tmp_path / "server"))
        client = stack.enter_context(zkplan.connect(server.hosts, root=ROOT, patience=60))
        with client.create_plan(retry_delay=0) as plan:
            row: list[zkplan.Task] = []
            function: Callable[..., str] = write_down
            options = {"file": str(file)}
            for level in range(ROWS):
                if level == ROWS - 1:  # the plan must not end before the last kill
                    function, options = write_down_behind, options | {"gate": str(gate)}
                row = [
                    plan.add_task(
                        function, row[column : column + 1], {"name": f"{level}.{column}", **options}
                    )
                    for column in range(WIDTH)
                ]
        workers = [
            stack.enter_context(WorkerProcess(server.hosts, ROOT, tmp_path, "--threads", "2"))
            for _ in range(2)
        ]
        for worker in workers:
            worker.wait_ready()
        sessions = registered(server.hosts)
        for kill in range(1, KILLS + 1):
            # Four slots note twenty at least before all of them stand at the gate.
            wait_for_notes(file, 5 * kill)
            server.kill()
            server.start()
        gate.touch()
        assert [task.result(60) for task in row] == [f"{ROWS - 1}.{c}" for c in range(WIDTH)]
        status = plan.wait(30)
        assert registered(server.hosts) == sessions, "a worker lost its session"
        assert all(worker.process.is_running() for worker in workers)
    assert (status.state, status.dead, status.finished) == ("done", 0, WIDTH * ROWS)
    # The claims outlived every kill, and with them the right to commit: nothing ran a second time.
    runs = Counter(line.split()[0] for line in notes(file))
    assert runs == Counter({f"{y}.{x}": 1 for y in range(ROWS) for x in range(WIDTH)})


def registered(hosts: str) -> dict[str, int]:
    """The session of each worker."""
    with plain_client(hosts) as znodes:
        path = f"{ROOT}/workers"
        names = znodes.get_children(path)
        return {name: znodes.get(f"{path}/{name}")[1].ephemeralOwner for name in names}
