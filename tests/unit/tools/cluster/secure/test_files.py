"""The authority, the certificate and the users in the data directory of a secure cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificates

from minikafka.base.config import BrokerConfig
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster import ClusterError
from minikafka.tools.cluster.directory import ClusterDirectory
from minikafka.tools.cluster.launch.tls_check import check_tls
from minikafka.tools.cluster.secure.authority import Authority, expiry
from minikafka.tools.cluster.secure.files import ADMIN, BROKER, FIRST_USER, SecurityFiles

NOW = datetime.now(UTC)


class Days(SystemClock):
    """A clock that is ahead by a number of days."""

    def __init__(self, days: float = 0) -> None:
        super().__init__()
        self.days = days

    def wall_ms(self) -> int:
        return super().wall_ms() + round(self.days * 86_400_000)


@pytest.fixture
def files(tmp_path: Path) -> SecurityFiles:
    made = SecurityFiles(ClusterDirectory(tmp_path))
    made.prepare(Days(), SystemRng())
    return made


def contents(files: SecurityFiles) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in files.authority.parent.iterdir()}


def start(files: SecurityFiles, days: float) -> set[str]:
    """Prepare the files again after so many days; return the names of those that have changed."""
    before = contents(files)
    files.prepare(Days(days), SystemRng())
    after = contents(files)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def check(files: SecurityFiles) -> None:
    """Let brokers with these files shake hands."""
    listeners = "SASL_SSL://127.0.0.1:1,CONTROLLER://127.0.0.1:2"
    keys = {"broker.id": 1, "listeners": listeners, **files.broker_keys()}
    check_tls([BrokerConfig.from_mapping(keys)])


def test_brokers_accept_the_certificate_by_each_name(files: SecurityFiles) -> None:
    check(files)
    pem = (files.authority.parent / "broker.pem").read_bytes()
    certificate = load_pem_x509_certificates(pem)[0].public_bytes(Encoding.DER)
    assert b"localhost" in certificate
    assert bytes([127, 0, 0, 1]) in certificate


def test_a_later_start_changes_nothing(files: SecurityFiles) -> None:
    assert start(files, 1) == set()
    assert start(files, 330) == set()


@pytest.mark.parametrize("days", [336, 400])
def test_certificate_is_replaced_when_it_expires_soon_or_has_expired(
    files: SecurityFiles, days: int
) -> None:
    assert start(files, days) == {"broker.pem"}
    new = expiry((files.authority.parent / "broker.pem").read_bytes())
    assert new > NOW + timedelta(days=days + 364)
    assert start(files, days) == set()


def test_key_of_the_authority_may_be_kept_elsewhere_until_the_certificate_expires(
    files: SecurityFiles,
) -> None:
    (files.authority.parent / "ca.key").unlink()
    assert start(files, 350) == set()
    with pytest.raises(ClusterError, match=r"ca\.key cannot be used: No such file.*; restore it"):
        start(files, 366)


def test_authority_that_expires_soon_does_not_stop_a_start(files: SecurityFiles) -> None:
    start(files, 3_640)
    assert start(files, 3_645) == set()
    with pytest.raises(ClusterError, match=r"ca\.key cannot be used: its certificate expired on "):
        start(files, 3_651)


@pytest.mark.parametrize("name", ["ca.pem", "broker.properties"])
def test_damaged_file_is_named_with_the_fix(files: SecurityFiles, name: str) -> None:
    (files.authority.parent / name).write_text("no such thing")
    with pytest.raises(ClusterError, match=f"{name} cannot be used: .*restore it from a copy"):
        files.check()


def test_authority_whose_key_does_not_fit_is_refused(files: SecurityFiles) -> None:
    (files.authority.parent / "ca.key").write_text(Authority.new("other", NOW).key_pem)
    with pytest.raises(ClusterError, match=r"ca\.key cannot be used: the private key does not"):
        start(files, 400)


def test_lost_directory_is_an_error_and_not_made_again(files: SecurityFiles) -> None:
    files.properties(BROKER).unlink()
    with pytest.raises(ClusterError, match=r"broker\.properties is missing: restore"):
        files.check()


def test_each_user_has_a_password_of_its_own(files: SecurityFiles) -> None:
    logins = [files.login(user) for user in (ADMIN, BROKER, FIRST_USER)]
    assert [login.user for login in logins] == ["admin", "broker", "alice"]
    assert len({login.password for login in logins}) == 3
    assert not [login for login in logins if login.password in repr(login)]


def test_files_of_users_name_the_authority_after_the_directory_was_moved(
    files: SecurityFiles, tmp_path: Path
) -> None:
    before = files.login(ADMIN)
    directory = tmp_path / "moved"
    directory.mkdir()
    files.authority.parent.rename(directory / "security")
    moved = SecurityFiles(ClusterDirectory(directory))
    changed = {"admin.properties", "alice.properties", "broker.properties"}
    assert start(moved, 1) == changed | {"zookeeper.cfg"}
    assert f"={moved.authority}\n" in moved.properties(ADMIN).read_text()
    assert moved.login(ADMIN) == before


def test_user_that_was_removed_does_not_come_back(files: SecurityFiles) -> None:
    files.properties(FIRST_USER).unlink()
    assert start(files, 1) == set()
    with pytest.raises(
        ClusterError, match=r"no alice\.properties in .*: the users there are admin"
    ):
        files.login(FIRST_USER)
