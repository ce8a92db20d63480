"""A long-running fuzzer of every decoder, guided by coverage; optional, for it needs atheris.

    pip install atheris
    python -m tests.unit.atheris_decoders -max_total_time=180 [CORPUS_FOLDER]

Options are libFuzzer's. The first byte of an input chooses the decoder, the rest is its garbage. A
finding ends it with a traceback and writes the input to `crash-…`; give that file as the argument
to see it again.
"""

from __future__ import annotations

import os
import sys
import warnings

try:
    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ModuleNotFoundError:
    sys.exit("atheris is missing, which is no part of zkplan[dev]: pip install atheris")

# The decoders must be imported under instrumentation, or nothing guides the fuzzer.
with atheris.instrument_imports(include=["zkplan", "json", "pickle"]):
    from tests.unit.hostile_bytes import HUGE, NAMES, PICKLES, as_text
    from tests.unit.test_hostile_decoders import DECODERS

NUMBERED = sorted(DECODERS)
#: Opcodes that ask for a memo of any size: Python reserves what is asked for, gigabytes of it.
MEMO = {b"r"[0], b"p"[0]}


def fuzz(data: bytes) -> None:
    """One input; whatever a decoder raises besides its documented errors is a finding."""
    if not data:
        return
    decode, garbage, allowed = DECODERS[NUMBERED[data[0] % len(NUMBERED)]]
    body = data[1:]
    if garbage is PICKLES and MEMO.intersection(body):
        return
    try:
        found = decode(as_text(body) if garbage is NAMES else body)
    except allowed:
        return
    repr(found)


def main() -> None:
    warnings.simplefilter("ignore")
    if not any(not argument.startswith("-") for argument in sys.argv[1:]):
        # Without a corpus of its own: a start from what tests know to be troublesome.
        for data in HUGE.values():
            for number in range(len(NUMBERED)):
                fuzz(bytes([number]) + data)
    atheris.Setup([sys.argv[0], f"-artifact_prefix={os.getcwd()}/", *sys.argv[1:]], fuzz)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
