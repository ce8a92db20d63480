"""What `demo` and `stress` share: the server that they use, and how they end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..errors import AccessDenied, ZkplanError
from ..settings import Settings
from ..settings.settings import JSON
from ..testing.embedded_process import EmbeddedServerProcess
from ..testing.loopback import server_version
from ..testing.provide import Provided, of_our_own
from ..testing.server_process import ServerDidNotStart
from ..transport.addresses import is_embedded, lease
from . import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNREACHABLE, EXIT_USAGE, end, exit_code


@contextmanager
def zookeeper_for(command: str, settings: Settings) -> Iterator[tuple[Provided, Settings]]:
    """The ZooKeeper of the settings, or an embedded server for the length of the block.

    Beside it the settings to connect to it with.

    However the block ends, the command ends with one line on stderr and its exit code; SIGTERM ends
    it as Ctrl-C does, so that it cleans up.
    """
    # SIGINT too: a shell without job control starts what runs in its background with it ignored.
    if settings.serializer == JSON:
        end(f"zkplan {command} runs pickles: give --serializer pickle", EXIT_USAGE)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        hosts = settings.hosts
        if settings.names_server and is_embedded(hosts):
            with lease(hosts) as server:
                yield of_our_own(server.hosts, hosts), replace(settings, hosts=server.hosts)
        elif settings.names_server:
            yield Provided(hosts, server_version(hosts), "given"), settings
        else:
            # The server runs in a process of its own. Here it would share the interpreter with the
            # harness.
            with EmbeddedServerProcess(is_open=False) as started:
                told = of_our_own(started.hosts, f"started for zkplan {command}")
                yield told, replace(settings, hosts=started.hosts)
    except KeyboardInterrupt:
        end("interrupted; nothing of it is left behind", EXIT_INTERRUPTED)
    except ServerDidNotStart as error:
        end(str(error), EXIT_UNREACHABLE)
    except ZkplanError as error:
        # This is no usage error, so the run has failed, unless it was not allowed to begin.
        code = exit_code(error)
        is_failed = code == EXIT_USAGE and not isinstance(error, AccessDenied)
        end(str(error), EXIT_FAILED if is_failed else code)
