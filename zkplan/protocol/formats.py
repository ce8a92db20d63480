"""The formats of what zkplan writes: one number for the tree, and one for each kind of payload.

Raise the number here with any change of the bytes: another zkplan would take them for damage.
`tests/unit/test_formats_are_raised.py` compares the bytes with the golden files beside it.
"""

from __future__ import annotations

from ..errors import OtherFormat

#: The format of the tree: names, records and what they mean. The record of each plan has it.
TREE = 4
#: The first bytes of each kind of payload: its own letters, and its number in one digit. A new
#: letter of an event needs no new format of the history: readers skip letters they do not know.
ENVELOPE = b"e3"
SEALED = b"z3"
HISTORY = b"h1"
BLOB = b"zkb1"
HISTORY_PART = b"zkh1"
#: The format of an exported plan, in its first line.
ARCHIVE = 3

#: The first bytes of envelopes before they had their own letters.
_ENVELOPE_1 = b"z1"


def require_format(written: object, known: int) -> None:
    """Raises OtherFormat if a record names a format other than the known one."""
    if type(written) is not int or written != known:
        raise _other(written if type(written) is int else None, known)


def require_magic(data: bytes, magic: bytes) -> None:
    """Raises OtherFormat if `data` has the letters of `magic`, but another number.

    All other data passes: it may be damaged.
    """
    letters, number = magic[:-1], data[len(magic) - 1 : len(magic)]
    if data.startswith(magic):
        return
    if data.startswith(letters) and number.isdigit():
        raise _other(int(number), int(magic[-1:]))
    if magic == ENVELOPE and data.startswith(_ENVELOPE_1):
        raise _other(1, int(magic[-1:]))


def _other(written: int | None, known: int) -> OtherFormat:
    is_older = written is not None and written < known
    which, advice = ("an older", "use that one") if is_older else ("a newer", "upgrade this one")
    number = "unknown" if written is None else written
    return OtherFormat(
        f"written by {which} zkplan (format {number}; this one reads {known}): {advice}"
    )
