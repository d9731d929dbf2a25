"""Keys of TLS with which brokers could not start, or not connect to each other, are refused before a start."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.security.certificates import Authority, Certificate

from minikafka.base.config import BrokerConfig
from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.errors import ConfigError
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.launch.tls_check import check_tls


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def config(own: Certificate, trusted: Authority, **keys: str) -> BrokerConfig:
    """Return the configuration of a broker whose inter-broker listener is encrypted."""
    names = {name.replace("_", "."): value for name, value in keys.items()}
    return BrokerConfig.from_mapping(
        {
            "broker.id": 1,
            "listeners": "SSL://127.0.0.1:1",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.location": str(own.pem),
            "ssl.truststore.location": str(trusted.pem),
            **names,
        }
    )


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_brokers_that_trust_each_other_may_start(
    authority: Authority, version: str, client_auth: str
) -> None:
    keys = {"ssl_client_auth": client_auth, "ssl_enabled_protocols": version}
    check_tls([config(authority.server("127.0.0.1"), authority, **keys)])


def test_certificate_that_is_for_another_host_is_refused(authority: Authority) -> None:
    own = authority.server("localhost")
    with pytest.raises(
        ConfigError, match=r"on the listener SSL: IP address mismatch.* 127\.0\.0\.1, "
    ):
        check_tls([config(own, authority)])
    check_tls([config(own, authority, ssl_endpoint_identification_algorithm="")])


def test_certificate_must_be_for_the_hosts_that_brokers_register(authority: Authority) -> None:
    keys = {"advertised_listeners": "SSL://localhost:1", "listeners": "SSL://127.0.0.1:1"}
    check_tls([config(authority.server("127.0.0.1", "localhost"), authority, **keys)])
    with pytest.raises(ConfigError, match="it must be for localhost, where they listen"):
        check_tls([config(authority.server("127.0.0.1"), authority, **keys)])


def test_certificate_that_has_expired_is_refused(authority: Authority) -> None:
    with pytest.raises(ConfigError, match="certificate has expired; replace the expired file"):
        check_tls([config(authority.expired_server("127.0.0.1"), authority)])


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_certificate_of_an_authority_that_is_not_trusted_is_refused(
    authority: Authority, tmp_path: Path, version: str
) -> None:
    foreign = Authority(tmp_path, "foreign")
    with pytest.raises(ConfigError, match=r"of an authority in ssl\.truststore\.location"):
        check_tls([config(foreign.server("127.0.0.1"), authority, ssl_enabled_protocols=version)])


def test_each_broker_is_checked_with_its_own_keys(authority: Authority) -> None:
    right, wrong = authority.server("127.0.0.1"), authority.server("localhost")
    with pytest.raises(ConfigError, match="IP address mismatch"):
        check_tls([config(right, authority), config(wrong, authority)])


def test_certificate_for_clients_alone_may_be_for_another_host(authority: Authority) -> None:
    keys = {"listeners": "SSL://127.0.0.1:1,PLAINTEXT://127.0.0.1:2"}
    plain = {**keys, "security_inter_broker_protocol": "PLAINTEXT"}
    check_tls([config(authority.server("localhost"), authority, **plain)])


async def test_start_with_a_wrong_certificate_writes_nothing(
    authority: Authority, tmp_path: Path
) -> None:
    found = config(authority.server("localhost"), authority)
    keys = {
        name: found.text(name) for name in found.given if name not in ("broker.id", "listeners")
    }
    data = tmp_path / "data"
    cluster = LocalCluster(1, data=data, config=ClusterConfig(broker=keys), listeners={"SSL": 0})
    with pytest.raises(ConfigError, match="IP address mismatch"):
        await cluster.start()
    assert not data.exists()
