"""`init-secret`: make the file that a broker needs beside Kafka's own `server.properties`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from minikafka.base.errors import MinikafkaError
from minikafka.base.ports import Rng
from minikafka.runtime.clock import SystemRng
from minikafka.tools.cli.foreground.broker_file import OWN_FILE
from minikafka.tools.cli.terminal.echo import echo

_SECRET_BYTES: Final = 32
_CONTENT: Final = """\
# The keys that minikafka needs and Kafka does not know. All brokers of a cluster have the same secret.
# Whoever reads the secret can act as a broker.
minikafka.cluster.secret={secret}
# Where the other brokers call this one. Without a host: at the address of the listener between brokers. Port 0: any.
minikafka.control.listener=CONTROLLER://:{port}
"""


@click.command("init-secret")
@click.argument("file", default="server.properties", type=click.Path(dir_okay=False))
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    show_default=True,
    help="Port of the control listener; 0: a free one at each start.",
)
def init_secret(file: str, port: int) -> None:
    """Make minikafka-secret.properties beside FILE, Kafka's configuration of a broker.

    It has the secret with which the brokers of a cluster sign their calls. Copy it to the other brokers.
    """
    path = Path(file).with_name(OWN_FILE)
    text = secret_file(SystemRng(), port)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        advice = "use it, or remove it and give every broker the new one"
        raise MinikafkaError(f"{path} exists already: {advice}") from None
    except OSError as error:
        raise MinikafkaError(f"{path} cannot be made: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as made:
        made.write(text)
    echo(f"{path} has the secret of the cluster; copy it to the other brokers", err=True)


def secret_file(rng: Rng, port: int) -> str:
    """Return the content of the file with a new secret. `port`: of the control listener."""
    return _CONTENT.format(secret=rng.bytes(_SECRET_BYTES).hex(), port=port)
