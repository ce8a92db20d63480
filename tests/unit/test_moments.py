"""Moments as people type them: an age, a time of day, or a date and time."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import click
import pytest

from zkplan.cli.common import moment

CONTEXT, OPTION = click.Context(click.Command("it")), click.Option(["--since"])


def test_a_moment_is_an_age_a_time_of_day_or_a_date() -> None:
    assert moment(CONTEXT, OPTION, "2026-11-25T03:12Z") == 1795576320
    ago = moment(CONTEXT, OPTION, "10m")
    assert ago == pytest.approx(time.time() - 600, abs=60)
    now = datetime.now()
    for minutes in (5, 60 * 12, 60 * 24 - 5):
        meant = (now - timedelta(minutes=minutes)).replace(second=7, microsecond=0)
        assert moment(CONTEXT, OPTION, f"{meant:%H:%M:%S}") == meant.timestamp()
        assert moment(CONTEXT, OPTION, f"{meant:%H:%M}") == meant.timestamp() - 7
    for wrong in ("25:00", "03:61", "3:1", "yesterday"):
        with pytest.raises(click.BadParameter, match="is not a time"):
            moment(CONTEXT, OPTION, wrong)
