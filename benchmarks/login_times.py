"""A scanner of answer times: does a failed login take another time if the user exists?

It logs in with a wrong password, in random order as the existing user and as one that does not exist, and compares all
times by their ranks (Mann and Whitney), which outliers of a busy machine do not distort. The broker answers failures
without its usual delay. A control shows that the scanner sees differences: it compares passwords of different length.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from benchmarks import kafka
from benchmarks.peer import HOST, in_thread
from benchmarks.secured import USER, Material
from minikafka import LocalCluster
from minikafka.client import Client
from minikafka.client.administration.scram_admin import new_password
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE
from minikafka.security import scram
from minikafka.security.sasl_client import Login, new_client_exchange

ATTEMPTS: Final = 2_000
"""Logins of each kind."""
MECHANISMS: Final = ("PLAIN", *scram.BY_NAME)
KEYS: Final = {
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "connection.failed.authentication.delay.ms": 0,
}
"""The keys of the scanned broker that differ from those of `Material`."""
UNKNOWN: Final = "none"
"""As long as the name of the existing user."""
ITERATIONS: Final = scram.MIN_ITERATIONS
SCORE_MAX: Final = 4.0
"""Two kinds are told apart if their ranks differ by more standard deviations. Equal kinds do in one of 16,000 scans."""
LONG: Final = "x" * 400_000


class Compared(NamedTuple):
    """The comparison of two kinds of logins: median times in µs, and the difference of ranks in standard deviations.

    `must_differ`: this is the control.
    """

    name: str
    medians_us: tuple[float, float]
    score: float
    must_differ: bool

    def failures(self) -> list[str]:
        """Return what is wrong: the kinds can be told apart, or the control cannot."""
        differs = abs(self.score) > SCORE_MAX
        if differs == self.must_differ:
            return []
        text = "the answer times tell apart" if differs else "the scanner does not tell apart"
        return [f"{text} {self.name} ({self.score:+.1f} standard deviations)"]

    def facts(self) -> dict[str, object]:
        """Return the figures as values for JSON."""
        return {
            "medians_us": [round(each, 1) for each in self.medians_us],
            "score": round(self.score, 2),
        }

    def line(self) -> str:
        """Return the figures as text."""
        first, second = self.medians_us
        medians = f"medians {first:.0f} and {second:.0f} µs"
        return f"{self.name}: {medians}, ranks differ by {self.score:+.1f} standard deviations"


async def scan(cluster: LocalCluster, material: Material, scale: float) -> list[Compared]:
    """Scan the listener SASL_PLAINTEXT of a broker with `KEYS`; create the user of SCRAM first."""
    async with Client(cluster.bootstrap_of("PLAINTEXT")) as client:
        made = [
            new_password(USER, kind, material.password, ITERATIONS, os.urandom(26))
            for kind in scram.BY_NAME.values()
        ]
        await client.users.alter(made)
    address = (HOST, cluster.record.brokers[0].ports["SASL_PLAINTEXT"])
    attempts = max(int(ATTEMPTS * scale), 10)
    found = []
    for mechanism in MECHANISMS:
        logins = [Login(mechanism, user, "wrong") for user in (USER, UNKNOWN)]
        name = f"{mechanism} of an existing and of an unknown user"
        found.append(await in_thread(partial(compare, address, name, logins, attempts)))
    control = [Login("PLAIN", USER, password) for password in ("wrong", LONG)]
    name = "the control: PLAIN with a short and with a long password"
    found.append(
        await in_thread(partial(compare, address, name, control, attempts, must_differ=True))
    )
    return found


def compare(
    address: tuple[str, int],
    name: str,
    logins: Sequence[Login],
    attempts: int,
    *,
    must_differ: bool = False,
) -> Compared:
    """Fail with both logins `attempts` times each, in random order, and compare the times."""
    order = [0, 1] * attempts
    random.shuffle(order)
    times: tuple[list[float], list[float]] = ([], [])
    for at in order:
        times[at].append(seconds_of(address, logins[at]))
    medians = [statistics.median(each) * 1e6 for each in times]
    return Compared(name, (medians[0], medians[1]), score(*times), must_differ)


def seconds_of(address: tuple[str, int], login: Login) -> float:
    """Log in, and return the time that the broker took for all its answers to tokens."""
    exchange = new_client_exchange(login, os.urandom)
    seconds = 0.0
    with kafka.Session(*address) as session:
        session.ask(SASL_HANDSHAKE, 1, mechanism=login.mechanism)
        token = exchange.step(b"")
        while token is not None:
            frame = encode(token)
            started = time.perf_counter()
            session.socket.sendall(frame)
            data = session.receive()
            seconds += time.perf_counter() - started
            answer = codec.decode_response(SASL_AUTHENTICATE, 1, data)
            token = None if answer.error_code else exchange.step(bytes(answer.auth_bytes))
    return seconds


def encode(token: bytes) -> bytes:
    """Return a SaslAuthenticate request."""
    body: Any = codec.request(SASL_AUTHENTICATE, 1, auth_bytes=token)
    return codec.encode_request(SASL_AUTHENTICATE, 1, 1, kafka.CLIENT_ID, body)


def score(first: Sequence[float], second: Sequence[float]) -> float:
    """Return how far the mean rank of `second` is above that of equal distributions, in standard deviations."""
    ranks = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    total = sum(rank for rank, (_, kind) in enumerate(ranks, 1) if kind)
    n, m = len(first), len(second)
    return (total - m * (n + m + 1) / 2) / math.sqrt(n * m * (n + m + 1) / 12)
