"""A worker with nothing but Python's standard library: it doubles numbers for any plan that asks.

ZKPLAN_URL is where `zkplan serve` listens, ZKPLAN_TOKEN a token with the role `work`.
"""

import json
import os
import threading
import time
import urllib.error
import urllib.request

URL, TOKEN = os.environ["ZKPLAN_URL"].rstrip("/"), os.environ.get("ZKPLAN_TOKEN", "")
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}


def ask(verb, body):
    """The answer. A service that is away is asked again; a refusal is raised."""
    data = json.dumps(body).encode()
    while True:
        request = urllib.request.Request(f"{URL}/v1/leases/{verb}", data, HEADERS)
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            if refused.code != 503:
                raise
        except OSError:
            pass
        time.sleep(0.5)


def keep(ids, is_done, seconds):
    """Renew the lease until the work is done: a program that dies renews nothing."""
    while not is_done.wait(seconds):
        ask("renew", {"ids": ids})


def double(number, seconds=0.0):
    time.sleep(seconds)
    return 2 * number


while True:
    wanted = {"kinds": ["double"], "count": 5, "wait": 20, "lease": 3}
    tasks = ask("claim", wanted)["tasks"]
    print(*("claimed " + task["id"] for task in tasks), sep="\n", flush=True)
    is_done = threading.Event()
    renewing = threading.Thread(target=keep, args=([task["id"] for task in tasks], is_done, 1))
    renewing.start()
    for task in tasks:
        try:
            value = {"twice": double(*task["args"]), "by": task["id"]}
            ask("complete", {"results": [{"id": task["id"], "value": value}]})
            print("committed", task["id"], flush=True)
        except urllib.error.HTTPError as late:
            print("refused", task["id"], json.load(late)["detail"], flush=True)
    is_done.set()
    renewing.join()
