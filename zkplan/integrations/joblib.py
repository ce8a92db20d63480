"""Run batches of joblib as tasks."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, register_parallel_backend

from ..client import Client
from ..errors import ZkplanError
from .executor import Executor

NAME = "zkplan"


def register() -> None:
    """Register the backend with joblib under the name "zkplan".

    register()
    with joblib.parallel_config(backend="zkplan", client=client):
        joblib.Parallel()(joblib.delayed(square)(x) for x in range(100))
    """
    register_parallel_backend(NAME, ZkplanBackend)


class ZkplanBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs the calls of `joblib.Parallel` with an `Executor`, whose plan lives as long as the call.

    joblib groups short calls into batches, so that a task takes at least a fifth of a second.
    """

    default_n_jobs = -1
    supports_retrieve_callback = True

    def __init__(
        self,
        client: Client | None = None,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        **options: Any,
    ) -> None:
        """`options` are those of `Client.create_plan`. By default a batch has 3 attempts, 0.1 s
        apart. Raises ZkplanError without a client."""
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        if client is None:
            raise ZkplanError(
                'the joblib backend needs a client: joblib.parallel_config(backend="zkplan", '
                "client=zkplan.connect(...))"
            )
        self._client = client
        self._options = {"attempts": 3, "retry_delay": 0.1, **options}
        self._executor: Executor | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many batches may run at once. -1 means all slots of the registered workers, -2 all
        but one, and so on; without a worker such numbers raise ZkplanError."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            n_jobs = self.default_n_jobs
        if n_jobs > 0:
            return n_jobs
        slots = sum(worker.slots for worker in self._client.workers())
        if not slots:
            raise ZkplanError(
                f"no worker is registered under {self._client.root}, so n_jobs={n_jobs} has no "
                "meaning: start `zkplan worker`, or give a number above 0"
            )
        return max(slots + 1 + n_jobs, 1)

    def start_call(self) -> None:
        if self._executor is None:
            self._executor = Executor(self._client, "joblib", **self._options)

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], Any] | None = None
    ) -> Future[Any]:
        executor = self._executor
        if executor is None:
            raise RuntimeError("this call of joblib.Parallel has ended")
        future = executor.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, future: Future[Any]) -> Any:
        return future.result()

    def terminate(self) -> None:
        """Wait for the last results, and remove the plan."""
        self._shutdown(cancel=False)
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Let running calls end, and prevent all others from beginning."""
        self._shutdown(cancel=True)
        if ensure_ready:
            self.start_call()

    def _shutdown(self, cancel: bool) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=not cancel, cancel_futures=cancel)
