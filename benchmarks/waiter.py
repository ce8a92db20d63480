"""A client process that only waits for a plan, so that its memory can be measured."""

from __future__ import annotations

import click

import zkplan


@click.command()
@click.option("--hosts", required=True)
@click.option("--root", required=True)
@click.option("--plan", "path", required=True)
def main(hosts: str, root: str, path: str) -> None:
    with zkplan.connect(hosts, root) as client:
        plan = client.plan(path)
        click.echo("waiting")
        try:
            plan.wait()
        except (zkplan.PlanCancelled, zkplan.PlanNotFound):
            return  # the measurement is over: the plan is cancelled and removed


if __name__ == "__main__":
    main()
