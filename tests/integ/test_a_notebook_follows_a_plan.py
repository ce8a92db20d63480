"""The display of a plan in a real notebook kernel follows the plan, and stops by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from queue import Empty
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from tests.tools.support import Here, fail, pass_gate, wait_until, working
from zkplan import Client
from zkplan.basics.notebook_html import Picture
from zkplan.views import notebook as live
from zkplan.views.notebook import show_live

KERNEL_S = 60.0
#: The threads of displays that are left after a while.
WAIT_FOR_THREADS = f"""
import threading, time
until = time.monotonic() + 10
def left():
    return [thread.name for thread in threading.enumerate() if thread.name == {live.THREAD!r}]
while left() and time.monotonic() < until:
    time.sleep(0.05)
print(left())
"""
pytestmark = [pytest.mark.either, pytest.mark.timeout(120)]


class Notebook:
    """Cells of one kernel, and what each output of them shows last, as a page would."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.outputs: dict[str, str] = {}
        self.printed = ""
        self._idle: set[str] = set()

    def run(self, code: str) -> None:
        """Run a cell to its end."""
        asked = self._client.execute(code)
        wait_until(lambda: asked in self.read()._idle, "the end of a cell", KERNEL_S)

    def read(self) -> Notebook:
        """Take what the kernel has sent."""
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=0.05)
            except Empty:
                return self
            kind, content = message["msg_type"], message["content"]
            assert kind != "error", "\n".join(content["traceback"])
            if kind in ("display_data", "update_display_data"):
                known = content["transient"]["display_id"]
                assert (kind == "update_display_data") is (known in self.outputs)
                self.outputs[known] = content["data"]["text/html"]
            elif kind == "stream":
                self.printed += content["text"]
            elif kind == "status" and content["execution_state"] == "idle":
                self._idle.add(message["parent_header"]["msg_id"])

    def sees(self, *texts: str) -> None:
        """Wait until the last output shows all of these."""

        def seen() -> bool:
            last = list(self.read().outputs.values())[-1:]
            return bool(last) and all(text in last[0] for text in texts)

        wait_until(seen, f"an output with {texts}")


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=KERNEL_S)
        yield Notebook(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_the_output_of_a_cell_follows_the_plan_after_the_cell_has_ended(
    notebook: Notebook, zkplan_client: Client, here: Here, tmp_path: Path
) -> None:
    hosts, root = here
    with zkplan_client.create_plan("looked at") as plan:
        gated = plan.add_task(pass_gate, [str(tmp_path / "gate")], name="gated")
        bad = plan.add_task(fail, name="bad", attempts=1)
        plan.add_task(str, [gated], keep=True)
    notebook.run(f"import zkplan; client = zkplan.connect({hosts!r}, root={root!r})")
    notebook.run(f"client.plan({int(plan.number)})")
    notebook.sees("looked at", "2 runnable", "1 waiting", "pass_gate: 1 runnable", "str: 1 waiting")
    with working(hosts, root):
        notebook.sees("1 running", "1 waiting", "1 dead")
        notebook.run(f"client.plan({int(plan.number)}).task({int(bad.number)})")
        notebook.sees("bad", "dead", "1 of 1 used")
        (tmp_path / "gate").touch()
        bad.skip()
        notebook.sees("finished")
        of_plan = next(iter(notebook.outputs))
        wait_until(
            lambda: "3 tasks: 3 finished" in notebook.read().outputs[of_plan],
            "the display of the plan to end",
        )
    notebook.run(WAIT_FOR_THREADS)
    assert notebook.printed == "[]\n"
    assert len(notebook.outputs) == 2


class Cells:
    """Stands for IPython in this process: what is displayed, by its place."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert (raw, display_id) == (True, True)
        at = len(self.shown)
        self.shown.append(data["text/html"])
        return SimpleNamespace(
            update=lambda data, raw: self.shown.__setitem__(at, data["text/html"])
        )


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Cells:
    import IPython.display

    found = Cells()
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=True))
    monkeypatch.setattr(IPython.display, "display", found.display)
    monkeypatch.setattr(live, "PAUSE_S", 0.01)
    return found


def is_looking() -> bool:
    return any(thread.name == live.THREAD for thread in threading.enumerate())


def test_an_old_display_says_that_it_is_old_and_leaves_no_thread(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "DISPLAYS_MAX", 2)
    looks = [0, 0, 0]
    ends_at = 3

    def draw(at: int) -> Picture:
        looks[at] += 1
        return Picture(f"{at} drawn {looks[at]} times", is_last=at == 2 and looks[at] == ends_at)

    for at in range(3):
        assert show_live(f"<{at}>", partial(draw, at))
    wait_until(lambda: cells.shown[2] == f"2 drawn {ends_at} times", "the newest to end")
    wait_until(lambda: "display it again" in cells.shown[0], "the third to take its place")
    before = looks[0]
    wait_until(lambda: looks[1] > ends_at, "the second to go on")
    assert looks[0] == before
    assert "display it again" not in cells.shown[1]

    monkeypatch.setattr(live, "LIVE_S", 0.0)
    for at in range(2):  # of the second, too, a newer one takes the place
        assert show_live(f"<{at}>", partial(draw, at))
    wait_until(lambda: not is_looking(), "the thread to end")
    assert all("display it again" in shown for shown in cells.shown[3:])


def test_a_removed_plan_starts_no_thread_and_nothing_shows_outside_a_notebook(
    cells: Cells, zkplan_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    import IPython

    plan = zkplan_client.create_plan("gone")
    plan.remove()
    plan._ipython_display_()
    assert "PlanNotFound" in cells.shown[0]
    assert not is_looking()
    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    with pytest.raises(NotImplementedError):
        plan._ipython_display_()
    assert len(cells.shown) == 1
