"""Signatures of control-plane calls: a valid call is accepted once, only by the process that issued its challenge."""

from __future__ import annotations

import pytest

from minikafka.broker.rpc import signatures
from minikafka.broker.rpc.signatures import CHALLENGE_MS, STALE, Sealed, Signer, Verifier, body_hash

NOW = 5_000
SECRET = b"a secret of the cluster"
OWN_ID = 7
KEY = b"a key of this process"


def signer(secret: bytes = SECRET, cluster: str = "c") -> Signer:
    return Signer(secret, cluster, 1, b"12345678")


def verifier(key: bytes = KEY, own_id: int = OWN_ID) -> Verifier:
    return Verifier(SECRET, "c", own_id, key)


def verify(server: Verifier, headers: dict[str, str], *, now: int = NOW) -> Sealed | str:
    return server.verify("POST", "/m", headers, now)


def signed(
    one: Signer | None = None, *, body: bytes = b"body", issued: int = NOW
) -> dict[str, str]:
    challenge = verifier().challenge(issued)
    return (one or signer()).headers(OWN_ID, "POST", "/m", body, challenge)


def test_verification_returns_the_senders_incarnation_call_number_and_body_hash() -> None:
    assert verify(verifier(), signed()) == Sealed(b"12345678".hex(), 1, body_hash(b"body"), "1")


def test_signed_calls_have_consecutive_numbers_from_1() -> None:
    server, one = verifier(), signer()
    numbers = []
    for _ in range(3):
        sealed = verify(server, signed(one))
        assert isinstance(sealed, Sealed)
        numbers.append(sealed.sequence)
    assert numbers == [1, 2, 3]


def test_call_with_another_secret_or_cluster_is_refused() -> None:
    for other in (signer(secret=b"wrong"), signer(cluster="other")):
        assert isinstance(verify(verifier(), signed(other)), str)


def test_call_meant_for_another_broker_is_refused() -> None:
    headers = signer().headers(OWN_ID + 1, "POST", "/m", b"", verifier().challenge(NOW))
    assert verify(verifier(), headers) == "the call is for broker 8"


@pytest.mark.parametrize("name", list(signed()))
def test_call_with_a_changed_or_missing_header_is_refused(name: str) -> None:
    server, headers = verifier(), signed()
    without = {key: value for key, value in headers.items() if key != name}
    assert isinstance(verify(server, without), str)
    assert isinstance(verify(server, headers | {name: headers[name] + "0"}), str)
    assert isinstance(verify(server, headers), Sealed)


def test_call_with_another_method_or_path_is_refused() -> None:
    server, headers = verifier(), signed()
    assert isinstance(server.verify("GET", "/m", headers, NOW), str)
    assert isinstance(server.verify("POST", "/other", headers, NOW), str)


def test_missing_headers_and_non_ascii_headers_are_refused() -> None:
    server = verifier()
    assert isinstance(verify(server, {}), str)
    assert isinstance(verify(server, signed() | {signatures.SIGNATURE: "\udcff\u00e9"}), str)
    assert isinstance(verify(server, signed() | {signatures.SENDER: "\udcff"}), str)


@pytest.mark.parametrize("challenge", ["", "x", "5000-", f"5000-{'0' * 64}", f"{NOW}-\udcff"])
def test_call_with_a_challenge_that_nobody_issued_is_refused(challenge: str) -> None:
    headers = signer().headers(OWN_ID, "POST", "/m", b"", challenge)
    assert verify(verifier(), headers) == STALE


def test_time_in_a_challenge_cannot_be_changed() -> None:
    issued = verifier().challenge(NOW)
    for other in (NOW + 1, NOW + CHALLENGE_MS):
        challenge = issued.replace(str(NOW), str(other))
        headers = signer().headers(OWN_ID, "POST", "/m", b"", challenge)
        assert verify(verifier(), headers, now=other) == STALE


def test_signed_call_is_refused_when_it_arrives_a_second_time() -> None:
    server, headers = verifier(), signed()
    assert isinstance(verify(server, headers), Sealed)
    assert isinstance(verify(server, headers), str)


def test_recorded_call_is_refused_by_the_restarted_process() -> None:
    headers = signed()
    assert isinstance(verify(verifier(), headers), Sealed)
    assert verify(verifier(key=b"a key of the next process"), headers) == STALE


def test_call_is_refused_when_its_challenge_is_too_old() -> None:
    assert isinstance(verify(verifier(), signed(), now=NOW + CHALLENGE_MS), Sealed)
    assert verify(verifier(), signed(), now=NOW + CHALLENGE_MS + 1) == STALE


def test_repeated_call_is_refused_as_long_as_its_challenge_is_valid() -> None:
    server, one = verifier(), signer()
    headers = signed(one)
    assert isinstance(verify(server, headers), Sealed)
    for now in range(NOW, NOW + CHALLENGE_MS + 2):
        if now % 500 < 2 or now > NOW + CHALLENGE_MS - 2:
            assert isinstance(verify(server, headers, now=now), str)
    late = signed(one, issued=NOW + CHALLENGE_MS)
    assert isinstance(verify(server, late, now=NOW + CHALLENGE_MS), Sealed)


def test_one_challenge_serves_several_calls_of_several_senders_in_any_order() -> None:
    server, challenge = verifier(), verifier().challenge(NOW)
    senders = signer(), Signer(SECRET, "c", 2, b"87654321")
    calls = [one.headers(OWN_ID, "POST", "/m", b"", challenge) for one in senders * 3]
    assert all(isinstance(verify(server, headers), Sealed) for headers in reversed(calls))


def test_challenge_is_valid_after_any_number_of_later_challenges() -> None:
    server, headers = verifier(), signed()
    size = len(vars(server))
    for n in range(10_000):
        server.challenge(NOW + n % 100)
    assert isinstance(verify(server, headers), Sealed)
    assert len(vars(server)) == size
    assert len(server._seen) == 1


def test_number_of_remembered_nonces_is_bounded_until_they_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signatures, "NONCES_MAX", 3)
    server, one = verifier(), signer()
    for _ in range(3):
        assert isinstance(verify(server, signed(one)), Sealed)
    assert isinstance(verify(server, signed(one)), str)
    later = NOW + CHALLENGE_MS + 1
    assert isinstance(verify(server, signed(one, issued=later), now=later), Sealed)


def answer(server: Verifier, status: int = 200, path: str = "/m", nonce: str = "n-1") -> str:
    return server.sign_answer(path, nonce, status, b"body")[signatures.SIGNATURE]


def test_answer_is_accepted_only_for_its_request_and_from_its_broker() -> None:
    given = answer(verifier())
    assert signer().is_answer(OWN_ID, "/m", "n-1", 200, b"body", given)
    assert not signer().is_answer(OWN_ID + 1, "/m", "n-1", 200, b"body", given)
    assert not signer().is_answer(OWN_ID, "/other", "n-1", 200, b"body", given)
    assert not signer().is_answer(OWN_ID, "/m", "n-2", 200, b"body", given)
    assert not signer().is_answer(OWN_ID, "/m", "n-1", 409, b"body", given)
    assert not signer().is_answer(OWN_ID, "/m", "n-1", 200, b"other", given)
    for other in (signer(secret=b"wrong"), signer(cluster="other")):
        assert not other.is_answer(OWN_ID, "/m", "n-1", 200, b"body", given)


def test_calls_and_answers_are_signed_with_different_keys() -> None:
    """Otherwise an answer could be replayed as a call: whoever asks for a challenge chooses a signed value."""
    keys = verifier()._keys
    assert keys._call != keys._answer
    assert SECRET not in (keys._call, keys._answer)
