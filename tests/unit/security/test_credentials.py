from __future__ import annotations

import pytest

from minikafka.security import scram
from minikafka.security.credentials import KnownCredentials

SHA_256, SHA_512 = scram.MECHANISMS


def text(mechanism: scram.ScramMechanism, iterations: int = 4096) -> str:
    return scram.encode_credential(scram.new_credential(mechanism, "pencil", iterations, b"salt"))


def test_credential_of_a_user_is_found_by_its_mechanism():
    known = KnownCredentials(b"secret")

    assert known.load("alice", {SHA_256.name: text(SHA_256), "producer_byte_rate": "1"}) == []

    assert known.find(SHA_256.name, "alice") == scram.decode_credential(SHA_256, text(SHA_256))
    assert known.find(SHA_512.name, "alice") is None
    assert known.find(SHA_256.name, "Alice") is None


def test_credential_that_is_gone_from_the_settings_is_forgotten():
    known = KnownCredentials(b"secret")
    known.load("alice", {mechanism.name: text(mechanism) for mechanism in scram.MECHANISMS})

    known.load("alice", {SHA_512.name: text(SHA_512)})

    assert known.find(SHA_256.name, "alice") is None
    assert known.find(SHA_512.name, "alice") is not None


def test_malformed_credential_is_reported_and_replaces_the_former_one():
    known = KnownCredentials(b"secret")
    known.load("alice", {SHA_256.name: text(SHA_256)})

    assert known.load("alice", {SHA_256.name: "salt=AA==,iterations=4096"}) == [SHA_256.name]

    assert known.find(SHA_256.name, "alice") is None


def test_decoy_has_the_iterations_of_some_user_and_never_changes_while_these_remain():
    known = KnownCredentials(b"secret")
    for number in range(20):
        known.load(f"user-{number}", {SHA_256.name: text(SHA_256, 4096 if number % 2 else 8192)})
    names = [f"nobody-{number}" for number in range(50)]

    before = [known.decoy(SHA_256.name, name) for name in names]
    for number in range(2, 20):
        known.load(f"user-{number}", {})
    after = [known.decoy(SHA_256.name, name) for name in names]

    assert {decoy.iterations for decoy in before} == {4096, 8192}
    assert before == after


def test_decoy_has_kafkas_lowest_iterations_without_users():
    known = KnownCredentials(b"secret")
    known.load("alice", {SHA_256.name: text(SHA_256, 8192)})
    known.load("alice", {})

    assert known.decoy(SHA_256.name, "alice").iterations == 4096


@pytest.mark.parametrize("mechanism", scram.MECHANISMS)
def test_brokers_with_the_same_secret_give_the_same_decoys(mechanism):
    decoys = [
        KnownCredentials(secret).decoy(mechanism.name, "nobody") for secret in (b"a", b"a", b"b")
    ]

    assert decoys[0] == decoys[1]
    assert decoys[0].salt != decoys[2].salt
