"""A process that waits for every plan it finds, and records how each wait ended."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

import zkplan
from zkplan.testing.stress_tasks import Recorder, recorder_here

from .memory import FOOTPRINT
from .workloads import workloads_in

STOP = "waiters-stop"
#: How long one wait takes at most.
WAIT_S = 5.0
_POLL_S = 0.1


def wait_for(plan: zkplan.Plan, journal: Recorder) -> bool:
    """Wait a while for the plan, and record the answer; whether it has ended or is gone."""
    name = plan.name
    try:
        journal.write("wait begun", plan=name, **FOOTPRINT.noted())
        status = plan.wait(WAIT_S)
    except zkplan.WaitTimeout:
        return False
    except (zkplan.PlanNotFound, zkplan.PlanCancelled) as error:
        state = "gone" if isinstance(error, zkplan.PlanNotFound) else "cancelled"
        journal.write("waited", plan=name, state=state, failed=False)
        return True
    except zkplan.PlanFailed as error:
        if "cannot go on" in str(error):
            return False  # dead tasks held it; it may have been retried, and drained, since
        status = plan.status()
        if status.retried and not status.has_ended:
            return False  # it had ended, and was retried since
        state = status.state
        journal.write("waited", plan=name, state=state, failed=True, error=str(error)[:200])
        return state in ("done", "failed")
    except zkplan.PlanError as error:
        journal.write("wait broke", plan=name, error=f"{type(error).__name__}: {error}"[:600])
        return False
    journal.write("waited", plan=name, state=status.state, failed=False, added=status.added)
    return True


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--session-timeout", type=float, default=10.0)
    options = parser.parse_args(arguments)
    journal = recorder_here(str(options.folder))
    seen: set[str] = set()
    with zkplan.connect(
        options.hosts,
        options.root,
        session_timeout=options.session_timeout,
        connect_timeout=60.0,
        patience=60.0,
    ) as client:
        while not (options.folder / STOP).exists():
            try:
                plans = workloads_in(client)
                seen &= {plan.path for plan in plans}  # a plan that is gone does not come back
                for plan in plans:
                    if plan.path not in seen and wait_for(plan, journal):
                        seen.add(plan.path)
            except zkplan.ZooKeeperUnavailable as error:
                journal.write("unavailable", error=repr(error)[:300])
            except zkplan.PlanNotFound:
                continue
            threading.Event().wait(_POLL_S)
    journal.write("waiter stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
