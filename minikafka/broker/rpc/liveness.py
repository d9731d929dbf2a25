"""Calls that show whether the process of a broker is alive, and the probe of one broker.

When a process dies, its kernel closes its connections and refuses new ones at once. The evidence of a death has two
parts: a connection to the broker has ended, and then the broker's control listener refuses a connection. The prober
itself tries the second part. Silence is no evidence: a paused process and a cut network are silent too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from minikafka.base.errors import KafkaError
from minikafka.base.model import NO_EPOCH, Broker
from minikafka.base.ports import Clock, ControlPlane
from minikafka.broker.rpc.broker_calls import call_broker
from minikafka.broker.rpc.messages import decode_registration

CONNECTION_LOST: Final = "connection_lost"
"""A broker's report to the controller that a connection to another broker has ended. Request: the registration of the
other broker, and the reporter (`messages.encode_report`). Response: an empty map.
"""
PRESENT: Final = "present"
"""Request: an empty map. Response: the current registration of the called broker, with broker epoch -1 before the
first. Each call opens connections of its own.
"""
ATTEND: Final = "attend"
"""Call that a candidate keeps open to the controller, so that the death of the controller resets it. Request: an empty
map. Response: an empty map after `ATTEND_MS`, or the error NOT_CONTROLLER when the controller resigns.
"""
ATTEND_MS: Final = 60_000
_ATTENDED_MS: Final = ATTEND_MS + 10_000
PROBE_MS: Final = 10_000
"""Time after which the probe of a silent broker ends."""
_PAUSES_MS: Final = (1, 1, 2, 2, 4, 4, 8, 8, 16, 32, 64, 128, 256)
"""Pauses before the further attempts of a probe.

A kernel closes the descriptors of a killed process one after the other. The control listener may still accept
connections when a connection to another listener has already been reset.
"""


class Presence(Enum):
    """The outcome of a probe."""

    PRESENT = "present"
    """The broker has answered."""
    REFUSED = "refused"
    """The host of the broker refuses connections to the control listener."""
    UNKNOWN = "unknown"
    """Neither: the broker is silent, another process has its port, or connections are accepted and then closed."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The outcome of a probe of one broker. `where`: the probed address.

    `broker_epoch`: the epoch of the registration that the broker answered with, -1 without an answer.
    """

    presence: Presence
    where: str
    broker_epoch: int = NO_EPOCH


async def probe(control_plane: ControlPlane, clock: Clock, broker: Broker, listener: str) -> Probe:
    """Connect to the control listener of a broker, and ask for its registration.

    A connection that is closed before the answer is tried again a few times, because the process may be dying.
    """
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        return Probe(Presence.UNKNOWN, f"broker {broker.id} without listener {listener}")
    where = f"{endpoint.host}:{endpoint.port}"
    for pause_ms in (*_PAUSES_MS, None):
        try:
            answer = await call_broker(control_plane, broker, listener, PRESENT, {}, PROBE_MS)
            return Probe(Presence.PRESENT, where, _epoch(answer))
        except ConnectionRefusedError:
            return Probe(Presence.REFUSED, where)
        except (TimeoutError, KafkaError):
            break
        except OSError:
            if pause_ms is not None:
                await clock.sleep(pause_ms)
    return Probe(Presence.UNKNOWN, where)


def _epoch(answer: dict[str, Any]) -> int:
    _, broker_epoch = decode_registration(answer)
    return broker_epoch


async def attend(control_plane: ControlPlane, broker: Broker, listener: str) -> None:
    """Keep a call to the controller open; return when the controller has answered that it still is the controller.

    Raises OSError if the connection ends or the controller is silent, and KafkaError if `broker` is not the controller.
    """
    await call_broker(control_plane, broker, listener, ATTEND, {}, _ATTENDED_MS)
