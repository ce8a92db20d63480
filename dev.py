#!/usr/bin/env python3
"""The one list of commands: `python3 dev.py COMMAND` sets up what is missing and runs it.

It needs Python 3.10+ with venv and nothing else; `python3 dev.py` alone prints the list. Arguments
after the command are passed on to what it runs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import NoReturn

TOP = Path(__file__).resolve().parent
VENV = TOP / ".venv"
STAMP = VENV / "zkplan-setup"
PYTHON_MIN = (3, 10)
#: What pytest exits with where no test was selected, and where Ctrl-C ended it.
NOTHING_SELECTED, INTERRUPTED = 5, 2
#: How many runs of `test` go on at a time: they wait a good deal, and two processors take them.
AT_ONCE = 4
#: What a run of `test` takes fewer of than the command of the folder.
FEWER = {"ZKPLAN_SIM_SEEDS": "500", "ZKPLAN_DIFFERENTIAL_PROGRAMS": "25"}
APT_PACKAGES = ["libzookeeper-java", "default-jre-headless"]
CHECKED = ["zkplan", "tests", "benchmarks", "examples", "dev.py"]
NO_ZOOKEEPER = f"""\
No ZooKeeper for tests, and no way to install one by itself. Do one of these and repeat the command:
  - Debian, Ubuntu: apt-get install --no-install-recommends {" ".join(APT_PACKAGES)}
  - elsewhere: install Java 11+, unpack a ZooKeeper release and set ZOOKEEPER_HOME to its folder
  - start Docker
  - set ZKPLAN_TEST_HOSTS=host:port to a ZooKeeper that tests may write to"""


def demo(arguments: list[str]) -> None:
    """run a real plan on the embedded server, and kill a worker midway"""
    run("zkplan", "demo", *arguments)


def test(arguments: list[str]) -> None:
    """lint and all tests, side by side: on a real ZooKeeper and on the embedded server"""
    marked = ["--durations=10", "-m", "(sample or not (chaos or slow)) and not bench", *arguments]
    if any(argument.startswith("tests/") for argument in arguments):
        lint([])
        pytest([], marked)
        return
    for name, count in FEWER.items():
        os.environ.setdefault(name, count)
    # Some hundred processes begin, and each would compile zkplan for itself.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    succeeds([venv_program("python"), "-m", "compileall", "-q", "zkplan", "tests", "benchmarks"])
    embedded = "--zookeeper-kind=embedded"
    # Few tests need both kinds of server, see tests/conftest.py. Long runs do not begin last.
    integ = [tests("--zookeeper-kind=marked", *marked, *some) for some in shares("tests/integ", 6)]
    side_by_side(
        [
            *integ,
            tests("tests/embedded", "tests/crash", "tests/chaos", embedded, *marked),
            tests("tests/sim", *marked),
            *(tests(embedded, *marked, *some) for some in shares("tests/unit", 2)),
            [sys.executable, "dev.py", "lint"],
            tests("tests/differential", *marked),
        ],
        at_once=AT_ONCE,
    )


def lint(arguments: list[str]) -> None:
    """check format, style, types and the direction of imports"""
    paths = [path for path in CHECKED if (TOP / path).exists()]
    run("ruff", "format", "--check", *arguments, *paths)
    run("ruff", "check", *paths)
    run("mypy")
    run("lint-imports", "--no-cache")


def fmt(arguments: list[str]) -> None:
    """format the code and mend what can be mended by itself"""
    paths = arguments or [path for path in CHECKED if (TOP / path).exists()]
    run("ruff", "check", "--fix", "--exit-zero", *paths)
    run("ruff", "format", *paths)


def unit(arguments: list[str]) -> None:
    """the unit tests: pure, seconds"""
    pytest(["tests/unit"], arguments)


def sim(arguments: list[str]) -> None:
    """the simulation: the protocol under crashes, expiries and lost answers"""
    pytest(["tests/sim"], arguments)


def integ(arguments: list[str]) -> None:
    """the tests on a real ZooKeeper"""
    pytest(["tests/integ"], arguments)


def stress(arguments: list[str]) -> None:
    """many workers on a random graph, every invariant checked"""
    run("zkplan", "stress", *arguments)


def chaos(arguments: list[str]) -> None:
    """every fault once on each kind of server; mutants, access, versions; profiles, keys"""
    marked = ["-m", "chaos and not slow", *arguments]
    if any(argument.startswith("tests/") for argument in arguments):
        pytest([], marked)
        return
    path = "tests/chaos/test_{}.py".format
    every, timed = path("every_fault"), [path("takeover"), path("limits")]
    ignored = [f"--ignore={each}" for each in timed]
    side_by_side(
        [
            tests(every, path("access"), "--zookeeper-kind=ensemble", *marked),
            tests(every, path("access"), path("tls"), "--zookeeper-kind=zookeeper", *marked),
            tests("tests/chaos", *ignored, "--zookeeper-kind=embedded", *marked),  # all else, too
            tests("tests/integ", *marked),  # set-ups and rounds that take too long for `test`
            tests(path("mutants_are_caught"), "-m", "chaos", *arguments),
        ],
        at_once=2,
        # They hold workers to a time: beside the others they would share it with theirs.
        alone=tests(*timed, "--zookeeper-kind=both", *marked),
    )


def soak(arguments: list[str]) -> None:
    """half an hour of random faults; --kind embedded|zookeeper|ensemble, --report FILE"""
    run("python", "-m", "tests.chaos", "--minutes", "30", "--report", "build/soak.md", *arguments)


def bench(arguments: list[str]) -> None:
    """measure speed, beside the server's own limit"""
    run("python", "-m", "benchmarks", *arguments)


