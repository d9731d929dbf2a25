"""Keys of tokens: when they are read, and what happens while they cannot be read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from minikafka.base.errors import ConfigError
from minikafka.broker.clients.bearer_tokens import BearerTokens, KeyTimes
from minikafka.runtime.tasks import TaskRegistry
from minikafka.security.oauth import TokenRules, UnknownSigner
from minikafka.security.sasl import RefusedToken
from minikafka.simulation.clocks import WALL_MS, LoopClock
from minikafka.simulation.loop import run_seeded

PRIVATE = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("old", "new")}


def key_set(*names: str) -> str:
    keys = [
        {**json.loads(ECAlgorithm.to_jwk(PRIVATE[name].public_key())), "kid": name}
        for name in names
    ]
    return json.dumps({"keys": keys})


def token(name: str, kid: str | None = None) -> str:
    seconds = WALL_MS // 1_000
    claims = {"sub": "alice", "iat": seconds, "exp": seconds + 1_000_000}
    return jwt.encode(claims, PRIVATE[name], "ES256", {"kid": kid or name})


class Source:
    """What stands at the address. An exception as text is raised. `times`: when it was read (ms)."""

    def __init__(self, text: str | Exception) -> None:
        self.text = text
        self.times: list[int] = []
        self.clock = LoopClock()
        self.tasks = TaskRegistry(lambda name, error: pytest.fail(f"{name}: {error}"))

    async def fetch(self) -> str:
        self.times.append(self.clock.now())
        if isinstance(self.text, Exception):
            raise self.text
        return self.text

    def tokens(self, refresh_ms: int = 3_600_000) -> BearerTokens:
        return BearerTokens(
            "https://issuer/keys",
            self.fetch,
            TokenRules(),
            KeyTimes(refresh_ms, 100, 400),
            self.clock,
            self.tasks,
        )


def run(scenario: Coroutine[Any, Any, None]) -> None:
    run_seeded(1, scenario)


@pytest.mark.parametrize(
    "text", [OSError("connection refused"), TimeoutError("no answer"), "{}", '{"keys": []}']
)
def test_start_fails_and_names_the_key_if_the_keys_cannot_be_read(text):
    async def scenario() -> None:
        with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url: https://"):
            await Source(text).tokens().start()

    run(scenario())


def test_keys_are_read_again_after_the_interval():
    async def scenario() -> None:
        source = Source(key_set("old"))
        tokens = source.tokens(refresh_ms=1_000)
        await tokens.start()
        assert tokens.verify(token("old")).user == "alice"
        source.text = key_set("new")
        await asyncio.sleep(2.5)
        assert source.times == [0, 1_000, 2_000]
        assert tokens.verify(token("new")).user == "alice"
        with pytest.raises(UnknownSigner):
            tokens.verify(token("old"))
        await source.tasks.close()

    run(scenario())


def test_token_of_a_new_key_is_accepted_at_the_next_attempt():
    async def scenario() -> None:
        source = Source(key_set("old"))
        tokens = source.tokens()
        await tokens.start()
        source.text = key_set("old", "new")
        with pytest.raises(UnknownSigner):
            tokens.verify(token("new"))
        await asyncio.sleep(0.01)
        assert tokens.verify(token("new")).user == "alice"
        assert len(source.times) == 2
        await source.tasks.close()

    run(scenario())


def test_same_unknown_key_is_looked_for_once_a_minute():
    async def scenario() -> None:
        source = Source(key_set("old"))
        tokens = source.tokens()
        await tokens.start()
        for _ in range(200):
            with pytest.raises(UnknownSigner):
                tokens.verify(token("new"))
            await asyncio.sleep(0.5)
        assert len(source.times) == 3
        await source.tasks.close()

    run(scenario())


@pytest.mark.parametrize("kid", ["x" * 1_001])
def test_key_with_a_very_long_id_is_not_looked_for(kid):
    async def scenario() -> None:
        source = Source(key_set("old"))
        tokens = source.tokens()
        await tokens.start()
        with pytest.raises(RefusedToken):
            tokens.verify(token("new", kid))
        await asyncio.sleep(1)
        assert len(source.times) == 1
        await source.tasks.close()

    run(scenario())


def test_former_keys_are_used_while_reading_fails_and_pauses_double_up_to_a_limit(caplog):
    async def scenario() -> None:
        source = Source(key_set("old"))
        tokens = source.tokens(refresh_ms=1_000)
        await tokens.start()
        source.text = OSError("connection refused")
        await asyncio.sleep(3)
        assert source.times[:7] == [0, 1_000, 1_100, 1_300, 1_700, 2_100, 2_500]
        assert tokens.verify(token("old")).user == "alice"
        source.text = key_set("new")
        await asyncio.sleep(1)
        assert tokens.verify(token("new")).user == "alice"
        await source.tasks.close()

    run(scenario())
    assert "https://issuer/keys cannot be read: connection refused" in caplog.text
