"""Authentication of control-plane calls: HMAC-SHA256 with the cluster's secret, and replay protection.

Pure: times are passed in. The signature covers method, path, hash of the body, cluster id, sender,
target, wall time and nonce, so a server can refuse an unauthenticated call from its headers alone,
before it reads a byte of the body. Invariant of a `Verifier`: a call is accepted only by the broker
that it was signed for, only while its time is within `WINDOW_MS` of the server's, and only once: its
nonce is remembered for as long as the call could be accepted, twice `WINDOW_MS`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

WINDOW_MS: Final = 60_000
"""Maximum difference between two brokers' clocks, and maximum age of a call when it is read."""
CLUSTER: Final = "X-Minikafka-Cluster"
SENDER: Final = "X-Minikafka-Sender"
TARGET: Final = "X-Minikafka-Target"
TIME: Final = "X-Minikafka-Time"
NONCE: Final = "X-Minikafka-Nonce"
BODY_HASH: Final = "X-Minikafka-Body"
SIGNATURE: Final = "X-Minikafka-Signature"
NONCES_MAX: Final = 200_000
"""Maximum number of remembered nonces; further calls are refused. A few calls per second are usual."""
_NONCE: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})")
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")


class Sealed(NamedTuple):
    """A verified call: the process (incarnation) that sent it, its sequence number there, and its
    body's hash.
    """

    incarnation: str
    sequence: int
    body_hash: str


def body_hash(body: bytes) -> str:
    """Return the SHA-256 of a body in hex, as used in the header."""
    return hashlib.sha256(body).hexdigest()


class Signer:
    """Signs the calls of one process; `sequence` counts them."""

    def __init__(self, secret: bytes, cluster_id: str, sender_id: int, incarnation: bytes) -> None:
        """`incarnation`: eight random bytes, new for every process."""
        assert secret, "a control plane without a secret would trust everybody"
        self._secret = secret
        self._cluster_id = cluster_id
        self._sender = str(sender_id)
        self._incarnation = incarnation.hex()
        self._sequence = 0

    def headers(
        self, target_id: int, method: str, path: str, body: bytes, wall_ms: int
    ) -> dict[str, str]:
        """Return the headers for one call to the broker `target_id`; never the same twice."""
        self._sequence += 1
        headers = {
            CLUSTER: self._cluster_id,
            SENDER: self._sender,
            TARGET: str(target_id),
            TIME: str(wall_ms),
            NONCE: f"{self._incarnation}-{self._sequence}",
            BODY_HASH: body_hash(body),
        }
        headers[SIGNATURE] = _signature(self._secret, method, path, headers)
        return headers


class Verifier:
    """Verifies the headers of incoming calls to the broker `own_id`."""

    def __init__(self, secret: bytes, cluster_id: str, own_id: int) -> None:
        assert secret, "a control plane without a secret would trust everybody"
        self._secret = secret
        self._cluster_id = cluster_id
        self._own_id = str(own_id)
        self._seen: set[str] = set()
        self._expiries: deque[tuple[int, str]] = deque()

    def verify(
        self, method: str, path: str, headers: Mapping[str, str], wall_ms: int, now: int
    ) -> Sealed | str:
        """Return the verified call, or the reason for refusing it (for the server's log only)."""
        expected = _signature(self._secret, method, path, headers)
        given = headers.get(SIGNATURE, "")
        if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogateescape")):
            return "the signature is missing or wrong"
        # The signature is right: a holder of the secret wrote these headers.
        nonce = _NONCE.fullmatch(headers[NONCE])
        if nonce is None or not _INTEGER.fullmatch(headers[TIME]):
            return "its time or nonce is malformed"
        if headers[CLUSTER] != self._cluster_id:
            return "it is meant for another cluster"
        if headers[TARGET] != self._own_id:
            return f"it is meant for broker {headers[TARGET]}"
        if abs(wall_ms - int(headers[TIME])) > WINDOW_MS:
            return f"its clock differs by more than {WINDOW_MS} ms"
        if not self._remember(headers[NONCE], now):
            return "it is a replay, or there are too many calls"
        return Sealed(nonce[1], int(nonce[2]), headers[BODY_HASH])

    def _remember(self, nonce: str, now: int) -> bool:
        """Remember a nonce for twice the window, the time during which it could be accepted."""
        while self._expiries and self._expiries[0][0] < now:
            self._seen.discard(self._expiries.popleft()[1])
        if nonce in self._seen or len(self._seen) >= NONCES_MAX:
            return False
        self._seen.add(nonce)
        self._expiries.append((now + 2 * WINDOW_MS, nonce))
        return True


def _signature(secret: bytes, method: str, path: str, headers: Mapping[str, str]) -> str:
    """Return the hex HMAC over the signed lines; header values cannot contain a line feed."""
    signed = (CLUSTER, SENDER, TARGET, TIME, NONCE, BODY_HASH)
    text = "\n".join((method, path, *(headers.get(name, "") for name in signed)))
    return hmac.new(secret, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()
