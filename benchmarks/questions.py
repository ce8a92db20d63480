"""Time the answers to ten questions of an operator, each by one command.

The benchmark starts a server and makes a root; see `nights`. docs/operate/questions.md explains the
answers.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import zkplan

from . import machine
from .nights import Night, night
from .servers import names, served

_TOP = Path(__file__).resolve().parent.parent
#: How many lines of an answer to show.
SHOWN = 6


@dataclass(frozen=True)
class Question:
    text: str
    words: tuple[str, ...]


def questions(about: Night) -> list[Question]:
    at = datetime.fromtimestamp(about.moment).isoformat("T", "milliseconds")
    every, past = "--all-plans", ("--since", "12h")
    asked = [
        (
            "Which tasks ran longer than usual last night, and where?",
            ("task", "ls", every, "--all", *past, "--longer-than", "10x"),
        ),
        (
            "What did this plan look like at 03:12?",
            ("plan", "history", about.plan, "--at", at),
        ),
        (
            "Who cancelled it, and when?",
            ("plan", "history", "backfill", "--kind", "cancelled"),
        ),
        (
            "Which plans were cancelled or paused since yesterday, and by whom?",
            ("plan", "history", every, "--kind", "cancelled", "--kind", "paused", *past),
        ),
        (
            "What does this worker do now, since when?",
            ("task", "ls", every, "--worker", about.worker),
        ),
        (
            "Which worker was lost last night, and what did it run?",
            ("plan", "history", every, "--kind", "lost", *past),
        ),
        (
            "What failed last night, where, and by what error?",
            ("plan", "history", every, "--kind", "attempt failed", "--kind", "dead", *past),
        ),
        (
            "Who made this report, when, and how long did it take?",
            ("task", "show", about.plan, "report"),
        ),
        (
            "Why does this plan not end?",
            ("plan", "why", "imports"),
        ),
        (
            "What took the time in this plan?",
            ("plan", "timeline", about.plan),
        ),
    ]
    return [Question(text, words) for text, words in asked]


@dataclass(frozen=True)
class Answer:
    """The output of a command, and the wall-clock and processor time of its whole process."""

    said: str
    seconds: float
    cpu: float


def ask(words: tuple[str, ...], hosts: str, root: str) -> Answer:
    """Run the command as a user does. Raises RuntimeError if it fails."""
    command = [sys.executable, "-m", "zkplan", *words, "--hosts", hosts, "--root", root]
    # An installed package has byte code, even if this process must not write any.
    given = {name: value for name, value in os.environ.items() if name != _NO_BYTE_CODE}
    if _NO_BYTE_CODE in os.environ:
        # Not in the temporary folder, where another user could have put code.
        given["PYTHONPYCACHEPREFIX"] = str(_TOP / "build" / "byte-code")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=given, check=False)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Answer(done.stdout + done.stderr, seconds, cpu)


_NO_BYTE_CODE = "PYTHONDONTWRITEBYTECODE"


def told(text: str) -> str:
    lines = [line[:200] for line in text.splitlines()]
    more = len(lines) - SHOWN
    return "\n".join(lines[:SHOWN] + ([f"… {more} more lines"] if more > 0 else []))


def show(about: Night, hosts: str, root: str, runs: int) -> None:
    """Ask each question `runs` times, after one more time to read files from the disk."""
    tell(f"load of the machine: {machine.load_average()}")
    for number, question in enumerate(questions(about), 1):
        ask(question.words, hosts, root)
        answers = [ask(question.words, hosts, root) for _ in range(runs)]
        wall = sorted(answer.seconds for answer in answers)
        cpu = min(answer.cpu for answer in answers)
        tell(f"{number}. {question.text}\n$ zkplan {' '.join(question.words)}")
        tell(told(answers[-1].said))
        tell(f"   median {statistics.median(wall):.2f} s, best {wall[0]:.2f} s, cpu {cpu:.2f} s\n")


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.questions", description=__doc__)
    parser.add_argument("--server", choices=["zookeeper", "embedded", "both"])
    parser.add_argument("--plans", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    for name in names(options.server, None):
        with served(name, None) as server, zkplan.connect(server.hosts) as client:
            tell(server.version)
            with night(client, options.plans, options.tasks, tell) as about:
                show(about, server.hosts, client.root, options.runs)


if __name__ == "__main__":
    main()
