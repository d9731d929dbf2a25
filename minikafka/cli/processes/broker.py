"""`broker`: run one broker in the foreground."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from minikafka.cli.arguments.options import EXISTING_FILE

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""OpenSSL's environment variables for the certificates of public authorities."""


@click.command()
@click.option(
    "--config",
    type=EXISTING_FILE,
    metavar="FILE",
    required=True,
    help="TOML file with Kafka keys in [broker].",
)
@click.option("--parent", type=int, metavar="PID", hidden=True, help="End when this process ends.")
def broker(config: str, parent: int | None) -> None:
    """Run one broker until SIGTERM or Ctrl-C, which cause a controlled shutdown."""
    with no_certificates():
        from minikafka.cli.processes.broker_process import run_broker

    run_broker(config, parent)


@contextmanager
def no_certificates() -> Iterator[None]:
    """Let OpenSSL find no certificates during the import of aiohttp, which reads them all.

    A broker uses no TLS. Reading the certificates would take a tenth of its start.
    """
    former = {name: os.environ.get(name) for name in CERTIFICATES}
    os.environ.update(dict.fromkeys(CERTIFICATES, os.devnull))
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
