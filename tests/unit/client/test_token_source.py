"""The token of a client while its endpoint answers, is slow, or fails."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable

import pytest

from minikafka.base.config.security import SecurityKeys
from minikafka.client.login import LoginFailed
from minikafka.client.token_endpoint import NoToken
from minikafka.client.token_source import TokenSource
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.loop import run_seeded

LIFE = 1000
"""Seconds for which a token is valid. The next one is fetched after 700 s, because of the buffer of 300 s."""


class World:
    """An endpoint in virtual time.

    `fails`: what it raises. `takes`: how long it takes (s). `asked`: when it was asked (s), and if it was patiently.
    """

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.fails: Exception | None = None
        self.takes = 0.0
        self.life = float(LIFE)
        self.asked: list[tuple[int, bool]] = []
        self.source = TokenSource(self, SecurityKeys(), self.clock, lambda: 0.0)

    async def fetch(self, *, is_patient: bool) -> str:
        self.asked.append((self.seconds, is_patient))
        number = len(self.asked)
        await asyncio.sleep(self.takes)
        if self.fails is not None:
            raise self.fails
        now = self.clock.wall_ms() / 1000
        claims = {"sub": f"token {number}", "iat": now, "exp": now + self.life}
        return f"e30.{urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"

    @property
    def seconds(self) -> int:
        return self.clock.now() // 1000

    async def at(self, second: int) -> str:
        """Return the token of a login at this time."""
        await asyncio.sleep(second - self.clock.now() / 1000)
        return await self.source.token()


def run(scenario: Callable[[World], Awaitable[None]]) -> World:
    world = World()

    async def whole() -> None:
        await scenario(world)

    run_seeded(1, whole())
    return world


@pytest.mark.key(
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.buffer.seconds",
)
def test_keys_say_when_the_next_token_is_fetched() -> None:
    async def scenario(world: World) -> None:
        keys = SecurityKeys(
            sasl_login_refresh_window_factor=0.5,
            sasl_login_refresh_window_jitter=0.1,
            sasl_login_refresh_min_period_seconds=1,
            sasl_login_refresh_buffer_seconds=100,
        )
        world.source = TokenSource(world, keys, world.clock, lambda: 1.0)
        assert await world.source.token() == await world.at(599) != await world.at(600)

    run(scenario)


def test_token_is_fetched_once_and_again_before_it_ends() -> None:
    async def scenario(world: World) -> None:
        tokens = await asyncio.gather(*(world.source.token() for _ in range(3)))
        assert len({*tokens, await world.at(699)}) == 1
        assert await world.at(700) != tokens[0]
        assert await world.at(1399) == await world.at(701)

    assert run(scenario).asked == [(0, True), (700, False)]


def test_logins_use_a_valid_token_while_its_endpoint_fails_and_ask_again() -> None:
    async def scenario(world: World) -> None:
        first = await world.source.token()
        world.fails = NoToken("down")
        assert [await world.at(second) for second in (700, 701, 709, 710, 999)] == [first] * 5
        world.fails = LoginFailed("refused")
        assert await world.at(999) == first
        with pytest.raises(LoginFailed, match="refused"):
            await world.at(1000)
        world.fails = None
        assert await world.at(1001) != first

    asked = run(scenario).asked
    assert asked == [
        (0, True),
        (700, False),
        (710, False),
        (999, False),
        (1000, True),
        (1001, True),
    ]


def test_login_does_not_wait_longer_for_a_slow_endpoint_than_its_token_is_valid() -> None:
    async def scenario(world: World) -> None:
        first = await world.source.token()
        world.takes = 400
        assert await world.at(800) == first
        assert world.seconds == 900
        world.takes = 20
        assert await world.at(920) != first
        assert world.seconds == 940

    run(scenario)


def test_token_that_has_ended_already_is_no_token() -> None:
    async def scenario(world: World) -> None:
        world.life = 0
        with pytest.raises(LoginFailed, match="it has expired"):
            await world.source.token()

    run(scenario)
