"""Search for a broker that blocks at a named step, where `LocalCluster.hold` makes brokers block.

All brokers are called concurrently, and a broker answers as soon as it blocks at the step, so there is no
polling. Invariant: all calls have ended when `find_blocked_broker` returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from minikafka.base.errors import KafkaError
from minikafka.base.ports import Clock, Rng
from minikafka.broker.rpc.messages import STEPS, decode_gate_state, encode_steps
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterRecord
from minikafka.tools.cluster.observation.state import CALL_TIMEOUT_MS, control_plane_of

ROUND_MS: Final = 2_000
"""Duration of one call. Callers repeat the call, so that brokers that were started meanwhile are called too."""


async def find_blocked_broker(
    step: str,
    directory: ClusterDirectory,
    record: ClusterRecord,
    ids: Collection[int],
    clock: Clock,
    rng: Rng,
) -> int | None:
    """Return the id of a broker that blocks at `step`; None if no broker blocks there within ROUND_MS.

    The result is also None for an unknown step.
    """
    control_plane = control_plane_of(directory, record, ids, clock, rng)
    if control_plane is None:
        return None

    async def call(broker: int) -> int | None:
        body = encode_steps(step, ROUND_MS)
        try:
            answer = await control_plane.call(
                record.broker(broker).control,
                STEPS,
                body,
                target_id=broker,
                timeout_ms=ROUND_MS + CALL_TIMEOUT_MS,
            )
        except (OSError, KafkaError):
            return None
        return broker if step in decode_gate_state(answer)[1] else None

    found = None
    try:
        for answer in asyncio.as_completed([call(broker) for broker in ids]):
            broker = await answer
            if broker is not None and found is None:
                found = broker
                await control_plane.close()  # cancels the calls that still wait
    finally:
        await control_plane.close()
    return found
