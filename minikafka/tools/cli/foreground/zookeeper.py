"""`zookeeper`: run one ZooKeeper server in the foreground."""

from __future__ import annotations

import click

import minikafka.tools.cli.foreground.zookeeper_process as zookeeper_process
from minikafka.tools.cli.foreground.server_log import ServerLog, log_format_option
from minikafka.tools.cli.lazy import import_at_once

_TICK_MS = 2000
_SNAPSHOT_COUNT = 100_000


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False),
    metavar="DIR",
    required=True,
    help="Data directory: Apache ZooKeeper's dataDir, in its formats. Created if it does not exist.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port for clients, without encryption; 0 for any free port. Without it, only secureClientPort of --config.",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="File with Apache ZooKeeper's keys of encryption and authentication, one key=value a line.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Others than this machine should reach only a port with encryption.",
)
@click.option(
    "--tick-time",
    type=click.IntRange(min=1),
    default=_TICK_MS,
    show_default=True,
    metavar="MS",
    help="ZooKeeper's tickTime: sessions expire at a tick, and have a timeout of at least 2 ticks.",
)
@click.option(
    "--max-session-timeout",
    type=click.IntRange(min=1),
    metavar="MS",
    help="Longest timeout of a session.  [default: 20 ticks]",
)
@click.option(
    "--snapshot-count",
    type=click.IntRange(min=1),
    default=_SNAPSHOT_COUNT,
    show_default=True,
    metavar="N",
    help="ZooKeeper's snapCount: transactions from one snapshot to the next.",
)
@log_format_option
@click.option("--parent", type=int, metavar="PID", hidden=True, help="End when this process ends.")
def zookeeper(
    data: str,
    port: int | None,
    config: str | None,
    host: str,
    tick_time: int,
    max_session_timeout: int | None,
    snapshot_count: int,
    log_format: str,
    parent: int | None,
) -> None:
    """Run one ZooKeeper server until SIGTERM or Ctrl-C.

    It serves the clients of Apache ZooKeeper 3.4 to 3.9, and keeps its data in Apache's formats. It is one node, not
    replicated: while it is down, there is no coordination, and if its disk is lost, the data are lost. Use an ensemble
    of Apache ZooKeeper where this is not enough.

    Keys of --config: secureClientPort, ssl.keyStore.location, ssl.trustStore.location, ssl.clientAuth and others with
    ssl. in front, DigestAuthenticationProvider.superDigest, X509AuthenticationProvider.superUser, superUser,
    java.security.auth.login.config, enforce.auth.enabled and enforce.auth.schemes.

    Exit code: as for `minikafka broker`.

    Not implemented: ensembles and reconfiguration, TTL nodes, quotas, Kerberos, read-only mode, throttling, and the
    HTTP server for administration.
    """
    import_at_once()
    zookeeper_process.run_zookeeper(
        data,
        host,
        port,
        config,
        tick_time,
        max_session_timeout,
        snapshot_count,
        ServerLog(log_format),
        parent,
    )
