"""Authentication of control-plane calls: HMAC-SHA256 with the cluster's secret, and replay protection.

This module does no I/O; callers pass in the times. The signature covers the method, path, hash of the body,
cluster id, sender, target, wall time and nonce. So a server can refuse an unauthenticated call after reading
only the headers. Invariant of a `Verifier`: a call is accepted only by the broker that is its target, only if
its time is within `WINDOW_MS` of the server's time, and only once. A nonce is therefore remembered for twice
`WINDOW_MS`, the time in which the call could be accepted again.
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
"""Maximum number of remembered nonces. Further calls are refused. A few calls per second are usual."""
_NONCE: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})")
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")


class Sealed(NamedTuple):
    """The verified headers of a call.

    `incarnation`: the process that sent the call. `sequence`: number of the call in that process.
    `body_hash`: hash that the body must have.
    """

    incarnation: str
    sequence: int
    body_hash: str


def body_hash(body: bytes) -> str:
    """Return the SHA-256 of a body in hex, the value of the header `BODY_HASH`."""
    return hashlib.sha256(body).hexdigest()


class Signer:
    """The signer of one process's calls."""

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
        """Return the signed headers of one call to the broker `target_id`. Each result has a new nonce."""
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
        """Return the verified headers of a call, or the reason for a refusal (for the server's log only)."""
        expected = _signature(self._secret, method, path, headers)
        given = headers.get(SIGNATURE, "")
        if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogateescape")):
            return "the signature is missing or wrong"
        # The signature is right: a holder of the secret wrote these headers.
        nonce = _NONCE.fullmatch(headers[NONCE])
        if nonce is None or not _INTEGER.fullmatch(headers[TIME]):
            return "its time or nonce is malformed"
        if headers[CLUSTER] != self._cluster_id:
            return "the call is for another cluster"
        if headers[TARGET] != self._own_id:
            return f"the call is for broker {headers[TARGET]}"
        if abs(wall_ms - int(headers[TIME])) > WINDOW_MS:
            return f"the sender's clock differs by more than {WINDOW_MS} ms"
        if not self._remember(headers[NONCE], now):
            return f"it is a replay, or over {NONCES_MAX} calls came within {2 * WINDOW_MS} ms"
        return Sealed(nonce[1], int(nonce[2]), headers[BODY_HASH])

    def _remember(self, nonce: str, now: int) -> bool:
        """Remember a nonce for twice `WINDOW_MS`.

        Return False for a replay (the nonce is known), or if `NONCES_MAX` nonces are remembered.
        """
        while self._expiries and self._expiries[0][0] < now:
            self._seen.discard(self._expiries.popleft()[1])
        if nonce in self._seen or len(self._seen) >= NONCES_MAX:
            return False
        self._seen.add(nonce)
        self._expiries.append((now + 2 * WINDOW_MS, nonce))
        return True


def _signature(secret: bytes, method: str, path: str, headers: Mapping[str, str]) -> str:
    """Return the HMAC, in hex, of the method, the path and the signed headers, one per line.

    The lines are unambiguous because header values cannot contain a line feed.
    """
    signed = (CLUSTER, SENDER, TARGET, TIME, NONCE, BODY_HASH)
    text = "\n".join((method, path, *(headers.get(name, "") for name in signed)))
    return hmac.new(secret, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()
