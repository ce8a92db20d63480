"""A team shares one server: two queues, a limit, weights, nights, and tasks that go wrong.

All the while a worker is killed every second. Each task notes what it does, and in the end the
notes are compared with what zkplan promises. It brings its own server, whose clock it moves.
"""

import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

import zkplan
from zkplan.embedded import EmbeddedServer


class Crew(threading.Thread):
    """Workers of the queues default and gpu. Every second the oldest is killed, and one begins.

    On a busy machine, while few have come up, none is killed.
    """

    def __init__(self, client, hosts):
        super().__init__()
        self.client, self.hosts, self.over = client, hosts, threading.Event()
        self.died_at = {}
        self.workers = [self.begin(queue) for queue in ["default"] * 3 + ["gpu"] * 2]

    def begin(self, queue):
        command = [sys.executable, "-m", "zkplan", "worker", "--hosts", self.hosts, "--quiet"]
        command += ["--queue", queue, "--threads", "4", "--session-timeout", "2"]
        return queue, subprocess.Popen(command, env={**os.environ, "SERVES": queue})

    def run(self):
        try:
            while not self.over.wait(1):
                self.replace_the_oldest()
        finally:
            for _, worker in self.workers:
                worker.kill()
                worker.wait()

    def replace_the_oldest(self):
        there = {worker.pid for worker in self.client.workers()}
        up = [each for each in self.workers if each[1].pid in there]
        for queue, worker in up[:1] if len(up) > 2 else ():
            self.workers.remove((queue, worker))
            worker.kill()
            worker.wait()
            self.died_at[worker.pid] = time.time()
            self.workers.append(self.begin(queue))


# ---- what the tasks do


def work(notes, kind, seconds):
    """Note when it begins and ends. What a killed worker runs has no end in the notes."""
    here, serves = zkplan.current(), os.environ["SERVES"]
    for moment in ("begin", "end"):
        facts = [here.name, here.attempt, kind, serves, os.getpid(), moment, time.time()]
        with open(notes, "a") as file:
            file.write(f"{json.dumps(facts)}\n")
        time.sleep(seconds if moment == "begin" else 0)
    return 1


def hang():
    sum(itertools.repeat(0))  # in C, where nothing else of its process runs


def leak():
    kept = []
    while True:
        kept.append(b"x" * 10_000_000)


def hopeless():
    raise LookupError("there is no such table")


def build_night(notes):
    plan = zkplan.current().plan
    for number in range(3):
        plan.add_task(work, [notes, "night", 0.1], name=f"{plan.due:%d} {number}")


# ---- what happens


def wait_until(condition, what):
    until = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < until, f"it did not happen that {what}"
        time.sleep(0.1)


def begin_the_day(client, notes):
    """Plans that run side by side; each with its last task, and with what that has to return."""
    client.set_limit("db", 3)
    for name, count, options in [
        ("gpu", 8, {"queue": "gpu"}),
        ("db", 20, {"limits": ["db"]}),
        ("heavy", 150, {"weight": 3}),
        ("light", 150, {"weight": 1}),
    ]:
        with client.create_plan(name, attempts=100, retry_delay=0.1, **options) as plan:
            names = [f"{name} {number}" for number in range(count)]
            tasks = [plan.add_task(work, [notes, name, 0.2], name=each) for each in names]
            yield plan, plan.add_task(sum, [tasks], limits=[]), count


def survive_trouble(client):
    """A task that hangs, one that eats memory, and one that cannot succeed; the plan still ends."""
    with client.create_plan("trouble", isolation="process", retention=math.inf) as plan:
        bad = [plan.add_task(hang, timeout=1), plan.add_task(leak, memory_limit="200MB")]
        bad += [plan.add_task(hopeless, attempts=1)]
        total = plan.add_task(sum, [bad])
    for task, words in zip(bad, ["its time-out", "its limit", "no such table"], strict=True):
        while words not in str(task.exception(timeout=60)):
            task.retry()  # the worker of its last attempt was killed
        task.skip(1)
        print(f"{task.name}: {words}; skipped")
    assert total.result(timeout=60) == 3


def pass_two_nights(client, notes, ahead):
    """The clock is moved to the next night, twice. Plans go when their retention is over."""
    client.set_retention(3600)
    nightly = client.schedule("nightly", "0 3 * * *", build_night, [notes])
    nights = nightly.next(2)
    for night in nights:
        ahead[0] = night.timestamp() - time.time()
        wait_until(lambda: nightly.next()[0] > night, "the schedule is fired")  # noqa: B023
        assert client.plan(nightly.info().fired[-1].plan).wait(timeout=60).added == 4
    assert [each.due_ms / 1000 for each in nightly.info().fired] == [n.timestamp() for n in nights]
    # That of trouble stays for ever, and the last night was just now.
    wait_until(lambda: [p.due for p in client.plans()] == [None, nights[1]], "the others go")
    print("nights: each had one plan; finished plans went when their retention was over")


# ---- what has happened


def check(notes, died_at):
    """Compare what the tasks have noted with what was promised, and say what that is."""
    began, ended, times, kinds = {}, {}, defaultdict(list), defaultdict(set)
    for line in notes.read_text().splitlines():
        name, attempt, kind, serves, pid, moment, at = json.loads(line)
        assert moment == "end" or (name, attempt) not in began, "an attempt has begun twice"
        if moment == "begin":
            began[name, attempt] = kind, pid, at
            kinds[serves].add(kind)
        else:
            ended[name, attempt] = at
    for attempt, (kind, pid, at) in began.items():
        times[kind].append((at, ended.get(attempt) or died_at[pid]))
    print("attempts: none has begun twice, and each result went on exactly once")
    assert kinds == {"gpu": {"gpu"}, "default": {"db", "heavy", "light", "night"}}
    print("queues: what needs a gpu, and nothing else, ran on the workers of the queue gpu")
    steps = [(end, -1) for _, end in times["db"]] + [(begin, 1) for begin, _ in times["db"]]
    most = max(itertools.accumulate(step for _, step in sorted(steps)))
    assert most <= 3, most
    print("limit: at most 3 have run at the same time")
    until = min(max(begin for begin, _ in times[kind]) for kind in ("heavy", "light"))
    had = {
        kind: sum(max(0, min(end, until) - begin) for begin, end in times[kind]) for kind in times
    }
    # Less than 3, for a worker that was killed takes its knowledge of who had more with it.
    assert had["heavy"] > had["light"], had
    print(f"weights 3:1: the heavy plan had {had['heavy'] / had['light']:.1f} times the time")


def is_idle(client):
    left = [each.waiting + each.runnable + each.running for each in client.queues()]
    return not any(left) and not any(limit.held for limit in client.limits())


def main():
    ahead = [0.0]  # by how many seconds the server's clock is ahead
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer(clock=lambda: time.time() + ahead[0]) as server,
        zkplan.connect(server.hosts) as client,
    ):
        notes, crew = Path(folder) / "notes", Crew(client, server.hosts)
        crew.start()
        try:
            day = list(begin_the_day(client, str(notes)))
            survive_trouble(client)
            for plan, total, count in day:
                assert total.result(timeout=120) == count, plan
                assert plan.check(repair=False).problems == []
            pass_two_nights(client, str(notes), ahead)
            wait_until(lambda: is_idle(client), "dead workers leave nothing")
        finally:
            crew.over.set()
            crew.join()
        check(notes, crew.died_at)
    print("workers:", len(crew.died_at), "were killed")


if __name__ == "__main__":
    main()
