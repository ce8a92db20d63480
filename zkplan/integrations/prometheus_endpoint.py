"""Serve metrics over HTTP, also the merged metrics of several processes.

The other modules of metrics import the names of prometheus_client from here.
"""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from ..errors import ZkplanError

try:
    from prometheus_client import CollectorRegistry as CollectorRegistry
    from prometheus_client import Histogram as Histogram
    from prometheus_client import ProcessCollector as ProcessCollector
    from prometheus_client import generate_latest as generate_latest
    from prometheus_client import make_wsgi_app as make_wsgi_app
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.core import Metric as Metric
    from prometheus_client.core import SummaryMetricFamily as SummaryMetricFamily
    from prometheus_client.exposition import ThreadingWSGIServer
    from prometheus_client.parser import text_string_to_metric_families
    from prometheus_client.registry import Collector as ClientCollector
except ImportError as missing:
    raise ZkplanError(
        "metrics need the package prometheus_client, which is not installed here: "
        "pip install 'zkplan[metrics]'"
    ) from missing

#: Samples by the value of their label, or by a tuple of the values of their labels.
Labelled = Mapping[Any, float]


class Collector(ClientCollector):
    """A collector of zkplan."""

    def describe(self) -> list[Metric]:
        """Nothing, so that a registry collects nothing before the first scrape."""
        return []


def gauge(name: str, text: str, value: float) -> Metric:
    """A gauge without labels."""
    return GaugeMetricFamily(name, text, value)


def gauges(name: str, text: str, labels: Sequence[str], samples: Labelled) -> Metric:
    """A gauge with a sample for each key, which holds the values of the labels."""
    return _add(GaugeMetricFamily(name, text, labels=labels), samples)


def counters(name: str, text: str, labels: Sequence[str], samples: Labelled) -> Metric:
    """A counter, as `gauges`. Prometheus appends `_total` to its name."""
    return _add(CounterMetricFamily(name, text, labels=labels), samples)


def _add(family: Any, samples: Labelled) -> Metric:
    pairs = [((key,) if isinstance(key, str) else key, value) for key, value in samples.items()]
    for values, value in sorted(pairs):
        family.add_metric(values, value)
    made: Metric = family
    return made


def exposition(families: Iterable[Metric]) -> str:
    """The families in the text format of Prometheus."""

    class Collected(Collector):
        def collect(self) -> Iterable[Metric]:
            return families

    registry = CollectorRegistry()
    registry.register(Collected())
    return generate_latest(registry).decode()


#: Why something does not work; empty if it works.
Check = Callable[[], str]
_Start = Callable[[str, list[tuple[str, str]]], object]
#: How many seconds a client may take to send its request.
_PATIENCE_S = 10.0


