"""Signatures of control-plane calls: a valid signature is accepted once, and only within a time window."""

from __future__ import annotations

import pytest

from minikafka.rpc import signatures
from minikafka.rpc.signatures import WINDOW_MS, Sealed, Signer, Verifier, body_hash

WALL = 1_800_000_000_000
SECRET = b"a secret of the cluster"
OWN_ID = 7


def signer(secret: bytes = SECRET, cluster: str = "c") -> Signer:
    return Signer(secret, cluster, 1, b"12345678")


def verify(verifier: Verifier, headers: dict[str, str], *, wall_ms: int = WALL) -> Sealed | str:
    return verifier.verify("POST", "/m", headers, wall_ms, now=wall_ms - WALL)


def signed(wall_ms: int = WALL) -> dict[str, str]:
    return signer().headers(OWN_ID, "POST", "/m", b"body", wall_ms)


def test_verification_returns_the_senders_incarnation_call_number_and_body_hash() -> None:
    sealed = verify(Verifier(SECRET, "c", OWN_ID), signed())
    assert sealed == Sealed(b"12345678".hex(), 1, body_hash(b"body"))


def test_signed_calls_have_consecutive_numbers_from_1() -> None:
    verifier, one = Verifier(SECRET, "c", OWN_ID), signer()
    numbers = []
    for _ in range(3):
        sealed = verify(verifier, one.headers(OWN_ID, "POST", "/m", b"", WALL))
        assert isinstance(sealed, Sealed)
        numbers.append(sealed.sequence)
    assert numbers == [1, 2, 3]


def test_call_with_another_secret_or_cluster_is_refused() -> None:
    for other in (signer(secret=b"wrong"), signer(cluster="other")):
        headers = other.headers(OWN_ID, "POST", "/m", b"", WALL)
        assert isinstance(verify(Verifier(SECRET, "c", OWN_ID), headers), str)


def test_call_meant_for_another_broker_is_refused() -> None:
    headers = signer().headers(OWN_ID + 1, "POST", "/m", b"", WALL)
    assert verify(Verifier(SECRET, "c", OWN_ID), headers) == "the call is for broker 8"


@pytest.mark.parametrize("name", list(signed()))
def test_call_with_a_changed_or_missing_header_is_refused(name: str) -> None:
    verifier = Verifier(SECRET, "c", OWN_ID)
    headers = signed()
    without = {key: value for key, value in headers.items() if key != name}
    assert isinstance(verify(verifier, without), str)
    assert isinstance(verify(verifier, headers | {name: headers[name] + "0"}), str)
    assert isinstance(verify(verifier, headers), Sealed)


def test_call_with_another_method_or_path_is_refused() -> None:
    verifier, headers = Verifier(SECRET, "c", OWN_ID), signed()
    assert isinstance(verifier.verify("GET", "/m", headers, WALL, 0), str)
    assert isinstance(verifier.verify("POST", "/other", headers, WALL, 0), str)


def test_missing_headers_and_non_ascii_headers_are_refused() -> None:
    verifier = Verifier(SECRET, "c", OWN_ID)
    assert isinstance(verify(verifier, {}), str)
    assert isinstance(verify(verifier, signed() | {signatures.SIGNATURE: "\udcff\u00e9"}), str)
    assert isinstance(verify(verifier, signed() | {signatures.SENDER: "\udcff"}), str)


def test_signed_call_is_refused_when_it_arrives_a_second_time() -> None:
    verifier, headers = Verifier(SECRET, "c", OWN_ID), signed()
    assert isinstance(verify(verifier, headers), Sealed)
    assert isinstance(verify(verifier, headers), str)


def test_call_is_accepted_only_within_the_time_window() -> None:
    for skew in (WINDOW_MS + 1, -WINDOW_MS - 1):
        assert isinstance(verify(Verifier(SECRET, "c", OWN_ID), signed(WALL + skew)), str)
    for skew in (WINDOW_MS, -WINDOW_MS):
        assert isinstance(verify(Verifier(SECRET, "c", OWN_ID), signed(WALL + skew)), Sealed)


def test_repeated_call_is_refused_as_long_as_its_time_is_inside_the_window() -> None:
    verifier = Verifier(SECRET, "c", OWN_ID)
    early = signed(WALL + WINDOW_MS)
    assert isinstance(verify(verifier, early), Sealed)
    for later in range(0, 2 * WINDOW_MS, WINDOW_MS // 4):
        assert isinstance(verify(verifier, early, wall_ms=WALL + later), str)
    assert isinstance(verify(verifier, early, wall_ms=WALL + 2 * WINDOW_MS), str)


def test_number_of_remembered_nonces_is_bounded_until_they_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signatures, "NONCES_MAX", 3)
    verifier, one = Verifier(SECRET, "c", OWN_ID), signer()
    for _ in range(3):
        assert isinstance(verify(verifier, one.headers(OWN_ID, "POST", "/m", b"", WALL)), Sealed)
    assert isinstance(verify(verifier, one.headers(OWN_ID, "POST", "/m", b"", WALL)), str)
    later = WALL + 2 * WINDOW_MS + 1
    headers = one.headers(OWN_ID, "POST", "/m", b"", later)
    assert isinstance(verify(verifier, headers, wall_ms=later), Sealed)