def docs(arguments: list[str]) -> None:
    """write the lists of modules and of command options in docs"""
    run("python", "-m", "tests.unit.module_list")
    run("python", "-m", "tests.unit.command_options")


def lock(arguments: list[str]) -> None:
    """pin what dev.py and the image install, with digests; --upgrade takes newer versions"""
    for file, of in LOCKS.items():
        given = ["--generate-hashes", "--all-build-deps", "--allow-unsafe", "--strip-extras", *of]
        # Where packages come from is the matter of each machine.
        kept = [f"--no-emit-{what}" for what in ("index-url", "find-links", "trusted-host")]
        kept += ["--no-header", "--no-annotate", "--quiet", f"--output-file={file}"]
        run("pip-compile", *given, *kept, *arguments, "pyproject.toml")
        made = (TOP / file).read_text()
        (TOP / file).write_text(made if made.startswith(MADE_BY) else f"{MADE_BY}\n{made}")


def audit(arguments: list[str]) -> None:
    """look for known weaknesses of the locked packages; fails where that cannot be known"""
    given = ["--require-hashes", "--disable-pip", "--format=json", "--progress-spinner=off"]
    command = [venv_program("pip-audit"), *given, *arguments, "-r", next(iter(LOCKS))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        stop(f"nothing is known: pip-audit failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout)["dependencies"]
    weak = [each for each in found if each.get("vulns")]
    for each in weak:
        ids = ", ".join(known["id"] for known in each["vulns"])
        say(f"{each['name']} {each['version']} has known weaknesses: {ids}")
    unknown = [each for each in found if "skip_reason" in each]
    if unknown:
        say(
            f"nothing is known about {len(unknown)} of {len(found)} packages: the package index of "
            "this machine gives no advisories for them. Run it where it does"
        )
    if weak or unknown:
        stop(f"{len(weak)} packages have known weaknesses; {len(unknown)} were not looked at")
    say(f"no known weakness in {len(found)} packages")


#: Extras of pyproject.toml: what a user needs to see zkplan and its page, and all tools.
PLAIN, TOOLS = "service", "dev"
WITHOUT_TOOLS = [demo, stress]
WITH_ZOOKEEPER = [test, integ, chaos, soak, bench]
#: What is locked, and how pip-compile makes it: for developers, and for the image.
LOCKS = {"requirements-dev.lock": [f"--extra={TOOLS}"], "requirements.lock": ["--extra=image"]}
#: Its first line: for another Python or system other packages are needed.
MADE_BY = "# `python3 dev.py lock` with Python {}.{} on {}".format(
    *sys.version_info[:2], sys.platform
)
COMMANDS: dict[str, Callable[[list[str]], None]] = {
    command.__name__: command
    for command in (
        *(demo, test, lint, fmt, unit, sim, integ, stress, chaos, soak, bench, docs, lock, audit),
    )
}


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("help", "-h", "--help"):
        print(f"{(__doc__ or '').strip()}\n")
        for name, command in COMMANDS.items():
            print(f"  {name:<7} {command.__doc__}")
        return
    command = COMMANDS.get(arguments[0]) or stop(
        f"No command {arguments[0]!r}; there are: {', '.join(COMMANDS)}.", code=2
    )
    os.chdir(TOP)
    require_python()
    set_up_packages(PLAIN if command in WITHOUT_TOOLS else TOOLS)
    if command in WITH_ZOOKEEPER:
        set_up_zookeeper()
    if command is test:
        set_up_program("strace", ["strace"], "disk faults")
        set_up_program("chromedriver", ["chromium", "chromium-driver"], "the page")
        set_up_promtool()
        set_up_python_tests()
    if command in (test, chaos, soak):
        set_up_faketime()
    command(arguments[1:])


def require_python() -> None:
    if sys.version_info < PYTHON_MIN:
        stop(f"zkplan needs Python 3.10 or newer; {sys.executable} is {sys.version.split()[0]}.")


def set_up_packages(extra: str) -> None:
    """`.venv` with zkplan (editable) and an extra; nothing to do if the stamp names it or TOOLS."""
    locked = TOP / "requirements-dev.lock"
    content = (TOP / "pyproject.toml").read_bytes() + locked.read_bytes()
    project = hashlib.sha256(content).hexdigest()
    wanted = "\n".join([project, str(TOP), sys.version])  # A moved or copied .venv does not work.
    made, _, installed = (STAMP.read_text() if STAMP.exists() else "").rpartition("\n")
    if made == wanted and installed in (extra, TOOLS):
        return
    if made != wanted:
        say(f"creating the virtual environment {VENV.name} (Python {sys.version.split()[0]})")
        if importlib.util.find_spec("ensurepip") is None:
            apt_install(["python3-venv"]) or stop("This Python has no venv: install python3-venv.")
        execute([sys.executable, "-m", "venv", "--clear", str(VENV)])
    say(f"installing zkplan {'with its tools ' if extra == TOOLS else ''}into {VENV.name}")
    STAMP.unlink(missing_ok=True)  # After an interrupted installation, all is made anew.
    pip = [venv_program("python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    # What of them is imported is compiled then, and kept.
    if extra == TOOLS and locked.read_text().startswith(MADE_BY):
        execute([*pip, "--require-hashes", "-r", str(locked)])
        execute([*pip, "--no-deps", "--no-build-isolation", "-e", "."])
    else:
        execute([*pip, "-e", f".[{extra}]"])
    STAMP.write_text(f"{wanted}\n{extra}")


def set_up_zookeeper() -> None:
    """A ZooKeeper that tests can start or use: the first of those NO_ZOOKEEPER names."""
    if given := os.environ.get("ZKPLAN_TEST_HOSTS"):
        say(f"ZooKeeper: {given}, given in ZKPLAN_TEST_HOSTS")
    elif zookeeper_is_installed():
        say("ZooKeeper: started on loopback when needed, with the Java and jars installed here")
    elif apt_install(APT_PACKAGES) and zookeeper_is_installed():
        say("ZooKeeper: installed; started on loopback when needed")
    elif docker_answers():
        say("ZooKeeper: a container when needed (no Java and jars here)")
    else:
        stop(NO_ZOOKEEPER)


def set_up_program(name: str, packages: list[str], tests: str) -> None:
    if shutil.which(name) is None and not apt_install(packages):
        say(f"{name} is missing and cannot be installed here: tests of {tests} are skipped")


def set_up_promtool() -> None:
    """It checks metrics and alerts. Not by an installation: that of Prometheus starts a server."""
    if shutil.which("promtool") is None:
        fetch("prometheus", "usr/bin/promtool", Path(venv_program("promtool")))


def set_up_python_tests() -> None:
    """Python's own tests of executors, where this Python came without them."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if importlib.util.find_spec("test.test_concurrent_futures") is None:
        fetch(f"lib{version}-testsuite", f"usr/lib/{version}/test", VENV / "python_tests")


def fetch(package: str, path: str, goal: Path) -> None:
    """Copy a file or a folder out of a Debian package, which is not installed."""
    if goal.exists():
        return
    say(f"fetching {goal.name} out of Debian's package {package}")
    with tempfile.TemporaryDirectory() as folder:
        script = f"apt-get -qq download {package} && dpkg-deb -x {package}_*.deb ."
        if shutil.which("apt-get") and succeeds(["sh", "-c", f"cd {folder} && {script}"]):
            shutil.move(Path(folder) / path, goal)
        else:
            say(f"{goal.name} cannot be fetched here: tests that need it are skipped")


def set_up_faketime() -> None:
    """It steps the wall clocks of workers and servers."""
    if not any(Path("/usr").glob("lib*/**/faketime/libfaketimeMT.so.1")) and not apt_install(
        ["libfaketime"]
    ):
        say("libfaketime is missing and cannot be installed here: tests of clocks are skipped")


def zookeeper_is_installed() -> bool:
    # Loaded by path: with its imports zkplan needs packages that this Python does not have.
    file = TOP / "zkplan" / "testing" / "__init__.py"
    spec = importlib.util.spec_from_file_location("testing", file)
    if spec is None or spec.loader is None or not file.exists():
        stop(f"{TOP} is not a complete checkout of zkplan: zkplan/testing is missing.")
    testing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(testing)
    try:
        return testing.find_zookeeper() is not None
    except FileNotFoundError as error:
        stop(str(error))


def docker_answers() -> bool:
    return shutil.which("docker") is not None and succeeds(["docker", "info"], show=False)


def apt_install(packages: list[str]) -> bool:
    """Install Debian packages where that is possible without a question; whether it was."""
    if shutil.which("apt-get") is None:
        return False
    prefix = ["sudo", "-n"] if os.geteuid() != 0 else []
    if prefix and not (shutil.which("sudo") and succeeds([*prefix, "true"], show=False)):
        return False
    say(f"installing {' '.join(packages)} with apt-get (a minute or so)")
    apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    # A failing update is not the end: some source of the machine may be broken, not the needed one.
    succeeds([*apt, "update"])
    return succeeds([*apt, "install", "-y", "--no-install-recommends", *packages])


def pytest(folders: list[str], arguments: list[str]) -> None:
    """Run the tests of the folders, or those given instead; the last lines name the ZooKeeper."""
    given = any(argument.startswith("tests/") for argument in arguments)
    run("python", "-m", "pytest", *([] if given else folders), *arguments)


def tests(*arguments: str) -> list[str]:
    return [venv_program("python"), "-m", "pytest", *arguments]


def shares(folder: str, count: int) -> list[list[str]]:
    """The modules of tests in a folder, dealt out to so many runs."""
    modules = sorted(path.relative_to(TOP).as_posix() for path in (TOP / folder).glob("test_*.py"))
    return [modules[first::count] for first in range(count)]


def side_by_side(commands: list[list[str]], at_once: int, alone: list[str] | None = None) -> None:
    """Runs of the tests and other programs, which mostly wait: so many at once, in this order.

    `alone` is run when all of them have ended, passed or not, but for Ctrl-C.
    """
    try:
        with ThreadPoolExecutor(at_once) as pool:  # It waits for those that run, also after Ctrl-C.
            ended = [*pool.map(until_ended, commands)]
    except KeyboardInterrupt:
        stop("interrupted", code=130)
    if alone and INTERRUPTED not in [each.returncode for each in ended]:
        ended.append(until_ended(alone))
    of_tests = [each.returncode for each in ended if "pytest" in each.args]
    bad = [each for each in ended if each.returncode]
    if passed(of_tests, commands[-1]) and all("pytest" in each.args for each in bad):
        return
    for each in bad:
        # The lines that name failed tests; where there are none, the last ones.
        named = re.findall(r"(?m)^(?:FAILED|ERROR) .*", each.stdout) or [each.stdout[-2000:]]
        say("\n".join([f"failed (exit code {each.returncode}): {' '.join(each.args)}", *named]))
    stop(f"failed: {len(bad)} of {len(ended)} runs")


def until_ended(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program, and show what it said when it has ended."""
    name = textwrap.shorten(" ".join(command[1:]), 200)
    say(f"running {name}")
    began = time.monotonic()
    ended = subprocess.run(command, stdout=PIPE, stderr=STDOUT, text=True, errors="replace")
    after = f"exit code {ended.returncode} after {time.monotonic() - began:.0f} s"
    say(f"{after}: {name}\n{ended.stdout}")
    return ended


def passed(codes: list[int], arguments: list[str]) -> bool:
    """Whether runs side by side did; only with -k there may be nothing for one of them to do."""
    selects = any(argument.startswith("-k") for argument in arguments)
    allowed = (0, NOTHING_SELECTED) if selects else (0,)
    return 0 in codes and all(code in allowed for code in codes)


def run(program: str, *arguments: str) -> None:
    """Run a program of the virtual environment; end with its exit code where that is not 0."""
    say(" ".join(["running", program, *arguments]))
    execute([venv_program(program), *arguments])


def venv_program(name: str) -> str:
    return str(VENV / "bin" / name)


def execute(command: list[str]) -> None:
    code = finished(subprocess.Popen(command))
    if code != 0:
        stop(f"failed (exit code {code}): {' '.join(command)}", code=code if code > 0 else 1)


def finished(process: subprocess.Popen[bytes]) -> int:
    """The exit code of a process, once it has ended by itself."""
    while process.poll() is None:
        try:
            process.wait()
        except KeyboardInterrupt:
            continue  # The program got it too, and is given time to hand back its tasks.
    return process.returncode


def succeeds(command: list[str], *, show: bool = True) -> bool:
    """Run it quietly; what it said is shown where it fails, unless `show` is off."""
    done = subprocess.run(command, stdout=PIPE, stderr=STDOUT, check=False)
    if show and done.returncode != 0:
        say(f"failed: {' '.join(command)}")
        print(done.stdout.decode(errors="replace"), file=sys.stderr, flush=True)
    return done.returncode == 0


def say(line: str) -> None:
    print(f"[dev] {line}", flush=True)


def stop(line: str, code: int = 1) -> NoReturn:
    print(f"[dev] {line}", file=sys.stderr, flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
