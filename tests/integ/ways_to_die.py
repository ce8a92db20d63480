"""Tasks that die in every way. It imports little, because each of their processes imports it."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def segfault() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(0)


def eat_memory() -> None:
    # The limit of this test itself, if nothing else ends it.
    resource.setrlimit(resource.RLIMIT_AS, (2 * 1024**3,) * 2)
    eaten = []
    while True:
        eaten.append(bytes(range(256)) * 40_000)


def ask_for_too_much() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (10**12,) * 2)
    bytearray(10 * 1000**3)


def loop_in_c() -> None:
    sum(itertools.repeat(0))  # it never lets another thread of its process run


def fork_bomb() -> None:
    fork_on()


def fork_bomb_of_sessions() -> None:
    fork_on(then=os.setsid)


def fork_on(then: Callable[[], Any] = bool) -> None:
    """Each process forks, and each new one does `then`. They are bounded by this test itself, in
    number and in time, if nothing else ends them."""
    forked, until = mmap.mmap(-1, 8), time.monotonic() + 30
    while time.monotonic() < until:
        count = int.from_bytes(forked[:8], "big")
        if count < 700:
            forked[:8] = (count + 1).to_bytes(8, "big")
            if not os.fork():
                then()


#: What the log of the worker says of each.
TOLD = {
    segfault: "killed by SIGSEGV",
    leave: "ended with exit code 0 before its function returned",
    eat_memory: "it used more than 200 MB of memory, its limit",
    ask_for_too_much: "MemoryError (`zkplan task show",
    loop_in_c: "longer than its time-out of 2 s",
    fork_bomb_of_sessions: "processes, more than a task may have",
    fork_bomb: "processes, more than a task may have",
}
BY_NAME = {function.__name__: function for function in TOLD}


def die_first(file: str, way: str) -> str:
    """As a task: die in that way, but in the second attempt succeed."""
    with open(file, "a") as attempts:
        attempts.write(f"{os.getpid()}\n")
    if Path(file).read_text().count("\n") == 1:
        BY_NAME[way]()
    return "survived"
