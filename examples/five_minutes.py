"""Three functions and three edges: run it while `zkplan worker` runs in another terminal."""

import os

import zkplan


def split(text: str) -> list[str]:
    return text.split()


def longest(words: list[str]) -> str:
    return max(words, key=len)


def report(words: list[str], word: str) -> str:
    return f"{len(words)} words, the longest is {word!r}"


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("five minutes") as plan:
        words = plan.add_task(split, ["a plan is a directed acyclic graph of functions"])
        word = plan.add_task(longest, [words])
        answer = plan.add_task(report, [words, word])
    print(answer.result(timeout=60))
