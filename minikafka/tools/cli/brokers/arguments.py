"""The arguments of `brokers add` and `brokers remove`."""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.options import not_blank

_ID_MAX: Final = 2**31 - 1


id_argument = click.argument(
    "broker_id", type=click.IntRange(0, _ID_MAX), metavar="ID", shell_complete=completion.brokers
)


zookeeper_option = click.option(
    "--zookeeper",
    metavar="HOST:PORT[/CHROOT]",
    callback=not_blank,
    help="ZooKeeper of the cluster (default: that of the cluster in --data).",
)
