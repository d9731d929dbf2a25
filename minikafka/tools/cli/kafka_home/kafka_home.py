"""`kafka-home`: make a folder like an unpacked Kafka distribution, whose scripts start minikafka."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

import minikafka.runtime.clock as clocks
import minikafka.tools.cli.kafka_home.folder as folder
from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.foreground.broker_file import OWN_FILE
from minikafka.tools.cli.foreground.init_secret import secret_file
from minikafka.tools.cli.kafka_home.version import KAFKA_VERSION
from minikafka.tools.cli.terminal.echo import json_option, show


@click.command("kafka-home")
@click.argument("directory", type=click.Path(file_okay=False), metavar="DIR")
@json_option
def kafka_home(directory: str) -> None:
    """Make DIR like an unpacked Kafka 3.9: bin/, config/ and libs/, with scripts that start minikafka.

    It is for test programs that start Kafka from its distribution. They need no change: the scripts, their options,
    and the lines that they print are Kafka's. All brokers that are started from DIR can form one cluster: they share
    a secret, which DIR has. If DIR was made so before, its scripts are replaced; the files in config/ stay.
    """
    home = Path(directory).absolute()
    try:
        _write(home)
    except OSError as error:
        raise MinikafkaError(f"{error.filename or home}: {error.strerror}") from None
    first = f"{home}/bin/zookeeper-server-start.sh -daemon {home}/config/zookeeper.properties"
    then = f"{home}/bin/kafka-server-start.sh {home}/config/server.properties"
    show(
        {"home": str(home), "version": KAFKA_VERSION},
        [f"{home} is like Kafka {KAFKA_VERSION}. A first broker:", f"  {first}", f"  {then}"],
    )


def _write(home: Path) -> None:
    """Write the files. Raises OSError, and MinikafkaError for a directory that is not suitable."""
    if any(character.isspace() for character in str(home)):
        raise MinikafkaError(f"{str(home)!r} has blanks, which scripts of Kafka cannot handle")
    if home.exists() and any(home.iterdir()) and not folder.is_home(home):
        raise MinikafkaError(f"{home} has other files: name a new directory")
    for part in ("bin", "config", "libs", "logs"):
        (home / part).mkdir(parents=True, exist_ok=True)
    for name, text in folder.scripts(sys.executable):
        (home / name).write_text(text, "utf-8")
        (home / name).chmod(0o755)
    for name, content in folder.jars():
        (home / name).write_bytes(content)
    for name, text in folder.CONFIGS.items():
        if not (home / name).exists():
            (home / name).write_text(text, "utf-8")
    secret = home / "config" / OWN_FILE
    if not secret.exists():
        descriptor = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as made:
            made.write(secret_file(clocks.SystemRng(), 0))
