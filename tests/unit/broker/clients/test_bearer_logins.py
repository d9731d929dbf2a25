"""The keys of the configuration that decide which tokens a listener accepts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ConfigError
from minikafka.broker.clients.bearer_logins import BearerLogins
from minikafka.runtime.tasks import TaskRegistry
from minikafka.security.sasl import RefusedToken
from minikafka.simulation.clocks import WALL_MS, LoopClock
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.storage import MemoryStorage

KEY = ec.generate_private_key(ec.SECP256R1())
KEYS = json.dumps({"keys": [{**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}]})
URL = "sasl.oauthbearer.jwks.endpoint.url"
WEB = "https://issuer/keys"


class Web:
    """The address `WEB`. `text`: what stands there, or an error. `times`: when it was read (ms)."""

    def __init__(self) -> None:
        self.text: str | OSError = KEYS
        self.times: list[int] = []
        self.clock = LoopClock()

    async def fetch(self, url: str) -> str:
        assert url == WEB
        self.times.append(self.clock.now())
        if isinstance(self.text, OSError):
            raise self.text
        return self.text


def logins(web: Web, **keys: object) -> BearerLogins:
    """Return the logins of a broker with these keys. `file:///keys/a%20b.json` has the key set, too."""
    names = {name.replace("_", "."): value for name, value in keys.items()}
    config = BrokerConfig.from_mapping({"broker.id": 1, URL: WEB, **names})
    storage = MemoryStorage()
    storage.make_directories("/keys")
    storage.write_atomically("/keys/a b.json", KEYS.encode())
    tasks = TaskRegistry(lambda name, error: pytest.fail(f"{name}: {error}"))
    ports: Any = SimpleNamespace(
        clock=web.clock, tasks=tasks, storage=storage, fetch_text=web.fetch
    )
    return BearerLogins(config, ports)


def token(**changes: Any) -> str:
    seconds = WALL_MS // 1_000
    claims = {"sub": "alice", "iat": seconds, "exp": seconds + 600, **changes}
    given = {name: value for name, value in claims.items() if value is not None}
    return jwt.PyJWS().encode(json.dumps(given).encode(), KEY, "ES256", {"kid": "k"})


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await scenario()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    run_seeded(1, whole())


def user(text: str, **keys: object) -> str | None:
    """Return the user of a token at a listener of a broker with these keys, or None."""
    found: list[str | None] = []

    async def scenario() -> None:
        bearers = logins(Web(), **keys)
        verify = bearers.of("SASL")
        await bearers.start()
        try:
            found.append(verify(text).user)
        except RefusedToken:
            found.append(None)

    run(scenario)
    return found[0]


@pytest.mark.key("sasl.oauthbearer.jwks.endpoint.url")
def test_keys_are_read_from_a_file_or_an_address():
    assert user(token()) == "alice"
    assert user(token(), sasl_oauthbearer_jwks_endpoint_url="file:///keys/a%20b.json") == "alice"


@pytest.mark.key("sasl.oauthbearer.jwks.endpoint.url")
@pytest.mark.parametrize(
    "url",
    ["", "keys.json", "file:keys.json", "file://host/keys.json", "ftp://host/keys", "https:///x"],
)
def test_another_address_is_refused_and_names_the_key(url: str):
    with pytest.raises(ConfigError, match=r"^sasl\.oauthbearer\.jwks\.endpoint\.url "):
        logins(Web(), sasl_oauthbearer_jwks_endpoint_url=url).of("SASL")


@pytest.mark.key("sasl.oauthbearer.jwks.endpoint.url")
def test_missing_file_stops_the_start_and_names_the_key():
    async def scenario() -> None:
        bearers = logins(Web(), sasl_oauthbearer_jwks_endpoint_url="file:///keys/none.json")
        bearers.of("SASL")
        with pytest.raises(ConfigError, match=r"^sasl\.oauthbearer\.jwks\.endpoint\.url: file:"):
            await bearers.start()

    run(scenario)


@pytest.mark.key("sasl.oauthbearer.jwks.endpoint.refresh.ms")
def test_keys_are_read_at_the_interval():
    async def scenario() -> None:
        web = Web()
        bearers = logins(web, sasl_oauthbearer_jwks_endpoint_refresh_ms=2_000)
        bearers.of("SASL")
        await bearers.start()
        await asyncio.sleep(5)
        assert web.times == [0, 2_000, 4_000]

    run(scenario)


@pytest.mark.key(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
)
def test_failed_reading_is_repeated_after_pauses_that_double():
    async def scenario() -> None:
        web = Web()
        bearers = logins(
            web,
            sasl_oauthbearer_jwks_endpoint_refresh_ms=1_000,
            sasl_oauthbearer_jwks_endpoint_retry_backoff_ms=50,
            sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms=150,
        )
        bearers.of("SASL")
        await bearers.start()
        web.text = OSError("refused")
        await asyncio.sleep(1.6)
        assert web.times[:6] == [0, 1_000, 1_050, 1_150, 1_300, 1_450]

    run(scenario)


@pytest.mark.key("sasl.oauthbearer.clock.skew.seconds")
def test_expired_token_is_accepted_within_the_skew():
    late = token(exp=WALL_MS // 1_000 - 50, iat=0)

    assert user(late, sasl_oauthbearer_clock_skew_seconds=60) == "alice"
    assert user(late) is None


@pytest.mark.key("sasl.oauthbearer.expected.audience")
def test_token_must_have_an_expected_audience():
    keys = {"sasl_oauthbearer_expected_audience": "brokers,web"}

    assert user(token(aud="web"), **keys) == "alice"
    assert user(token(aud="other"), **keys) is None


@pytest.mark.key("sasl.oauthbearer.expected.issuer")
def test_token_must_have_the_expected_issuer():
    keys = {"sasl_oauthbearer_expected_issuer": "me"}

    assert user(token(iss="me"), **keys) == "alice"
    assert user(token(iss="you"), **keys) is None


@pytest.mark.key("sasl.oauthbearer.sub.claim.name")
def test_user_is_in_the_named_claim():
    assert user(token(client="bob"), sasl_oauthbearer_sub_claim_name="client") == "bob"


@pytest.mark.key("sasl.oauthbearer.scope.claim.name")
def test_scopes_are_in_the_named_claim():
    malformed = token(rights=["a", "a"])

    assert user(malformed, sasl_oauthbearer_scope_claim_name="rights") is None
    assert user(malformed) == "alice"


def test_keys_of_one_listener_and_mechanism_precede_those_of_the_broker():
    own = "listener.name.sasl.oauthbearer.sasl.oauthbearer.sub.claim.name"

    assert user(token(client="bob"), **{own: "client"}) == "bob"
    assert (
        user(token(client="bob"), **{own.replace("name.sasl.", "name.other."): "client"}) == "alice"
    )
