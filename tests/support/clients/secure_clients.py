"""The clients of the matrix over TLS and SASL: those of `client_drivers.py`, and some that have only a few verbs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from support.clients.client_drivers import CLIENTS, DRIVERS, build, go_driver, java_driver

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class SecureClient(NamedTuple):
    """A client of the matrix. `build(folder)` returns the command of its driver program, or skips the test."""

    name: str
    version: str
    build: Callable[[Path], list[str]]
    mechanisms: tuple[str, ...] = MECHANISMS
    rights: tuple[str, ...] = ()
    """The facts that its verb `rights` prints; none if it has no such verb."""


def _java_4(folder: Path) -> list[str]:
    if shutil.which("mvn") is None:
        pytest.skip("mvn is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    pom = str(DRIVERS / "java" / "pom.xml")
    jars = folder / "jars"
    copy = ["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies"]
    build([*copy, f"-DoutputDirectory={jars}"], folder)
    return java_driver(folder, str(jars))


def _sarama(folder: Path) -> list[str]:
    return go_driver("sarama", folder)


def _tool(name: str) -> list[str]:
    return [sys.executable, str(DRIVERS / "command_line.py"), name]


def _kcat(_: Path) -> list[str]:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    return _tool("kcat")


def _kafka_tools(_: Path) -> list[str]:
    jars = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
    if not jars or not any(Path(jars).glob("kafka-tools-3*.jar")):
        pytest.skip("MINIKAFKA_KAFKA_JARS names no directory with the jars of Kafka's tools")
    return _tool("kafka-tools")


_ALL_RIGHTS: Final = ("acls", "deleted", "scram", "quota", "operations", "cluster")
_RIGHTS: Final = {
    "java": _ALL_RIGHTS,
    "franz-go": _ALL_RIGHTS,
    "kafkajs": ("acls", "deleted"),
}
_NO_BEARER: Final = MECHANISMS[:-1]
SECURE_CLIENTS: Final = (
    *(
        SecureClient(one.name, one.version, one.build, rights=_RIGHTS.get(one.name, ()))
        for one in CLIENTS
    ),
    SecureClient("java 4", "4.3.1", _java_4, rights=_ALL_RIGHTS),
    SecureClient("sarama", "1.50.3", _sarama),
    SecureClient("kcat", "1.7.1", _kcat, mechanisms=_NO_BEARER),
    SecureClient("kafka-tools", "3.9.1", _kafka_tools),
)
"""kcat takes a bearer token only from an address that issues tokens."""
