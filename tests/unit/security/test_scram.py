from __future__ import annotations

import re
from base64 import b64decode

import pytest

from minikafka.security import scram
from minikafka.security.scram import BY_NAME, InvalidScram

SHA_256 = BY_NAME["SCRAM-SHA-256"]
SHA_512 = BY_NAME["SCRAM-SHA-512"]
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
"""The example of RFC 7677, with the password `pencil`."""


def signed() -> bytes:
    final = scram.read_client_final(FINAL)
    return scram.signed_text(scram.read_client_first(FIRST), CHALLENGE.decode(), final.unproven)


def test_server_accepts_the_proof_of_the_example_of_rfc_7677():
    credential = scram.new_credential(SHA_256, "pencil", 4096, SALT)
    proof = scram.read_client_final(FINAL).proof

    assert scram.is_proven(SHA_256, credential, signed(), proof)
    signature = scram.server_signature(SHA_256, credential.server_key, signed())
    assert scram.server_final(signature) == VERDICT


def test_client_makes_the_proof_of_the_example_of_rfc_7677():
    challenge = scram.read_server_first(CHALLENGE)
    salted = scram.salted_password(SHA_256, "pencil", challenge.salt, challenge.iterations)
    unproven = scram.unproven("n,,", challenge.nonce)

    assert (challenge.salt, challenge.iterations) == (SALT, 4096)
    proof = scram.client_proof(SHA_256, salted, signed())
    assert scram.client_final(unproven, proof) == FINAL
    signature = scram.read_server_final(VERDICT)
    assert scram.is_signed_by_server(SHA_256, salted, signed(), signature)


def test_server_refuses_a_proof_with_any_changed_bit():
    credential = scram.new_credential(SHA_256, "pencil", 4096, SALT)
    proof = scram.read_client_final(FINAL).proof

    for bit in range(len(proof) * 8):
        changed = bytearray(proof)
        changed[bit // 8] ^= 1 << bit % 8
        assert not scram.is_proven(SHA_256, credential, signed(), bytes(changed))


@pytest.mark.parametrize("proof", [b"", b"short", bytes(31), bytes(33), bytes(64)])
def test_server_refuses_a_proof_of_another_size(proof):
    credential = scram.new_credential(SHA_256, "pencil", 4096, SALT)

    assert not scram.is_proven(SHA_256, credential, signed(), proof)


@pytest.mark.parametrize(
    ("message", "user", "authorization_id", "extensions"),
    [
        (b"n,,n=user,r=abc", "user", "", {}),
        (b"n,a=boss,n=user,r=abc", "user", "boss", {}),
        (b"n,,n=a=2Cb=3Dc,r=abc", "a,b=c", "", {}),
        (b"n,,n==3D2C,r=abc", "=2C", "", {}),
        (b"n,,n=t,r=abc,tokenauth=true,x=y=z", "t", "", {"tokenauth": "true", "x": "y=z"}),
    ],
)
def test_first_message_of_a_client_is_read(message, user, authorization_id, extensions):
    first = scram.read_client_first(message)

    assert (first.user, first.authorization_id, first.extensions) == (
        user,
        authorization_id,
        extensions,
    )
    assert (first.header + first.bare).encode() == message


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=abc,",
        b"n,,n=user,r=abc\n",
        b"n,,n=\xff,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,,n=user,r=abc,1=2",
    ],
)
def test_malformed_first_message_of_a_client_is_refused_without_repeating_it(message):
    with pytest.raises(InvalidScram, match=r"^malformed SCRAM client first message$"):
        scram.read_client_first(message)


@pytest.mark.parametrize(
    "message",
    [b"", b"c=biws,r=abc", b"c=biws,p=AAAA", b"c=biws,r=abc,p=A", b"c=b,r=abc,p=AAAA"],
)
def test_malformed_final_message_of_a_client_is_refused(message):
    with pytest.raises(InvalidScram, match="client final"):
        scram.read_client_final(message)


@pytest.mark.parametrize("message", [b"", b"e=other-error", b"v=A", b"v=AAAA,"])
def test_error_or_malformed_final_message_of_a_server_is_refused(message):
    with pytest.raises(InvalidScram):
        scram.read_server_final(message)


@pytest.mark.parametrize("mechanism", scram.MECHANISMS)
def test_credential_survives_its_text(mechanism):
    credential = scram.new_credential(mechanism, "pencil", 5000, b"salt")

    assert scram.decode_credential(mechanism, scram.encode_credential(credential)) == credential


def test_credential_is_written_with_the_names_of_kafka():
    text = scram.encode_credential(scram.new_credential(SHA_512, "pencil", 8192, b"salt"))

    pattern = "salt=c2FsdA==,stored_key=[^,]{88},server_key=[^,]{88},iterations=8192"
    assert re.fullmatch(pattern, text)


GOOD = scram.encode_credential(scram.new_credential(SHA_256, "pencil", 4096, SALT))


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD.replace("salt=", "pepper="),
        GOOD + ",more=x",
        GOOD.replace("iterations=4096", "iterations=many"),
        GOOD.replace("iterations=4096", "iterations=0"),
        GOOD.replace("stored_key=", "stored_key=!"),
        GOOD.replace("stored_key=", "stored_key=AAAA"),
        scram.encode_credential(scram.new_credential(SHA_512, "pencil", 4096, SALT)),
    ],
)
def test_malformed_credential_is_refused_without_repeating_it(text):
    with pytest.raises(InvalidScram) as refused:
        scram.decode_credential(SHA_256, text)

    assert "=" not in str(refused.value)


def test_decoy_is_the_same_for_a_user_and_differs_between_users_and_secrets():
    decoys = [
        scram.decoy(SHA_256, secret, user, 4096)
        for secret, user in [(b"s", "a"), (b"s", "a"), (b"s", "b"), (b"t", "a")]
    ]

    assert decoys[0] == decoys[1]
    assert len({decoy.salt for decoy in decoys}) == 3


def test_decoy_has_the_sizes_of_a_real_credential():
    decoy = scram.decoy(SHA_512, b"s", "a", 8192)
    real = scram.new_credential(
        SHA_512, "x", 8192, scram.random_text(bytes(range(200, 217))).encode()
    )

    assert [len(decoy.salt), len(decoy.stored_key), len(decoy.server_key), decoy.iterations] == [
        len(real.salt),
        len(real.stored_key),
        len(real.server_key),
        8192,
    ]


def test_repr_of_a_credential_has_no_keys():
    assert (
        repr(scram.new_credential(SHA_256, "x", 4096, SALT)) == "ScramCredential(iterations=4096)"
    )
