"""The circumstances of figures: the machine, the versions, and the use of processors and memory."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import zkplan
from zkplan.testing import find_java

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_TOP = Path(__file__).resolve().parents[1]


def facts() -> dict[str, object]:
    """Processor, memory, system and versions, for the head of a report."""
    return {
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "zkplan": zkplan.__version__,
        "kazoo": version("kazoo"),
        "java": _java(),
        "commit": _commit(),
    }


def _processor() -> str:
    lines = _read("/proc/cpuinfo").splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _java() -> str:
    java = find_java()
    return _output(java, "-version").partition("\n")[0] if java else ""


def _commit() -> str:
    """The measured commit, with `+` if the checkout differs from it."""
    # Without locks, so that a report does not get in the way of somebody who commits.
    git = ["git", "--no-optional-locks", "-C", str(_TOP)]
    commit = _output(*git, "rev-parse", "--short", "HEAD").strip()
    return commit + "+" if commit and _output(*git, "status", "--porcelain") else commit


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def load_average() -> float:
    """The load of the last minute, which before the first run shows what else the machine does."""
    return round(os.getloadavg()[0], 2)


def busy_s() -> float:
    """Processor seconds that all processes of the machine have taken; 0 if unknown."""
    fields = _read("/proc/stat").partition("\n")[0].split()[1:9]
    if len(fields) < 8:
        return 0.0
    user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, fields)
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has taken; 0 if it has ended or that is unknown."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S if len(fields) > 12 else 0.0


def memory_mib(pid: int) -> tuple[float, float]:
    """Memory of a process now and at its peak, in MiB; 0 if it has ended or that is unknown."""
    found = {"VmRSS": 0.0, "VmHWM": 0.0}
    for line in _read(f"/proc/{pid}/status").splitlines():
        name, _, rest = line.partition(":")
        if name in found:
            found[name] = int(rest.split()[0]) / 1024
    return found["VmRSS"], found["VmHWM"]


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
