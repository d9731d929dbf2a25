"""What the next keys of a listener must have in common with the current ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.security.certificates import Authority, Certificate

from minikafka.base.config.security import SecurityKeys
from minikafka.base.errors import ConfigError
from minikafka.runtime.transport import SocketTransport


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("foreign"), "foreign")


def keys(own: Certificate, *trusted: Authority, **others: Any) -> SecurityKeys:
    trust = "".join(each.pem_text for each in trusted) or None
    return SecurityKeys(
        ssl_keystore_location=str(own.pem), ssl_truststore_certificates=trust, **others
    )


def refusal(
    current: SecurityKeys, following: SecurityKeys, *, server: bool = True, between: bool = False
) -> str:
    """Return why the keys that follow are refused, "" if they are not."""
    try:
        SocketTransport().tls(current, server=server, between=between).check(following)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.key("ssl.allow.dn.changes", "ssl.allow.san.changes")
@pytest.mark.parametrize("server", [True, False])
def test_new_certificate_keeps_its_names_unless_the_keys_say_otherwise(
    authority: Authority, server: bool
) -> None:
    current = keys(authority.server("a", "b"), authority)
    renewed, renamed = authority.server("b", "c", "a"), authority.server("a", "b", name="other")
    shrunk = authority.server("a", "c")
    reasons = {
        (renewed, False, False): "",
        (authority.server("a", "b", name="SERVER"), False, False): "",
        (renamed, False, True): "ssl.allow.dn.changes",
        (renamed, True, False): "",
        (
            shrunk,
            True,
            False,
        ): "alternative name b of the current one: keep it, or set ssl.allow.san",
        (shrunk, False, True): "",
    }
    for (own, dn, san), reason in reasons.items():
        following = keys(own, authority, ssl_allow_dn_changes=dn, ssl_allow_san_changes=san)
        found = refusal(current, following, server=server)
        assert (reason in found) if reason else not found


def test_brokers_with_old_and_new_keys_can_connect_to_each_other(
    authority: Authority, foreign: Authority
) -> None:
    own, others = authority.server(), foreign.server()
    only_own, both = keys(own, authority), keys(own, authority, foreign)
    for current, following in (
        (only_own, keys(others, foreign)),
        (only_own, keys(others, authority, foreign)),
        (both, keys(others, foreign)),
        (only_own, keys(own, foreign)),
    ):
        found = refusal(current, following, between=True)
        assert found.startswith("ssl.keystore: brokers with the current and with the new keys")
        assert "self-signed certificate" in found or "unable to get" in found
        assert refusal(current, following) == ""
    for current, following in (
        (only_own, both),
        (both, keys(others, authority, foreign)),
        (keys(others, authority, foreign), keys(others, foreign)),
    ):
        assert refusal(current, following, between=True) == ""


def test_certificate_of_a_client_counts_where_brokers_must_have_one(
    authority: Authority, foreign: Authority
) -> None:
    current = keys(authority.server(), authority, ssl_client_auth="required")
    following = keys(foreign.server(), authority, foreign, ssl_client_auth="required")
    assert "ssl.keystore" in refusal(current, following, between=True)


def test_truststore_is_not_added_to_a_listener_that_has_none(authority: Authority) -> None:
    own = authority.server()
    assert refusal(keys(own), keys(own, authority)).startswith("ssl.truststore: ")
    assert refusal(keys(own, authority), keys(own)) == ""


def test_replaced_file_that_may_not_take_the_place_of_the_old_one_is_not_used(
    authority: Authority, tmp_path: Path
) -> None:
    file = tmp_path / "own.pem"
    file.write_bytes(authority.server().pem.read_bytes())
    tls = SocketTransport().tls(SecurityKeys(ssl_keystore_location=str(file)), server=True)
    context, expiries = tls.context, tls.expiries
    file.write_bytes(authority.server(name="other").pem.read_bytes())
    with pytest.raises(ConfigError, match=r"ssl\.allow\.dn\.changes"):
        tls.refresh()
    assert not tls.refresh()
    assert (tls.context, tls.expiries) == (context, expiries)
    file.write_bytes(authority.server().pem.read_bytes())
    assert tls.refresh()
