"""`generate logrotate`: the rotation of the files in `DIR/logs`, to which the processes of `minikafka up` append."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

import minikafka.tools.cluster.directory as directories
from minikafka.base.errors import ConfigError
from minikafka.tools.cli.arguments.find_cluster import data_directory
from minikafka.tools.cli.arguments.options import needs_machine
from minikafka.tools.cli.generate.output import output_option, write

_FILE: Final = """\
# /etc/logrotate.d/minikafka, made by `minikafka generate logrotate`.
# copytruncate: the processes append to open files. Lines that are written between copy and truncation are lost.
"{logs}/*.log" {{
    su {user} {group}
    daily
    maxsize 100M
    rotate 7
    copytruncate
    compress
    delaycompress
    missingok
    notifempty
}}
"""


@click.command()
@needs_machine("names the log files")
@output_option
def logrotate(data: str | None, output: str | None) -> None:
    """Print a configuration of logrotate for the logs of the cluster in --data.

    Only `minikafka up` and `start` write log files. Services and containers log to standard output.
    """
    directory = directories.ClusterDirectory(Path(data_directory(data)))
    directory.read_existing()
    logs = directory.logs
    if any(character in '"*?[]{}\\\n' for character in str(logs)):
        raise ConfigError(f'{logs}: logrotate reads " * ? [ ] {{ }} \\ in a path as its own')
    try:
        user, group = logs.owner(), logs.group()
    except KeyError as error:
        raise ConfigError(f"{logs}: its owner has no name, which logrotate needs") from error
    write(_FILE.format(logs=logs, user=user, group=group), output)
