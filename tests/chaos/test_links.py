"""The proxy of a link does to real ZooKeeper traffic what it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError

import zkplan
from tests.integ.support import plain_client, wait_until, working

from .world.link import Link, Loss, Weather


@pytest.fixture
def link(zk_server: object) -> Iterator[Link]:
    port = int(zk_server.hosts.rpartition(":")[2])  # type: ignore[attr-defined]
    link = Link([port])
    yield link
    link.close()


def write(client: KazooClient, path: str) -> object:
    transaction = client.transaction()
    transaction.create(path)
    return transaction.commit_async()


@pytest.mark.parametrize(
    ("loss", "applied"), [("request", False), ("answer", True), ("late", True)]
)
def test_a_lost_transaction_is_applied_or_not(link: Link, loss: Loss, applied: bool) -> None:
    path = f"/lost-{loss}"
    with plain_client(link.hosts) as client:
        link.change(Weather(lose=lambda step, number: loss if number == 1 else None))
        with pytest.raises(ConnectionLoss):
            write(client, path).get(timeout=10)  # type: ignore[attr-defined]
        assert link.lost == [f"other {loss}"]
        link.change(Weather())
        wait_until(lambda: client.connected, "it is connected again")
        if applied:
            wait_until(lambda: client.exists(path), "the late copy is applied")
        else:
            with pytest.raises(NoNodeError):
                client.get(path)


def test_a_link_counts_what_the_weather_does_and_not_its_mending(link: Link) -> None:
    with plain_client(link.hosts) as client:
        assert client.exists("/")
        link.heal()
        # It may not have noticed yet.
        assert client.retry(client.exists, "/")
        assert link.struck == 0
        link.change(Weather(answer_delay_s=0.01))
        assert client.exists("/")
        wait_until(lambda: link.struck > 0, "the delayed answer is counted")
        struck = link.struck
        link.cut()
        assert link.struck >= struck + 2


def test_held_answers_come_when_the_weather_changes(link: Link) -> None:
    with plain_client(link.hosts) as client:
        link.change(Weather(hold_answers=True))
        answer = client.exists_async("/")
        answer.wait(0.3)
        assert not answer.ready()
        link.change(Weather())
        assert answer.get(timeout=10)


def test_a_refused_client_cannot_connect_until_it_heals(link: Link) -> None:
    link.change(Weather(refuse=True))
    client = KazooClient(link.hosts)
    with pytest.raises(client.handler.timeout_exception):
        client.start(timeout=1)
    client.stop()
    link.heal()
    with plain_client(link.hosts) as other:
        assert other.exists("/")


def test_events_are_dropped_and_answers_are_not(link: Link) -> None:
    heard: list[object] = []
    with plain_client(link.hosts) as client:
        link.change(Weather(drop_events=True))
        client.exists("/watched", watch=heard.append)
        client.create("/watched")
        assert client.exists("/watched")
        client.delete("/watched")
    assert [event for event in heard if getattr(event, "type", "") != "NONE"] == []
    assert link.events_lost > 0


def test_a_second_client_ends_the_session_that_the_link_has_seen(link: Link) -> None:
    with plain_client(link.hosts) as client:
        session = client.client_id
        assert link.session is not None
        assert tuple(link.session) == session
        twin = KazooClient(link.hosts, client_id=tuple(link.session))
        twin.start(timeout=10)
        twin.stop()
        twin.close()
        wait_until(lambda: client.client_id not in (None, session), "it has another session")


def test_a_client_that_asked_one_question_beside_it_does_not_hide_the_session(link: Link) -> None:
    with plain_client(link.hosts) as client:
        with plain_client(link.hosts) as asks:
            assert link.session is not None
            assert tuple(link.session) == asks.client_id
        wait_until(
            lambda: link.session is not None and tuple(link.session) == client.client_id,
            "the session that stands is known again",
        )


def test_a_session_is_replaced_without_a_word(link: Link) -> None:
    states: list[str] = []
    with plain_client(link.hosts) as client:
        session = client.client_id
        client.create("/of-the-old-session", ephemeral=True)
        client.add_listener(lambda state: states.append(str(state)))
        link.change(Weather(new_sessions=True))
        link.cut()
        wait_until(lambda: "CONNECTED" in states, "it is connected again")
        assert client.client_id != session
        assert client.exists("/of-the-old-session"), "the old session has not ended yet"
        assert "LOST" not in states


def test_the_steps_of_a_worker_are_told_apart(link: Link) -> None:
    """What claims at once starts like a claim: inheriting commits, and publications."""
    steps: list[str] = []
    link.change(Weather(seen=steps.append))
    with zkplan.connect(link.hosts, root="/steps", session_timeout=10) as client:
        with client.create_plan() as plan:
            sources = [plan.add_task(int, name=name) for name in "ab"]
            plan.add_task(str, [plan.add_task(max, sources)])
        added = len(steps)
        with working(link.hosts, "/steps", threads=1):
            plan.wait(30)
    assert "add" in steps[:added]
    told = [step for step in steps[added:] if step != "other"]
    assert (told[0], told[-1]) == ("register", "leave")
    assert set(told[1:-1]) == {"claim", "commit", "publish"}


def test_a_link_that_calms_down_keeps_its_connections(link: Link) -> None:
    with plain_client(link.hosts) as client:
        assert client.exists("/")
        before = set(link._let_in)
        link.change(Weather(answer_delay_s=0.01))
        link.calm()
        assert link.is_fair
        assert client.exists("/")
        assert set(link._let_in) == before
