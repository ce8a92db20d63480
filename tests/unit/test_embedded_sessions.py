"""Sessions of the embedded server at given times: they never expire early or reuse an id."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from zkplan.embedded.sessions import Session, Sessions

LOW_MS, HIGH_MS = 100, 1000


def sessions() -> Sessions:
    numbers = itertools.count(1)
    return Sessions(
        min_timeout_ms=LOW_MS,
        max_timeout_ms=HIGH_MS,
        make_password=lambda size: next(numbers).to_bytes(size, "big"),
    )


def test_session_ids_stay_positive_numbers_of_64_bits() -> None:
    for wall_ms in (0, 2**40 - 1, 2**40, 2**62):
        assert 0 < sessions().create(200, 0, wall_ms).id < 2**62


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "touch", "attach", "end", "expire", "forgive"]),
        st.integers(0, 5),
        st.integers(0, 1200),
    ),
    max_size=60,
)


@given(STEPS)
def test_sessions_expire_exactly_when_their_deadline_has_passed(
    steps: list[tuple[str, int, int]],
) -> None:
    live, now_ms = sessions(), 0
    known: list[Session] = []
    for what, which, amount in steps:
        now_ms += amount // 4
        session = known[which % len(known)] if known else None
        if what == "create":
            known.append(live.create(amount, now_ms, 5))
        elif what == "expire":
            over = live.expired(now_ms)
            assert over == sorted(over, key=lambda each: each.queued_ms)
            assert {each.id for each in over} == {s.id for s in known if s.deadline_ms < now_ms}
            assert len(over) == len(set(over))
            for each in over:
                live.end(each.id)
                known.remove(each)
        elif what == "forgive":
            now_ms += amount
            live.forgive(amount, now_ms)
        elif session is not None:
            if what == "touch":
                live.touch(session, now_ms)
            elif what == "attach":
                live.attach(session.id, session.password, amount, now_ms)
            else:
                live.end(session.id)
                known.remove(session)
        due_ms = live.next_check_ms()
        assert len(live) == len(known)
        assert all(due_ms is not None and due_ms <= each.deadline_ms + 1 for each in known)


def test_absences_of_the_server_extend_a_silent_session_by_one_timeout_at_most() -> None:
    live = sessions()
    session = live.create(1000, 0, 5)
    now_ms = 0
    while session in live and now_ms < 60_000:
        now_ms += 700  # 600 of them late
        live.forgive(600, now_ms)
        for each in live.expired(now_ms):
            live.end(each.id)
    assert 1000 < now_ms <= 2000 + 700


def test_a_session_heard_from_between_absences_is_extended_for_each() -> None:
    live = sessions()
    session = live.create(1000, 0, 5)
    for now_ms in range(1000, 20_000, 1000):
        live.touch(session, now_ms - 900)
        live.forgive(900, now_ms)
        assert session.deadline_ms == now_ms + 1000


def test_an_absence_longer_than_the_timeout_extends_a_session_in_full() -> None:
    live = sessions()
    session = live.create(1000, 0, 5)
    live.forgive(900, 900)
    live.forgive(900, 1800)
    assert live.expired(1800) == []
    live.forgive(50_000, 51_800)
    assert live.expired(52_000) == []
    assert live.expired(52_801) == [session]
