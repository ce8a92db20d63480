"""The formats of what zkplan writes: one number for the tree, and one for each kind of payload.

Any change of the bytes raises the number here, because another zkplan would take them for damage.
`tests/unit/test_formats_are_raised.py` compares them with the golden files beside it.
"""

from __future__ import annotations

from ..errors import OtherFormat

#: Of the tree: names, records and what they mean. It stands in the record of each plan.
TREE = 3
#: The first bytes of each kind of payload: its own letters, and its number in one digit. A new
#: letter of an event is no new format of the history: readers that do not know it pass it over.
ENVELOPE = b"e3"
SEALED = b"z3"
HISTORY = b"h1"
BLOB = b"zkb1"
HISTORY_PART = b"zkh1"
#: Of an exported plan: it stands in the first line.
ARCHIVE = 3

#: The first bytes of envelopes before they had their own letters.
_ENVELOPE_1 = b"z1"


def require_format(written: object, known: int) -> None:
    """Raises OtherFormat where a record names another format than the known one."""
    if type(written) is not int or written != known:
        raise _other(written if type(written) is int else None, known)


def require_magic(data: bytes, magic: bytes) -> None:
    """Raises OtherFormat for a payload of the kind of `magic` with another number.

    Everything else passes: it may be damaged.
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
