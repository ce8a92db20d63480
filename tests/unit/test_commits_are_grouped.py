"""Parts of commits are grouped into transactions."""

from __future__ import annotations

import pytest

from zkplan.protocol.core.commit_part import Part, first_group
from zkplan.protocol.core.load import Loaded
from zkplan.protocol.layout import ADDS
from zkplan.protocol.transactions import GROUP_BYTES_MAX, Claim

CLAIM = Claim("4", "7", "5000", 0, 0, "/z/claims/w/4-7.0", "/z/plan-4", "/z/plan-4/task-7")
SMALL = Part(Loaded(CLAIM, b"", [], []), b"value")
#: Its outcome was fixed by an earlier claim, and tasks that its function has added are staged.
STAGED = Part(Loaded(CLAIM, b"", [], [], others=[ADDS, "adds-0-0"], result=b"value"), b"value")
LARGE = Part(Loaded(CLAIM, b"", [], []), b"x" * (GROUP_BYTES_MAX // 3))


@pytest.mark.parametrize(
    ("waiting", "count"),
    [
        ([SMALL, SMALL, SMALL], 3),
        ([SMALL, SMALL, STAGED, SMALL], 2),
        ([STAGED, SMALL], 1),
        ([LARGE, LARGE, LARGE], 1),
        ([], 0),
    ],
)
def test_parts_share_a_transaction_up_to_a_part_that_must_be_sent_alone(
    waiting: list[Part], count: int
) -> None:
    assert first_group(waiting) == count