class Endpoint:
    """Serves /metrics with the families of `collector`, and /healthz and /readyz, which answer 200,
    or 503 with the reason from their check.

    `address` is host and port (0 takes a free one), or the path of a Unix socket. The endpoint
    serves from `start` to `close`; its threads do not keep the process alive. There is no login:
    whoever reaches the address may read everything.

    Raises OSError if the address cannot be used.
    """

    def __init__(
        self,
        address: tuple[str, int] | Path,
        collector: ClientCollector,
        healthy: Check = lambda: "",
        ready: Check = lambda: "",
    ) -> None:
        self._metrics = make_wsgi_app(collector)
        self._checks = {"/healthz": healthy, "/readyz": ready}
        self._server = _listening(address)
        self._server.set_app(self._answer)

    @property
    def address(self) -> str:
        """HOST:PORT, as in a URL; the path of a Unix socket."""
        if isinstance(self._server, _UnixServer):
            return str(self._server.server_address)
        host, port = self._server.server_address[:2]
        host = host if isinstance(host, str) else host.decode()
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def start(self) -> Endpoint:
        serve = threading.Thread(
            target=self._server.serve_forever, name="zkplan-metrics", daemon=True
        )
        serve.start()
        return self

    def close(self) -> None:
        """Stop serving. Call this only after `start`."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: dict[str, Any], start: _Start) -> Iterable[bytes]:
        path, method = request["PATH_INFO"], request["REQUEST_METHOD"]
        if method != "GET":
            return _send(start, "405 Method Not Allowed", "only GET is answered", ("Allow", "GET"))
        if path == "/metrics":
            answer: Iterable[bytes] = self._metrics(request, start)
            return answer
        check = self._checks.get(path)
        if check is None:
            return _send(start, "404 Not Found", "there are /metrics, /healthz and /readyz")
        wrong = check()
        return _send(start, "503 Service Unavailable" if wrong else "200 OK", wrong or "ok")


def _send(start: _Start, status: str, text: str, *headers: tuple[str, str]) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [f"{text}\n".encode()]


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_S

    def log_message(self, *_: Any) -> None:
        """Do not log scrapes."""

    def address_string(self) -> str:
        return "local" if not self.client_address else super().address_string()


class _Server(ThreadingWSGIServer):
    def server_bind(self) -> None:
        """Unlike HTTPServer, do not look up the name of the host, which may take long."""
        socket.socket.bind(self.socket, self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "zkplan", 0
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _UnixServer(_Server):
    address_family = socket.AF_UNIX

    def get_request(self) -> tuple[Any, Any]:
        accepted, _ = UnixStreamServer.get_request(self)
        return accepted, ("local", 0)


def _listening(address: tuple[str, int] | Path) -> _Server:
    if isinstance(address, Path):
        return _UnixServer(os.fspath(address), _Handler)  # type: ignore[arg-type]
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, *_, place = found[0]
    kind = _Server6 if family == socket.AF_INET6 else _Server
    return kind((str(place[0]), int(place[1])), _Handler)


# ---- Merge the metrics of several worker processes. Each process serves its own at a socket in a
# folder of the supervisor, so one address serves whichever processes are alive at the moment.


#: How many seconds a process may take for its part of a scrape, and for a check of its health.
WITHIN_S = 7.0
#: The path of a socket has at most about 100 bytes, which a folder for temporary files may exceed.
_FOLDER_MAX = 60


def make_folder() -> Path:
    """A folder for sockets, which no other user can enter."""
    made = tempfile.mkdtemp(prefix="zkplan-")
    if len(made) > _FOLDER_MAX:
        shutil.rmtree(made)
        made = tempfile.mkdtemp(prefix="zkplan-", dir="/tmp")
    return Path(made)


class Merged(Collector):
    """Collects the metrics that processes serve at the sockets in `folder`, for a registry.

    `pids` returns the processes that run now; the sockets of other processes are deleted. A process
    that does not answer is missing in this scrape, and is counted as silent.
    """

    def __init__(self, folder: Path, pids: Callable[[], Iterable[int]]) -> None:
        self._folder, self._pids = folder, pids

    def collect(self) -> Iterator[Metric]:
        """The families of all processes, each once."""
        merged: dict[str, Metric] = {}
        answers = self._ask("/metrics")
        for _, text in answers:
            families = list(text_string_to_metric_families(text or ""))
            samples = (sample for family in families for sample in family.samples)
            worker = next(
                (each.labels["worker"] for each in samples if "worker" in each.labels), ""
            )
            for family in families:
                new = Metric(family.name, family.documentation, family.type)
                merged.setdefault(family.name, new).samples += [
                    each._replace(labels={"worker": worker, **each.labels})
                    for each in family.samples
                ]
        silent = sum(text is None for _, text in answers)
        yield gauges(
            "zkplan_supervisor_processes",
            "Worker processes of this command: those that answer the scrape, and silent ones.",
            ["state"],
            {"answering": len(answers) - silent, "silent": silent},
        )
        yield from merged.values()

    def alive(self) -> str:
        """What is wrong at /healthz of any process; empty if nothing is."""
        return self._wrong("/healthz")

    def ready(self) -> str:
        """What is wrong at /readyz of any process; empty if nothing is."""
        return self._wrong("/readyz")

    def _wrong(self, path: str) -> str:
        answers = self._ask(path)
        found = [f"process {pid}: {text or 'it does not answer'}" for pid, text in answers]
        wrong = [each.strip() for each in found if not each.endswith(": ok\n")]
        return "; ".join(wrong) if answers else "there is no worker process"

    def _ask(self, path: str) -> list[tuple[int, str | None]]:
        """The answer of each process, or None without one. All processes are asked in parallel."""
        pids = sorted(self._pids())
        for left in self._folder.glob("*.sock"):
            if left.stem not in map(str, pids):
                left.unlink(missing_ok=True)
        if not pids:
            return []
        with ThreadPoolExecutor(min(32, len(pids))) as pool:
            sockets = [self._folder / f"{pid}.sock" for pid in pids]
            return list(zip(pids, pool.map(lambda each: _get(each, path), sockets), strict=True))


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=WITHIN_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _get(place: Path, path: str) -> str | None:
    connection = _UnixConnection(place)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return None  # the process starts, ends or hangs
    finally:
        connection.close()
