"""Authentication of control-plane calls and their answers: HMAC-SHA256 with the cluster's secret, replay protection.

This module does no I/O and compares no clocks of different processes. Before its first call, a client asks the
server for a *challenge*: the server's own monotonic time, with a code that only this server process can compute.
The signature of a call covers the challenge, method, path, hash of the body, cluster id, sender, target and nonce.
So a server can refuse an unauthenticated call after reading only the headers.

Invariant of a `Verifier`: a call is accepted only by the process that issued its challenge, only within
`CHALLENGE_MS` of that process's time after the challenge was issued, and only once. A nonce is therefore
remembered for `CHALLENGE_MS`. A challenge itself takes no memory, so a flood of requests for challenges has no effect
on other clients.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

CHALLENGE_MS: Final = 60_000
"""Time for which a challenge can be used, and maximum age of a call when it is read."""
CLUSTER: Final = "X-Minikafka-Cluster"
SENDER: Final = "X-Minikafka-Sender"
TARGET: Final = "X-Minikafka-Target"
CHALLENGE: Final = "X-Minikafka-Challenge"
NONCE: Final = "X-Minikafka-Nonce"
BODY_HASH: Final = "X-Minikafka-Body"
SIGNATURE: Final = "X-Minikafka-Signature"
NONCES_MAX: Final = 200_000
"""Maximum number of remembered nonces. Further calls are refused. A few calls per second are usual."""
STALE: Final = "its challenge has expired or is from another process"
"""A reason for a refusal. The client asks for a new challenge and repeats the call."""
_NONCE: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})")
_CHALLENGE: Final = re.compile(r"([0-9]{1,18})-[0-9a-f]{64}")


class Sealed(NamedTuple):
    """The verified headers of a call.

    `sender`: id of the calling broker, "-1" for a tool.
    `incarnation`: the process that sent the call. `sequence`: number of the call in that process.
    `body_hash`: hash that the body must have.
    """

    incarnation: str
    sequence: int
    body_hash: str
    sender: str


def body_hash(body: bytes) -> str:
    """Return the SHA-256 of a body in hex, the value of the header `BODY_HASH`."""
    return hashlib.sha256(body).hexdigest()


class Signer:
    """The signer of one process's calls. It also verifies the answers."""

    def __init__(self, secret: bytes, cluster_id: str, sender_id: int, incarnation: bytes) -> None:
        """`incarnation`: eight random bytes, new for every process."""
        self._keys = _Keys(secret)
        self._cluster_id = cluster_id
        self._sender = str(sender_id)
        self._incarnation = incarnation.hex()
        self._sequence = 0

    def nonce(self) -> str:
        """Return a value that this method has never returned before, in any process."""
        self._sequence += 1
        return f"{self._incarnation}-{self._sequence}"

    def headers(
        self, target_id: int, method: str, path: str, body: bytes, challenge: str
    ) -> dict[str, str]:
        """Return the signed headers of one call to the broker `target_id`. Each result has a new nonce.

        `challenge`: a challenge that this broker has issued.
        """
        headers = {
            CLUSTER: self._cluster_id,
            SENDER: self._sender,
            TARGET: str(target_id),
            CHALLENGE: challenge,
            NONCE: self.nonce(),
            BODY_HASH: body_hash(body),
        }
        headers[SIGNATURE] = self._keys.of_call(method, path, headers)
        return headers

    def is_answer(
        self, target_id: int, path: str, nonce: str, status: int, body: bytes, signature: str
    ) -> bool:
        """Return True if the broker `target_id` signed this answer to the request with this path and nonce."""
        expected = self._keys.of_answer(self._cluster_id, target_id, path, nonce, status, body)
        return _are_equal(expected, signature)


