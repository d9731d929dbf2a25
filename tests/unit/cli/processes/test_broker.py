"""The `broker` command before the broker's modules are imported."""

from __future__ import annotations

import os
import ssl

import pytest

from minikafka.cli.processes.broker import CERTIFICATES, no_certificates


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
