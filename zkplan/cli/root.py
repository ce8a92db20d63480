"""`zkplan root`: set a root up, close it, bound it, and see what an outsider could do there."""

from __future__ import annotations

from typing import Any

import click

from ..basics.text import count
from ..inspection.access import (
    Open,
    RootAccess,
    close_root,
    require_login,
    root_access,
    workers_without_login,
)
from ..settings import Settings
from . import EXIT_FAILED, EXIT_USAGE, end
from .bounds import budget, retention
from .common import connection_options, open_client, output_option, print_facts
from .keys import new_key_command, rotate_key


@click.group(short_help="Set a root up, close it, bound it, make and rotate its keys.")
def root() -> None:
    """Set a root up, close it, make and rotate its keys, and see what an outsider could do there.

    An outsider is whoever reaches ZooKeeper and has no login.
    """


root.add_command(budget)
root.add_command(retention)
root.add_command(new_key_command)
root.add_command(rotate_key)


@root.command()
@connection_options
def init(settings: Settings) -> None:
    """Create the root, closed to all but this login.

    A root that exists stays as it is. A `zkplan server` without --open keeps others out by itself:
    then no login is needed. Exit codes: 0 it is there and closed, 1 it is open, or not all of
    it may be read.
    """
    with open_client(settings, creates=True) as client:
        if not client.transport.server_is_closed:
            require_login(client)
        client.prepare()
        report = root_access(client)
    if report.is_open:
        end(f"{report.root} exists and is open: close it with `zkplan root lock`", EXIT_FAILED)
    _require_all_read(report.unreadable)
    click.echo(f"{report.root} is there, and {report.told}")


@root.command()
@output_option
@connection_options
def show(output: str, settings: Settings) -> None:
    """Show what an outsider could list, read, write and delete.

    It looks at every znode of the root. Exit codes: 0 nothing, 1 something, or not all of the root
    may be read.
    """
    with open_client(settings, needs_root=False) as client:
        report = root_access(client)
    print_facts(_facts(report, output), output)
    _require_all_read(report.unreadable)
    if report.is_open:
        raise SystemExit(EXIT_FAILED)


@root.command()
@click.option(
    "--anyway", is_flag=True, help="Also where workers without a login run: they are shut out."
)
@connection_options
def lock(anyway: bool, settings: Settings) -> None:
    """Close every znode of the root to all but this login, while plans run.

    Start the workers and authors with a login first: what they create then is closed already, and
    they can go on. The command may be run again, also after it was interrupted. Znodes with lists
    of other logins keep them. Where a `zkplan server` without --open keeps others out, and you
    give no login, nothing is changed. Exit codes: 0 nothing is open, 1 not all of the root may be
    read.
    """
    with open_client(settings, needs_root=False) as client:
        if client.transport.server_is_closed and not client.transport.logs_in:
            report = root_access(client)
            _require_all_read(report.unreadable)
            click.echo(f"{report.root} is {report.told}: nothing had to be changed")
            return
        require_login(client)
        without = workers_without_login(client)
        if without and not anyway:
            end(
                f"{count(len(without), 'worker')} without a login would lose access: "
                f"{', '.join(without[:5])}. The tasks claimed there would wait until these workers "
                "end. Restart them with a login first, or close the root all the same with "
                "--anyway",
                EXIT_USAGE,
            )
        closed = close_root(client)
    _require_all_read(closed.unreadable, f"{count(closed.znodes, 'znode')} had been open; ")
    click.echo(f"{client.root} is closed: {count(closed.znodes, 'znode')} had been open")


def _require_all_read(unreadable: Open, before: str = "") -> None:
    """End with 1 where nobody knows of some znodes whether they are open."""
    if not unreadable.znodes:
        return
    more = ", …" if unreadable.znodes > len(unreadable.examples) else ""
    end(
        f"{before}{count(unreadable.znodes, 'znode')} may not be read with this login, so nothing "
        f"is known of what is in there: {', '.join(unreadable.examples)}{more}. Run this with the "
        "login that made them",
        EXIT_FAILED,
    )


def _facts(report: RootAccess, output: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"root": report.root, "znodes": report.znodes, "open": report.is_open}
    if output == "json":
        facts |= {"closed_by_server": report.closed_by_server}
        facts |= {"open_lists": vars(report.open_lists)}
        outsiders = {deed: vars(found) for deed, found in report.outsiders.items()}
        rest = {"logins": dict(report.logins), "unreadable": vars(report.unreadable)}
        return facts | {"outsiders": outsiders} | rest
    known = "not known of all of it" if report.unreadable.znodes else f"no: {report.told}"
    facts["open"] = "yes: whoever reaches ZooKeeper needs no login" if report.is_open else known
    for deed, found in report.outsiders.items():
        examples = "\n".join(found.examples + ["…"] * (found.znodes > len(found.examples)))
        facts[f"outsider can {deed}"] = f"{found.znodes:,}\n{examples}".rstrip()
    facts["logins"] = "\n".join(f"{name}: {times:,}" for name, times in report.logins.items())
    facts["unreadable"] = "\n".join([f"{report.unreadable.znodes:,}", *report.unreadable.examples])
    return facts
