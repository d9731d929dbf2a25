"""The `broker` command before the broker's modules are imported."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys

import pytest

from minikafka.tools.cli.foreground.broker import CERTIFICATES, no_certificates


def test_openssl_finds_no_certificates_until_the_import_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, directory = CERTIFICATES
    monkeypatch.setenv(file, "/given")
    monkeypatch.delenv(directory, raising=False)
    with no_certificates():
        assert ssl.create_default_context().get_ca_certs() == []
        assert os.environ[file] == os.environ[directory] == os.devnull
    assert os.environ[file] == "/given"
    assert directory not in os.environ


def test_broker_imports_neither_the_client_of_aiokafka_nor_the_modes() -> None:
    program = (
        "import sys; from minikafka.tools.cli.foreground.broker import no_client_of_aiokafka as only_reader\n"
        "with only_reader(): import minikafka.tools.cli.foreground.broker_process as process\n"
        "print(process.BrokerServer.__name__, *sys.modules)\n"
        "import aiokafka; print(aiokafka.AIOKafkaConsumer)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = done.stdout.split("\n")[0].split()
    assert "aiokafka.record.default_records" in imported
    heavy = (
        "aiokafka.client",
        "minikafka.broker.modes.leaders",
        "minikafka.broker.modes.controller",
    )
    assert not set(heavy) & set(imported)
    assert "AIOKafkaConsumer" in done.stdout.split("\n")[1]


def test_broker_that_was_started_without_faults_does_not_load_them() -> None:
    program = "import sys, minikafka.tools.cli.foreground.broker_process; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = done.stdout.split()
    assert "minikafka.runtime.storage" in imported
    assert "minikafka.runtime.disk_faults" not in imported
