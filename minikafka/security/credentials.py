"""The SCRAM credentials that a broker knows: those in the settings of the users."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Mapping

from minikafka.security import scram
from minikafka.security.scram import ScramCredential


class KnownCredentials:
    """The SCRAM credentials of all users, and decoys for other names.

    `secret` must be the same for all brokers of a cluster, so that they give the same decoys.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        """(mechanism, user) → credential."""
        self._iterations = {name: Counter[int]() for name in scram.BY_NAME}

    def load(self, user: str, settings: Mapping[str, str]) -> list[str]:
        """Replace the credentials of a user by those in its settings; return the mechanisms with a malformed one."""
        malformed = []
        for mechanism in scram.MECHANISMS:
            text = settings.get(mechanism.name)
            credential = None
            if text is not None:
                try:
                    credential = scram.decode_credential(mechanism, text)
                except scram.InvalidScram:
                    malformed.append(mechanism.name)
            self._replace(mechanism.name, user, credential)
        return malformed

    def _replace(self, mechanism: str, user: str, credential: ScramCredential | None) -> None:
        before = self._credentials.pop((mechanism, user), None)
        counts = self._iterations[mechanism]
        if before is not None:
            counts[before.iterations] -= 1
        if credential is not None:
            self._credentials[mechanism, user] = credential
            counts[credential.iterations] += 1
        counts += Counter()  # drops what counts no user

    @property
    def users(self) -> list[str]:
        """The users with a credential, sorted."""
        return sorted({user for _, user in self._credentials})

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return the credential of a user, or None."""
        return self._credentials.get((mechanism, user))

    def decoy(self, mechanism: str, user: str) -> ScramCredential:
        """Return a credential that no password fits, with a number of iterations that some user has."""
        choices = self._iterations[mechanism] or (scram.MIN_ITERATIONS,)
        iterations = max(choices, key=lambda number: self._rank(mechanism, user, number))
        return scram.decoy(scram.BY_NAME[mechanism], self._secret, user, iterations)

    def _rank(self, mechanism: str, user: str, iterations: int) -> bytes:
        text = f"{iterations}:{mechanism}:{user}".encode(errors="replace")
        return hmac.digest(self._secret, text, "sha256")
