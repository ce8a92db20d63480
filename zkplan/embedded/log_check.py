"""Damage in the middle of SQLite's write-ahead log, which SQLite itself takes for the log's end.

SQLite reads a log up to the first frame whose checksum is wrong and forgets the rest, because a
crash may leave the last group half written. But the log is flushed at the end of each group: frames
behind that one group prove that it had been flushed, and so was answered to clients. To go on
without it would lose acknowledged writes, so the server refuses instead.
"""

from __future__ import annotations

import struct
import sys
from array import array
from pathlib import Path

# As https://www.sqlite.org/fileformat2.html#walformat has it.
_HEADER = struct.Struct(">8I")  # magic, version, page size, sequence, 2 salts, 2 checksums
# Page, pages of the database where a group ends, 2 salts, 2 checksums.
_FRAME = struct.Struct(">6I")
_MAGIC_LITTLE, _MAGIC_BIG = 0x377F0682, 0x377F0683
_WORD = 0xFFFFFFFF


def damage_in(log: Path) -> str | None:
    """What is wrong with this log of a server that flushed every group, or None; changes nothing.

    The last group written, and it alone, may be damaged without being noticed here: nothing tells
    it from a group that a crash interrupted.
    """
    try:
        content = memoryview(log.read_bytes())
    except FileNotFoundError:
        return None  # a server that stopped in order leaves none
    if len(content) <= _HEADER.size:
        return None  # the header is flushed before the first frame is written
    magic, _, page_bytes, *salts, first, second = _HEADER.unpack_from(content)
    big = magic == _MAGIC_BIG
    sums = _checksum(content[: _HEADER.size - 8], big, (0, 0))
    if magic not in (_MAGIC_LITTLE, _MAGIC_BIG) or sums != (first, second):
        return "the header of its log does not match its checksum"
    salts = salts[1:]
    size = _FRAME.size + page_bytes
    frames = [
        (start, *_FRAME.unpack_from(content, start))
        for start in range(_HEADER.size, len(content) - size + 1, size)
    ]
    sound = 0  # frames up to the end of the last sound group
    for index, (start, _, ends, *stored_salts, first, second) in enumerate(frames):
        frame = content[start : start + size]
        sums = _checksum(frame[_FRAME.size :], big, _checksum(frame[:8], big, sums))
        if stored_salts != salts or sums != (first, second):
            break
        if ends:
            sound = index + 1
    # Frames with other salts are older than this log: their groups are in the database.
    rest = [frame for frame in frames[sound:] if list(frame[3:5]) == salts]
    ends_at = next((at for at, frame in enumerate(rest) if frame[2]), len(rest))
    if rest[ends_at + 1 :]:
        return f"frame {sound + 1} or a later one of its log is damaged, and more groups follow it"
    return None


def _checksum(part: memoryview, big: bool, sums: tuple[int, int]) -> tuple[int, int]:
    words = array("I", part.tobytes())
    if big != (sys.byteorder == "big"):
        words.byteswap()
    first, second = sums
    pairs = iter(words)
    for one, two in zip(pairs, pairs, strict=True):
        first = (first + one + second) & _WORD
        second = (second + two + first) & _WORD
    return first, second
