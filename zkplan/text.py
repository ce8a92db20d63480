"""Text for people: counted nouns, articles, dates with their age, commands to type."""

from __future__ import annotations

import shlex
import time
from datetime import datetime


def count(number: int, noun: str) -> str:
    """
    >>> count(1, "file"), count(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def article(noun: str) -> str:
    """
    >>> article("author"), article("worker")
    ('an author', 'a worker')
    """
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"


def command(words: str, hosts: str, root: str) -> str:
    """A `zkplan` command, ready to type, with the options that reach this tree.

    Every tree numbers its plans from the same number on. So without these options a printed command
    could reach another plan.

    >>> command("plan retry 5", "zk1:2181,zk2:2181", "/jobs")
    'zkplan plan retry 5 --hosts zk1:2181,zk2:2181 --root /jobs'
    """
    return f"zkplan {words} --hosts {shlex.quote(hosts)} --root {shlex.quote(root)}"


def age(seconds: float) -> str:
    """
    >>> age(3), age(5000), age(400_000), age(-90)
    ('3 s ago', '83 min ago', '4 days ago', 'in 90 s')
    """
    number, unit = abs(seconds), "s"
    for size, larger in ((60, "min"), (60, "h"), (24, "days")):
        if number < 2 * size:
            break
        number, unit = number / size, larger
    return f"in {int(number)} {unit}" if seconds < 0 else f"{int(number)} {unit} ago"


def date_time(seconds: float, people: bool) -> str:
    """Wall-clock seconds as local date and time. People get the age too; programs get ISO 8601 with
    its offset."""
    local = datetime.fromtimestamp(seconds)
    if people:
        return f"{local.isoformat(' ', 'seconds')} ({age(time.time() - seconds)})"
    return local.astimezone().isoformat(timespec="seconds")
