"""`broker`: run one broker in the foreground."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType

import click

from minikafka.tools.cli.arguments.options import EXISTING_FILE
from minikafka.tools.cli.foreground.server_log import log_format_option
from minikafka.tools.cli.lazy import import_at_once

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""OpenSSL's environment variables for the certificates of public authorities."""


@click.command()
@click.option(
    "--config",
    type=EXISTING_FILE,
    metavar="FILE",
    required=True,
    help="TOML file with Kafka keys in [broker], or Kafka's own server.properties.",
)
@log_format_option
@click.option("--parent", type=int, metavar="PID", hidden=True, help="End when this process ends.")
@click.option(
    "--disk-faults",
    metavar="FILE",
    hidden=True,
    help="Let the disk have the faults in this file, and those that a test asks for.",
)
@click.option(
    "--clock-advanced-ms",
    "advanced_ms",
    type=int,
    metavar="MS",
    default=0,
    hidden=True,
    help="Let the wall clock be ahead of the machine's by this time.",
)
def broker(
    config: str, log_format: str, parent: int | None, disk_faults: str | None, advanced_ms: int
) -> None:
    """Run one broker until SIGTERM or Ctrl-C, which cause a controlled shutdown.

    Exit code: 0 after a clean stop; 1 after a failure that may pass; 2 if the configuration or the data are wrong, so
    that a restart does not help; 130 if a second signal ended the shutdown.
    """
    import_at_once()
    with no_certificates(), no_client_of_aiokafka(), no_collections():
        # The import belongs here: see these functions.
        from minikafka.tools.cli.foreground.broker_process import run_broker

    run_broker(config, log_format, parent, disk_faults, advanced_ms)


@contextmanager
def no_collections() -> Iterator[None]:
    """Collect no garbage meanwhile: that would take a seventh of the time of the imports, and find nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def no_client_of_aiokafka() -> Iterator[None]:
    """Let `import aiokafka.…` import only the named module of aiokafka, without its client.

    A broker uses aiokafka's compiled reader of record batches. The client would take a tenth of the start, and 2 MB.
    """
    package = ModuleType("aiokafka")
    found = find_spec("aiokafka")
    package.__path__ = list(found.submodule_search_locations or ()) if found else []
    sys.modules.setdefault("aiokafka", package)
    try:
        yield
    finally:
        if sys.modules["aiokafka"] is package:
            del sys.modules["aiokafka"]


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
