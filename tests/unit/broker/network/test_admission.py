"""What a listener demands of its clients: the principal that their certificates give."""

from __future__ import annotations

import pytest
from support.security.certificates import Authority

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ConfigError
from minikafka.broker.clients.authentication import LoginRefused
from minikafka.broker.network.admission import Admission, admission_of
from minikafka.runtime.transport import SocketTransport


def admission(authority: Authority, rules: str) -> Admission:
    config = BrokerConfig.from_mapping(
        {
            "broker.id": 1,
            "listeners": "SSL://localhost:0",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.location": str(authority.server().pem),
            "ssl.truststore.location": str(authority.pem),
            "ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": rules,
        }
    )
    [endpoint] = config.endpoints.kafka
    found = admission_of(endpoint, config, SocketTransport(), bytes)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.mark.key("ssl.principal.mapping.rules")
@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "User:CN=Alice,OU=Data,O=Example"),
        ("RULE:^CN=(.*?),.*$/$1/L,DEFAULT", "User:alice"),
        ("RULE:^CN=(Bob),.*$/$1/,DEFAULT", "User:CN=Alice,OU=Data,O=Example"),
    ],
)
def test_name_of_a_certificate_is_mapped_by_the_rules(
    authority: Authority, rules: str, principal: str
) -> None:
    assert admission(authority, rules).principal_of(authority.client("Alice").der) == principal


def test_client_without_a_certificate_is_anonymous(authority: Authority) -> None:
    assert admission(authority, "DEFAULT").principal_of(None) == "User:ANONYMOUS"


def test_certificate_to_which_no_rule_applies_is_refused(authority: Authority) -> None:
    with pytest.raises(LoginRefused):
        admission(authority, "RULE:^CN=Bob$/Bob/").principal_of(authority.client("Alice").der)


def test_wrong_rule_stops_the_start_with_the_key(authority: Authority) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.principal\.mapping\.rules: "):
        admission(authority, "RULE:^CN=(/$1/")
