"""Steps of a chain that depend on nothing but their arguments: few transactions run them all."""

import os

import zkplan


@zkplan.task(pure=True)
def better(guess: float, number: float) -> float:
    return (guess + number / guess) / 2


@zkplan.task(pure=True, attempts=1)
def not_pure(number: float) -> float:
    zkplan.current().log("a note that must not be lost")
    return number


with zkplan.connect(os.environ.get("ZKPLAN_HOSTS", "127.0.0.1:2181")) as client:
    with client.create_plan("pure") as plan:
        root = better(1.0, 2.0)
        for _ in range(200):
            root = better(root, 2.0)
        wrong = not_pure(root)
    try:
        wrong.result(timeout=60)
    except zkplan.TaskError as error:
        print(f"{type(error).__name__}: {str(error).partition(':')[0]}")
    print(wrong.state())
    plan.cancel()

    with client.create_plan("pure again", pure=True) as plan:
        root = better(1.0, 2.0)
        for _ in range(200):
            root = better(root, 2.0)
    print(round(root.result(timeout=60), 6))
