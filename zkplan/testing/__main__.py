"""`python -m zkplan.testing`: run one ZooKeeper server on loopback until Ctrl-C, to try zkplan."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from zkplan.testing.server_process import ServerDidNotStart
from zkplan.testing.servers import ZooKeeperServer

from .server_process import LOOPBACK, is_free


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=2181,
    show_default=True,
    help="Port on the loopback address.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder that keeps the plans. Without it, they are lost when the server ends.",
)
def main(port: int, data: Path | None) -> None:
    """Run a ZooKeeper server on loopback until Ctrl-C.

    This needs Java and the jars of ZooKeeper: Debian's libzookeeper-java, or ZOOKEEPER_HOME.
    """
    if not is_free(port):
        raise click.UsageError(
            f"port {port} of {LOOPBACK} is taken, perhaps by a ZooKeeper that runs already: "
            "choose another port with --port"
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ZooKeeperServer(port=port, data=data.resolve() if data else None) as server:
            click.echo(
                f"ZooKeeper {server.version} at {server.hosts}, data in {server.data} "
                f"({'kept' if data else 'removed at the end'}); Ctrl-C ends it"
            )
            server.wait_ended()
    except KeyboardInterrupt:
        click.echo("ZooKeeper has ended", err=True)
        return
    except (ServerDidNotStart, FileNotFoundError) as error:
        raise click.ClickException(str(error)) from None
    raise click.ClickException(f"the server on port {port} has ended by itself")


if __name__ == "__main__":
    main(prog_name="python -m zkplan.testing")
