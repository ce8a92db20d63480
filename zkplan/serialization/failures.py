"""Failures as values: a failure record on its way to the function that takes it."""

from __future__ import annotations

from ..failure import Failure
from ..protocol import records

#: The encoding of a failure that is an argument. It lies in no znode, and is not a pickle, so that
#: each worker and each process can decode it, whatever else it decodes.
FAILED = b"E"


def dump_failure(failure: records.Failure) -> bytes:
    return FAILED + failure._replace(exception=b"").to_bytes()


def load_failure(blob: bytes | memoryview) -> Failure:
    """Raises PayloadUndecodable."""
    found = records.Failure.from_bytes(bytes(blob[1:]))
    n = max(0, found.n)
    return Failure(found.kind, found.text, found.traceback, n, found.worker)
