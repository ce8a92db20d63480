"""A thousand tasks look words up in one dictionary, which lies in the plan once."""

import zkplan


def meaning(words: dict[str, int], word: str) -> int:
    return words[word]


if __name__ == "__main__":
    words = {f"word-{number}": number for number in range(20_000)}
    with zkplan.local() as client:
        with client.create_plan() as plan:
            shared = plan.constant(words)
            tasks = [plan.add_task(meaning, [shared, f"word-{n}"]) for n in range(1000)]
        print("the sum is", sum(plan.results(tasks)))
