"""The probe of one broker."""

from __future__ import annotations

from typing import Any

import pytest
from support.brokers.endpoints import endpoints

from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Broker
from minikafka.base.protocol_versions import VERSIONS
from minikafka.broker.rpc.liveness import Presence, Probe, probe
from minikafka.broker.rpc.messages import encode_registration
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.loop import run_seeded

BROKER = Broker(2, endpoints("127.0.0.1", 9094, "10.0.0.2", 19094), epoch=7)
RESET, REFUSED = ConnectionResetError("reset"), ConnectionRefusedError("refused")


class Answers:
    """A control plane whose calls have the given outcomes, one after the other; the last one is repeated."""

    def __init__(self, *outcomes: Exception | dict[str, Any]) -> None:
        self.outcomes = list(outcomes)
        self.called: list[tuple[str, int, int]] = []
        self.versions = VERSIONS

    async def call(
        self,
        endpoint: Endpoint,
        method: str,
        body: Any,
        *,
        target_id: int,
        timeout_ms: int,
        version: str,
    ) -> dict[str, Any]:
        self.called.append((endpoint.host, endpoint.port, target_id))
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def probed(*outcomes: Exception | dict[str, Any]) -> tuple[Probe, Answers]:
    plane: Any = Answers(*outcomes)
    return run_seeded(1, probe(plane, LoopClock(), BROKER, "CONTROLLER")), plane


@pytest.mark.parametrize(
    ("outcomes", "presence", "epoch", "calls"),
    [
        ([REFUSED], Presence.REFUSED, -1, 1),
        ([RESET, RESET, RESET, REFUSED], Presence.REFUSED, -1, 4),
        ([RESET, encode_registration(2, 7)], Presence.PRESENT, 7, 2),
        ([RESET], Presence.UNKNOWN, -1, 14),
        ([TimeoutError()], Presence.UNKNOWN, -1, 1),
        ([KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)], Presence.UNKNOWN, -1, 1),
    ],
)
def test_probe_tries_again_only_after_a_closed_connection(
    outcomes: list[Any], presence: Presence, epoch: int, calls: int
) -> None:
    found, plane = probed(*outcomes)
    assert found == Probe(presence, "10.0.0.2:19094", epoch)
    assert plane.called == [("10.0.0.2", 19094, 2)] * calls


def test_broker_without_a_control_listener_is_not_probed() -> None:
    plane: Any = Answers(REFUSED)
    found = run_seeded(1, probe(plane, LoopClock(), Broker(2, ()), "CONTROLLER"))
    assert found.presence is Presence.UNKNOWN
    assert plane.called == []