class Verifier:
    """Verifies the headers of incoming calls to the broker `own_id`, and signs its answers."""

    def __init__(self, secret: bytes, cluster_id: str, own_id: int, key: bytes) -> None:
        """`key`: at least 16 random bytes, new for every process."""
        self._keys = _Keys(secret)
        self._cluster_id = cluster_id
        self._own_id = own_id
        self._key = key
        self._seen: set[str] = set()
        self._expiries: deque[tuple[int, str]] = deque()

    def challenge(self, now: int) -> str:
        """Return a challenge that is accepted for `CHALLENGE_MS`. `now`: this process's monotonic time."""
        return f"{now}-{_mac(self._key, str(now))}"

    def sign_answer(self, path: str, nonce: str, status: int, body: bytes) -> dict[str, str]:
        """Return the header that authenticates the answer to the request with this path and nonce."""
        signed = self._keys.of_answer(self._cluster_id, self._own_id, path, nonce, status, body)
        return {SIGNATURE: signed}

    def verify(self, method: str, path: str, headers: Mapping[str, str], now: int) -> Sealed | str:
        """Return the verified headers of a call, or the reason for a refusal (for the server's log only).

        `now`: this process's monotonic time.
        """
        expected = self._keys.of_call(method, path, headers)
        if not _are_equal(expected, headers.get(SIGNATURE, "")):
            return "the signature is missing or wrong"
        # The signature is right: a holder of the secret wrote these headers.
        nonce = _NONCE.fullmatch(headers[NONCE])
        if nonce is None:
            return "its nonce is malformed"
        if headers[CLUSTER] != self._cluster_id:
            return "the call is for another cluster"
        if headers[TARGET] != str(self._own_id):
            return f"the call is for broker {headers[TARGET]}"
        issued = self._when_issued(headers[CHALLENGE])
        if issued is None or now - issued > CHALLENGE_MS:
            return STALE
        if not self._remember(headers[NONCE], now):
            return f"it is a replay, or over {NONCES_MAX} calls came within {CHALLENGE_MS} ms"
        return Sealed(nonce[1], int(nonce[2]), headers[BODY_HASH], headers[SENDER])

    def _when_issued(self, challenge: str) -> int | None:
        """Return when this process issued the challenge; None if it did not."""
        parts = _CHALLENGE.fullmatch(challenge)
        if parts is None:
            return None
        issued = int(parts[1])
        return issued if _are_equal(self.challenge(issued), challenge) else None

    def _remember(self, nonce: str, now: int) -> bool:
        """Remember a nonce for `CHALLENGE_MS`.

        Return False for a replay (the nonce is known), or if `NONCES_MAX` nonces are remembered.
        """
        while self._expiries and self._expiries[0][0] < now:
            self._seen.discard(self._expiries.popleft()[1])
        if nonce in self._seen or len(self._seen) >= NONCES_MAX:
            return False
        self._seen.add(nonce)
        self._expiries.append((now + CHALLENGE_MS, nonce))
        return True


class _Keys:
    """Two keys derived from the cluster's secret, so that no answer is a valid call and no call a valid answer."""

    def __init__(self, secret: bytes) -> None:
        assert secret, "a control plane without a secret would trust everybody"
        self._call = _mac(secret, "call").encode()
        self._answer = _mac(secret, "answer").encode()

    def of_call(self, method: str, path: str, headers: Mapping[str, str]) -> str:
        """Return the signature of a call with this method and path, and with these values of the signed headers."""
        signed = (CLUSTER, SENDER, TARGET, CHALLENGE, NONCE, BODY_HASH)
        return _mac(self._call, method, path, *(headers.get(name, "") for name in signed))

    def of_answer(
        self, cluster_id: str, broker_id: int, path: str, nonce: str, status: int, body: bytes
    ) -> str:
        """Return the signature of this broker's answer to the request with this path and nonce."""
        fields = (cluster_id, str(broker_id), path, nonce, str(status), body_hash(body))
        return _mac(self._answer, *fields)


def _mac(key: bytes, *lines: str) -> str:
    """Return the HMAC of the lines in hex. The lines come from HTTP heads, so none of them has a line feed."""
    text = "\n".join(lines)
    return hmac.new(key, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


def _are_equal(expected: str, given: str) -> bool:
    """Compare two signatures in a time that does not depend on where they differ."""
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogateescape"))
