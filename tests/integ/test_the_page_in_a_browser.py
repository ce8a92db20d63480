"""The page in a real Chromium: live updates, hostile names, actions, a restart, accessibility."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

import zkplan
from tests.tools.browser import chromium, resize
from tests.tools.support import (
    Here,
    first_line,
    pass_gate,
    started,
    wait_until,
    working,
    zkplan_command,
)
from zkplan import Client

pytestmark = [pytest.mark.either, pytest.mark.timeout(300)]

#: It would set `window.hit` if any part of the page took it for markup.
HOSTILE = "<img src=x onerror=window.hit=1>"
#: Beside markup what would clear a screen, go back in its line, and turn what follows around.
PRINTED = f"</pre><script>window.hit=1</script>{HOSTILE}\x1b[2J\r\u202e"
VISIBLE = f"</pre><script>window.hit=1</script>{HOSTILE}\\x1b[2J\\r\\u202e"
REST = "x" * 16_384 + "\n" + PRINTED * 20 + "through\n"
TASKS = 1000
GATES = 5
#: Opens the box of the graph with this title into its parts, once it is drawn.
OPEN = """
const box = [...document.querySelectorAll('.graph .node')]
  .find(each => each.querySelector('text').textContent === arguments[0]);
box?.querySelector('.into').dispatchEvent(new MouseEvent('click', {bubbles: true}));
return Boolean(box);
"""
#: From the commit of a task until the page shows it, where the machine has time for it.
LIVE_S = 1.0


def fail_until(file: str) -> str:
    if not Path(file).exists():
        raise RuntimeError(f"the disk is broken {HOSTILE}")
    return "mended"


def speak(gate: str) -> None:
    """Its first attempt is silent. Its second one has lines of 16 KiB, and markup in them."""
    if not zkplan.current().attempt:
        raise ValueError("no")
    sys.stdout.write(f"begun {PRINTED}\n")
    pass_gate(gate)
    sys.stdout.write(REST)


class Page:
    """The page in a browser, and the service behind it, which may be restarted."""

    def __init__(self, browser: Chrome, here: Here, tokens: Path) -> None:
        self.browser = browser
        hosts, root = here
        self._command = (
            *(sys.executable, "-m", "zkplan", "serve", "--hosts", hosts, "--root", root),
            *("--tokens", str(tokens), "--rate", "0"),
        )
        self._service = ExitStack()
        self.url = ""

    def start(self, port: str = "0") -> None:
        process = self._service.enter_context(
            started(*self._command, f"--listen=127.0.0.1:{port}", stderr=subprocess.DEVNULL)
        )
        found = re.search(r"http://\S+", first_line(process))
        assert found is not None
        self.url = found[0]

    def stop(self) -> None:
        self._service.close()

    def text(self) -> str:
        return str(self.browser.execute_script("return document.body.innerText"))

    def sees(self, *texts: str) -> None:
        wait_until(lambda: all(each in self.text() for each in texts), f"the page to show {texts}")

    def click(self, selector: str, text: str) -> None:
        """Click what has that text, once it is there and has been drawn."""

        def clicked() -> bool:
            script = (
                "const found = [...document.querySelectorAll(arguments[0])]"
                ".find(each => each.innerText.trim() === arguments[1] && each.offsetParent);"
                "found?.click(); return Boolean(found)"
            )
            return bool(self.browser.execute_script(script, selector, text))

        wait_until(clicked, f"a {selector} {text!r} to click")

    def log_in(self, token: str) -> None:
        field = wait_until(
            lambda: self.browser.find_elements(By.NAME, "token"), "the page to ask for a token"
        )[0]
        field.clear()
        field.send_keys(token)
        self.click("button", "Log in")

    def go(self, place: str) -> None:
        self.browser.execute_script("location.hash = arguments[0]", place)

    def state_of(self, name: str) -> str:
        """The state that the table of tasks shows; empty where the task is not in it."""
        script = (
            "const row = [...document.querySelectorAll('tbody tr')]"
            ".find(each => each.cells[1].innerText === arguments[0]);"
            "return row ? row.querySelector('.state').innerText.trim() : ''"
        )
        return str(self.browser.execute_script(script, name))


@pytest.fixture
def author(here: Here) -> Iterator[Client]:
    with zkplan.connect(here[0], root=here[1]) as client:
        yield client


@pytest.fixture
def token(tmp_path: Path) -> Callable[..., str]:
    """Makes a token with these roles."""

    def made(*roles: str) -> str:
        given = [f"--role={role}" for role in roles]
        ran = zkplan_command("serve", "new-token", "--tokens", str(tmp_path / "tokens"), *given)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    return made


@pytest.fixture
def page(here: Here, tmp_path: Path, token: Callable[..., str]) -> Iterator[Page]:
    token("work")  # makes the file
    with chromium(tmp_path) as browser:
        opened = Page(browser, here, tmp_path / "tokens")
        opened.start()
        resize(browser, 1280, 900, "light")
        browser.get(opened.url)
        try:
            yield opened
        finally:
            browser.save_screenshot(str(tmp_path / "last.png"))  # for whoever looks why it failed
            opened.stop()


def large_plan(client: Client, folder: Path) -> zkplan.Plan:
    """A plan of TASKS tasks: some wait for their gates, one fails until it is mended."""
    with client.create_plan(HOSTILE) as plan:
        gates = [
            plan.add_task(pass_gate, [str(folder / f"gate-{n}")], name=f"gated {n}", queue="gates")
            for n in range(GATES)
        ]
        bad = plan.add_task(fail_until, [str(folder / "mended")], name=HOSTILE, attempts=1)
        quick = [plan.add_task(int, [n], name=f"quick {n}") for n in range(TASKS - GATES - 2)]
        plan.add_task(len, [[*gates, bad, *quick]], name="last", keep=True)
    return plan


def test_the_page_follows_a_running_plan_through_a_restart_and_a_retry_to_its_end(
    page: Page, author: Client, here: Here, tmp_path: Path, token: Callable[..., str]
) -> None:
    hosts, root = here
    page.log_in("zkp_00000000_" + "x" * 43)
    page.sees("This token is not known here.")
    page.log_in(token("operate"))
    page.sees("There is no plan yet.", "may read, operate")
    page.browser.execute_script("window.isSame = true")

    plan = large_plan(author, tmp_path)
    page.click("a", HOSTILE)
    page.sees("Graph", f"of {TASKS:,}")
    wait_until(lambda: page.browser.execute_script(OPEN, "quick"), "a box to open")
    page.sees("Whole graph", "in 12 boxes")
    page.click("button", "Whole graph")
    with ExitStack() as workers:
        workers.enter_context(working(hosts, root))
        wait_until(lambda: plan.status().finished == TASKS - GATES - 2, "the quick ones to finish")
        page.sees(f"{TASKS - GATES - 2} of {TASKS:,}")
        page.sees("1 task is dead.", f"RuntimeError: the disk is broken {HOSTILE}")

        # One slot: each gated task begins when the one before it has been seen to finish.
        of_gates = {"queues": ["gates"]}
        workers.enter_context(working(hosts, root, 1, of_worker=of_gates))
        page.click("nav a", "Tasks left")
        assert min(seen_after(page, plan, tmp_path) for _ in range(GATES)) < LIVE_S

        page.stop()
        page.sees("Trying again", "away")
        page.start(port=page.url.rstrip("/").rpartition(":")[2])
        wait_until(lambda: "Trying again" not in page.text(), "the page to come back by itself")
        page.sees("live")

        page.go("#/plans")
        page.sees("Needs attention", "1 dead task in plan")
        page.go("#/dead-letters")
        page.click("td.name a", HOSTILE)
        page.sees("Traceback", "in fail_until", f"RuntimeError: the disk is broken {HOSTILE}")
        page.sees("What happened", "claimed")
        (tmp_path / "mended").touch()
        page.click("main button", "Retry")
        page.click("dialog[open] button", "Retry")
        page.sees("finished")
        page.go("#/plans/" + str(int(plan.number)))
        page.sees("done", "100 %", f"{TASKS:,} of {TASKS:,}")
    assert page.browser.execute_script("return [window.isSame, window.hit]") == [True, None]
    assert unexpected(page.browser) == []


def build_night(folder: str) -> None:
    plan = zkplan.current().plan
    bad = plan.add_task(fail_until, [f"{folder}/mended"], name="load", attempts=1)
    plan.add_task(len, [bad], name="total", keep=True)


def test_a_failed_plan_is_shown_in_every_view_and_retried(
    page: Page, author: Client, here: Here, tmp_path: Path, token: Callable[..., str]
) -> None:
    schedule = author.schedule("night", "0 3 29 2 *", build_night, args=[str(tmp_path)])
    page.log_in(token("operate"))
    page.sees("There is no plan yet.")
    with working(*here):
        plan = schedule.trigger()
        wait_until(lambda: plan.status().state == "failed", "the night to fail")
        begun = time.monotonic()
        page.sees("Needs attention", "(night) has failed: 2 tasks of 3")
        assert time.monotonic() - begun < 2 * LIVE_S  # a look at the root, and its reading
        number = int(plan.number)
        for place, texts in (
            ("plans?state=failed", ("night", "failed")),
            ("schedules", (f"Plan {number}", "failed")),
            ("dead-letters", ("load", "total")),
            (f"plans/{number}/tasks?state=dead", ("load", "total")),
            (f"plans/{number}/why", ("has ended, and 2 tasks of 3 failed", "the disk is broken")),
        ):
            page.go(f"#/{place}")
            page.sees(*texts)
        page.go(f"#/plans/{number}")
        page.sees("failed", "2 tasks failed.", "the disk is broken", "33 %")
        (tmp_path / "mended").touch()
        page.click("main button", "Retry 2 failed")
        page.click("dialog[open] button", "Retry 2 failed")
        page.sees("done", "100 %", "retried 1 time")
        assert plan.task("total").result(5) == len("mended")
        page.go("#/schedules")
        page.sees("night", "done")


def seen_after(page: Page, plan: zkplan.Plan, folder: Path) -> float:
    """Seconds from when a gated task had finished until the page said so."""
    gated = [f"gated {number}" for number in range(GATES)]
    name = wait_until(
        lambda: next((name for name in gated if page.state_of(name) == "running"), ""),
        "a gated task to be shown as running",
    )
    before = plan.status().finished
    (folder / name.replace("gated ", "gate-")).touch()
    wait_until(lambda: plan.status().finished > before, f"{name} to finish")
    begun = time.monotonic()
    wait_until(lambda: page.state_of(name) != "running", f"the page to show that {name} finished")
    return time.monotonic() - begun


VIEWS = (
    *("plans", "workers", "queues", "limits", "schedules", "dead-letters", "plans/{plan}"),
    *("plans/{plan}/tasks", "plans/{plan}/results", "plans/{plan}/progress", "plans/{plan}/why"),
    *("plans/{plan}/znodes", "plans/{plan}/tasks/{task}"),
)


@pytest.mark.slow
def test_no_view_has_a_serious_fault_and_dead_tasks_are_retried_together(
    page: Page, author: Client, worker: zkplan.Worker, tmp_path: Path, token: Callable[..., str]
) -> None:
    with author.create_plan(HOSTILE) as plan:
        mended = tmp_path / "mended"
        bad = plan.add_task(fail_until, [str(mended)], name=HOSTILE, attempts=1)
        also = plan.add_task(fail_until, [str(mended)], name="also", attempts=1)
        plan.add_task(list, [[bad, also]], name="waits")
        good = plan.add_task(int, ["7"], name="good", keep=True)
    author.set_limit("database", 5)
    good.result(30)
    bad.exception(30)
    also.exception(30)
    page.log_in(token("operate"))
    page.sees(HOSTILE)
    numbers = {"plan": int(plan.number), "task": int(bad.number)}
    for width, scheme in ((400, "dark"), (1280, "light")):
        resize(page.browser, width, 900, scheme)
        for view in VIEWS:
            page.go(f"#/{view.format(**numbers)}")
            wait_until(lambda: "Reading …" not in page.text(), f"{view} to be read")
            assert faults(page.browser) == [], (view, width, scheme)
            assert page.browser.execute_script(FITS), f"{view} is wider than {width}"
    mended.touch()
    page.go("#/dead-letters")
    page.click("main button", "Retry all shown")
    page.click("dialog[open] button", "Retry all shown")
    page.sees("2 of 2 tasks are runnable again.", "No task is dead.")
    assert page.browser.execute_script("return window.hit ?? null") is None
    assert unexpected(page.browser) == []


FITS = "return document.documentElement.scrollWidth <= innerWidth"
#: Two lists of the log of a task: its texts, and the gaps between them.
SHOWN = """
const of = kind => [...document.querySelectorAll(`pre.log > ${kind}`)].map(each => each.innerText);
return [of('span:not(.gap)'), of('.gap')];
"""


def test_output_of_a_task_is_shown_on_request_live_and_as_text(
    page: Page, author: Client, here: Here, tmp_path: Path, token: Callable[..., str]
) -> None:
    gate = tmp_path / "gate"
    with author.create_plan("loud", attempts=2, retry_delay=0.0) as plan:
        task = plan.add_task(speak, [str(gate)], name="loud", keep=True)
    with author.create_plan("silent", history=False) as silent:
        unkept = silent.add_task(int)
    page.log_in(token("read"))
    page.go(f"#/plans/{int(plan.number)}/tasks/{int(task.number)}")
    page.sees("attempt by attempt")
    page.click("button", "Show\nits log")
    page.sees("No attempt has begun yet.")
    with working(*here, of_worker={"task_output": 16_384}):
        page.sees("It runs: its output appears every 2 to 15 seconds.")
        wait_until(lambda: page.browser.execute_script(SHOWN)[0], "what it prints to be shown")
        assert page.browser.execute_script(SHOWN) == [[f"begun {VISIBLE}\n"], []]
        gate.touch()
        page.sees("finished", "through")
    kept = REST.encode()[-16_384:].decode()
    gap = f"{len(REST) - len(kept):,} bytes left out"
    shown = [[f"begun {VISIBLE}\n", kept.replace(PRINTED, VISIBLE)], [gap]]
    assert page.browser.execute_script(SHOWN) == shown
    for width, scheme in ((400, "dark"), (1280, "light")):
        resize(page.browser, width, 900, scheme)
        assert faults(page.browser) == [], (width, scheme)
        assert page.browser.execute_script(FITS), f"it is wider than {width}"
    page.browser.execute_script(
        "const select = document.querySelector('#attempt'); select.value = '0';"
        "select.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    page.sees("Attempt 1 has printed nothing.")
    assert page.browser.execute_script("return window.hit ?? null") is None
    assert unexpected(page.browser) == []
    page.go(f"#/plans/{int(silent.number)}/tasks/{int(unkept.number)}")
    page.click("button", "Show\nits log")
    page.sees("So what its tasks print is not kept either.")


def faults(browser: Chrome) -> list[str]:
    """What axe finds that is serious: its rule, and where."""
    if not browser.execute_script("return Boolean(window.axe)"):
        axe = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        browser.execute_script(axe)
    script = "const end = arguments[0]; axe.run().then(end, error => end({failed: String(error)}))"
    found = browser.execute_async_script(script)
    assert "failed" not in found, found
    return [
        f"{each['id']}: {node['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


#: An unknown token, and the four moments at which a killed service can leave a request: before it
#: is accepted, before it is written, before the answer begins, and within the answer.
EXPECTED = re.compile(
    r"401 \(Unauthorized\)|ERR_(CONNECTION|SOCKET_NOT_CONNECTED|EMPTY_RESPONSE|INCOMPLETE)"
)


def unexpected(browser: Chrome) -> list[str]:
    """What the browser complains of: scripts that failed, what the policy of the page refused."""
    return [
        each["message"]
        for each in browser.get_log("browser")  # type: ignore[no-untyped-call]
        if each["level"] == "SEVERE" and not EXPECTED.search(each["message"])
    ]
