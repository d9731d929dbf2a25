"""Tokens of OAUTHBEARER.

`kafka_jwt_answers.jsonl`: a time and a key set; then audiences, issuer, skew, claim of the user, token, and the answer
of ValidatorAccessTokenValidator of Kafka 3.9.1 (lifetime and user, or null).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from minikafka.security.oauth import InvalidKeys, KeySet, TokenRules, UnknownSigner, verify
from minikafka.security.sasl import RefusedToken

FACTS = (Path(__file__).parent / "kafka_jwt_answers.jsonl").read_text().splitlines()
NOW_S = 1_700_000_000
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
CLAIMS = {"sub": "alice", "exp": NOW_S + 60, "iat": NOW_S}


def public(algorithm: Any, key: Any, **fields: str) -> dict[str, Any]:
    return {**json.loads(algorithm.to_jwk(key.public_key())), **fields}


KEYS = [
    public(RSAAlgorithm, RSA_KEY, kid="rsa"),
    public(ECAlgorithm, EC_KEY, kid="ec", use="sig"),
    public(OKPAlgorithm, ED_KEY, kid="ed"),
]
KEY_SET = KeySet(json.dumps({"keys": KEYS}))


def token(
    claims: Any = CLAIMS, key: Any = RSA_KEY, algorithm: str = "RS256", kid: Any = "rsa"
) -> str:
    headers = {} if kid is None else {"kid": kid}
    return jwt.PyJWS().encode(json.dumps(claims).encode(), key, algorithm, headers)


def refusal(text: str, rules: TokenRules = TokenRules(), now_s: int = NOW_S) -> str:  # noqa: B008
    with pytest.raises(RefusedToken) as refused:
        verify(text, KEY_SET, rules, now_s * 1_000)
    assert refused.value.status == "invalid_token"
    return str(refused.value)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (RSA_KEY, "RS256", "rsa"),
        (RSA_KEY, "PS512", "rsa"),
        (EC_KEY, "ES256", "ec"),
        (ED_KEY, "EdDSA", "ed"),
        (EC_KEY, "ES256", None),
    ],
    ids=["rsa", "pss", "ec", "ed25519", "without-id"],
)
def test_signed_token_gives_its_user_and_the_time_of_its_end(key, algorithm, kid):
    verified = verify(
        token(key=key, algorithm=algorithm, kid=kid), KEY_SET, TokenRules(), NOW_S * 1_000
    )

    assert verified == ("alice", (NOW_S + 60) * 1_000)


def test_tokens_are_accepted_and_refused_as_kafka_does():
    first, *cases = map(json.loads, FACTS)
    keys = KeySet(json.dumps(first["keys"]))
    for audiences, issuer, skew, claim, text, expected in cases:
        rules = TokenRules(frozenset(audiences), issuer, skew, user_claim=claim)
        try:
            user, expires_ms = verify(text, keys, rules, first["now_ms"])
            answer = f"{expires_ms} {user}"
        except RefusedToken:
            answer = None
        assert answer == expected, (audiences, issuer, skew, claim, text)


def test_token_expires_when_its_time_and_the_skew_have_passed():
    verify(token(), KEY_SET, TokenRules(skew_s=30), (NOW_S + 89) * 1_000 + 999)

    assert "expired" in refusal(token(), TokenRules(skew_s=30), NOW_S + 90)


def test_signature_of_another_key_is_refused():
    other = rsa.generate_private_key(65537, 2048)
    assert "signature is wrong" in refusal(token(key=other))


def test_changed_claims_are_refused():
    header, _, signature = token().split(".")
    _, claims, _ = token({**CLAIMS, "sub": "admin"}).split(".")

    assert "signature is wrong" in refusal(f"{header}.{claims}.{signature}")


def test_token_without_a_signature_is_refused():
    assert "public-key algorithm" in refusal(token(key=None, algorithm="none"))


def test_token_that_is_signed_with_a_public_key_as_a_shared_secret_is_refused():
    secret = KEYS[0]["n"].encode()

    assert "public-key algorithm" in refusal(token(key=secret, algorithm="HS256"))


def test_key_is_not_used_with_the_algorithm_of_another_type_of_key():
    with pytest.raises(UnknownSigner):
        verify(token(key=EC_KEY, algorithm="ES256"), KEY_SET, TokenRules(), NOW_S * 1_000)


def test_token_of_an_unknown_key_names_the_key():
    with pytest.raises(UnknownSigner) as unknown:
        verify(token(kid="new"), KEY_SET, TokenRules(), NOW_S * 1_000)

    assert unknown.value.key_id == "new"


@pytest.mark.parametrize("text", ["", "a.b.c", "a", "..", "e30.e30.", "\u00e9.x.y"])
def test_text_that_is_no_token_is_refused_without_repeating_it(text):
    assert "the token" in refusal(text)


@pytest.mark.parametrize("claims", [[], "x", 5, None])
def test_token_whose_content_is_no_object_is_refused(claims):
    assert "no claims" in refusal(token(claims))


@pytest.mark.parametrize("name", ["exp", "iat", "sub"])
def test_token_without_a_needed_claim_is_refused(name):
    claims = {key: value for key, value in CLAIMS.items() if key != name}

    assert repr(name) in refusal(token(claims))


def test_token_is_refused_for_another_audience_and_for_an_unexpected_one():
    expected = TokenRules(frozenset({"kafka"}))

    verify(token({**CLAIMS, "aud": ["web", "kafka"]}), KEY_SET, expected, NOW_S * 1_000)
    assert "another audience" in refusal(token({**CLAIMS, "aud": "web"}), expected)
    assert "no audience" in refusal(token(), expected)
    assert "another audience" in refusal(token({**CLAIMS, "aud": "kafka"}))


def test_user_may_be_in_another_claim():
    rules = TokenRules(user_claim="client_id")
    text = token({**CLAIMS, "client_id": " bob "})

    assert verify(text, KEY_SET, rules, NOW_S * 1_000).user == "bob"


def test_key_for_encryption_and_shared_secret_check_no_signature():
    others = [
        public(RSAAlgorithm, RSA_KEY, kid="rsa", use="enc"),
        {"kty": "oct", "kid": "x", "k": "c2VjcmV0"},
        {"kty": "RSA", "kid": "broken", "n": "AQ"},
    ]

    with pytest.raises(InvalidKeys, match="has no RSA, EC or OKP key"):
        KeySet(json.dumps({"keys": others}))


def test_key_is_used_only_with_its_own_algorithm():
    keys = KeySet(json.dumps({"keys": [public(RSAAlgorithm, RSA_KEY, kid="rsa", alg="RS512")]}))

    with pytest.raises(UnknownSigner):
        verify(token(), keys, TokenRules(), NOW_S * 1_000)
    verify(token(algorithm="RS512"), keys, TokenRules(), NOW_S * 1_000)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"keys": {}}', '{"keys": [5]}', "{"])
def test_text_that_is_no_key_set_is_refused(text):
    with pytest.raises(InvalidKeys, match="JSON Web Key Set"):
        KeySet(text)
