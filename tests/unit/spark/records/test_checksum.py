"""CRC-32C checksums with each supported library, and reading without any such library."""

from __future__ import annotations

import builtins

import pytest

from minikafka.spark.records import checksum


@pytest.fixture
def without(monkeypatch):
    """Return a function that makes the import of the given packages fail."""

    def hide(*packages: str) -> None:
        real = builtins.__import__

        def guarded(name: str, *rest: object, **more: object) -> object:
            if name.split(".")[0] in packages:
                raise ImportError(name)
            return real(name, *rest, **more)

        monkeypatch.setattr(builtins, "__import__", guarded)

    checksum.find.cache_clear()
    yield hide
    checksum.find.cache_clear()


@pytest.mark.parametrize("missing", [[], ["fastcrc"]])
def test_checksum_uses_the_castagnoli_polynomial(without, missing):
    without(*missing)
    compute = checksum.find()
    assert compute is not None
    assert compute(memoryview(b"123456789")) == 0xE3069283


def test_missing_crc32c_libraries_are_logged_once_as_a_warning(without, caplog):
    without("fastcrc", "crc32c")
    assert checksum.find() is None
    assert checksum.find() is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
