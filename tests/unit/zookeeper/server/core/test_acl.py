"""Access control lists: which lists a server accepts, and whom they let in."""

from __future__ import annotations

import pytest

from minikafka.zookeeper.messages.codes import INVALID_ACL, NO_AUTH, Refused
from minikafka.zookeeper.messages.jute import ANYONE, Acl, Identity
from minikafka.zookeeper.server.core.acl import (
    ADMIN,
    ALL,
    READ,
    READABLE,
    WRITE,
    check_permission,
    digest_identity,
    hidden,
    is_permitted,
    resolved,
)

BOB = digest_identity(b"bob:secret")
ADDRESS: Identity = ("ip", "10.1.2.3")


def test_digest_of_a_password_is_apaches() -> None:
    """The value is in ZooKeeper's documentation of the super user."""
    assert digest_identity(b"super:admin") == ("digest", "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=")


def test_credentials_that_are_not_text_are_replaced() -> None:
    assert digest_identity(b"a\xff:b") == digest_identity("a\ufffd:b".encode())


def test_list_that_lets_everyone_do_everything_becomes_one_object() -> None:
    assert resolved(((ALL, "world", "anyone"),) * 2, ()) is ANYONE


def test_repeated_entries_are_stored_once() -> None:
    twice = ((READ, "world", "anyone"), (READ, "world", "anyone"), (WRITE, "ip", "1.2.3.4"))
    assert resolved(twice, ()) == (READABLE[0], (WRITE, "ip", "1.2.3.4"))


def test_auth_stands_for_all_digests_of_the_connection() -> None:
    eve = digest_identity(b"eve:secret")
    found = resolved(((READ, "auth", "ignored"),), [ADDRESS, BOB, eve])
    assert found == ((READ, *BOB), (READ, *eve))


@pytest.mark.parametrize(
    "acl",
    [
        None,
        (),
        ((ALL, "auth", ""),),
        ((ALL, "world", "someone"),),
        ((ALL, "digest", "bob"),),
        ((ALL, "digest", "bob:"),),
        ((ALL, "digest", "a:b:c"),),
        ((ALL, "ip", "localhost"),),
        ((ALL, "ip", "10.0.0.0/33"),),
        ((ALL, "ip", "10.0.0.256"),),
        ((ALL, "unknown", "x"),),
        ((ALL, "world", "anyone"), (ALL, "", "")),
    ],
)
def test_invalid_list_is_refused(acl: Acl | None) -> None:
    with pytest.raises(Refused) as refused:
        resolved(acl, [ADDRESS])
    assert refused.value.code == INVALID_ACL


@pytest.mark.parametrize(
    ("name", "is_let_in"),
    [
        ("10.1.2.3", True),
        ("10.1.2.4", False),
        ("10.0.0.0/8", True),
        ("10.9.9.9/8", True),
        ("11.0.0.0/8", False),
        ("0.0.0.0/0", True),
        ("::1", False),
    ],
)
def test_entry_for_an_address_or_a_range_of_addresses(name: str, is_let_in: bool) -> None:
    assert is_permitted(((READ, "ip", name),), READ, [BOB, ADDRESS]) is is_let_in


def test_permission_must_be_in_an_entry_of_the_identity() -> None:
    acl: Acl = ((READ, "world", "anyone"), (WRITE, *BOB))
    check_permission(acl, READ, [])
    check_permission(acl, WRITE, [BOB])
    check_permission(acl, READ | ADMIN, [])
    check_permission(ANYONE, ADMIN, [])
    with pytest.raises(Refused) as refused:
        check_permission(acl, WRITE, [ADDRESS])
    assert refused.value.code == NO_AUTH


def test_digests_are_shown_to_administrators_alone() -> None:
    acl: Acl = ((READ, "world", "anyone"), (ADMIN, *BOB))
    assert hidden(acl, [BOB]) == acl
    assert hidden(acl, [ADDRESS]) == ((READ, "world", "anyone"), (ADMIN, "digest", "bob:x"))
