"""Who stands at a named step: every broker is asked at the same time, and the first that says "I" ends it.

Nothing is polled: a broker answers when somebody reaches the step. Invariant: no call outlives the function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from minikafka.base.errors import KafkaError
from minikafka.base.ports import Clock, Rng
from minikafka.cluster.directory import HOST, ClusterDirectory, ClusterRecord
from minikafka.cluster.state import CALL_TIMEOUT_MS, control_plane_of
from minikafka.rpc.messages import STEPS, decode_standing, encode_steps

ROUND_MS: Final = 2_000
"""Then all are asked anew, those too that were started meanwhile."""


async def who_stands_at(
    step: str,
    directory: ClusterDirectory,
    record: ClusterRecord,
    ids: Collection[int],
    clock: Clock,
    rng: Rng,
) -> int | None:
    """The broker; None when nobody came there within the round. Raises KafkaError for a step that cannot be."""
    control_plane = control_plane_of(directory, ids, clock, rng)
    if control_plane is None:
        return None

    async def stands(broker: int) -> int | None:
        port = record.broker(broker).control_port
        body = encode_steps(step, ROUND_MS)
        try:
            answer = await control_plane.call(
                HOST, port, STEPS, body, timeout_ms=ROUND_MS + CALL_TIMEOUT_MS
            )
        except (OSError, KafkaError):
            return None
        return broker if step in decode_standing(answer)[1] else None

    found = None
    for answer in asyncio.as_completed([stands(broker) for broker in ids]):
        broker = await answer
        if broker is not None and found is None:
            found = broker
            await control_plane.close()  # which ends the calls that still wait
    await control_plane.close()
    return found
