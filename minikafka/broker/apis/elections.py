"""Elections that a client requests (KIP-183, KIP-460). Only the active controller handles these requests.

ElectLeaders 43, versions 0–2.
- Elects preferred leaders, or from version 1 unclean leaders, for the given partitions. A null list requests all
  partitions. The response has one code and message per partition: ELECTION_NOT_NEEDED (omitted if all partitions
  are requested), PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION.
- The response is sent when this broker's metadata has all new leaders (R61), or after the request's timeout. If the
  metadata lacks the new leader of a partition after the timeout, the partition gets REQUEST_TIMED_OUT, although the
  leader is elected.

Other brokers return NOT_CONTROLLER for the whole request (from version 1) and for every partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import PartitionResult, TopicPartition
from minikafka.broker.admin.names import may_exist
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.kafka.messages.steps import by_topic_in_steps
from minikafka.kafka.wire.codec import response_in_steps
from minikafka.kafka.wire.versions import ELECT_LEADERS
from minikafka.security.operations import ALTER, CLUSTER, need

_NEED: Final = need("ElectLeaders", ALTER, CLUSTER)
PREFERRED: Final = 0
UNCLEAN: Final = 1

Results = dict[TopicPartition, PartitionResult]
_UNKNOWN: Final = PartitionResult(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
)


async def elect_leaders(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to an ElectLeaders request as `Steps`."""
    kind = request.election_type
    asked = await _asked(services, request)
    if not services.access.allows(context.connection, _NEED):
        return _failed(context.version, asked, _NEED.error, "")
    if kind not in (PREFERRED, UNCLEAN):
        return _failed(
            context.version,
            asked,
            ErrorCode.INVALID_REQUEST,
            f"the election type must be 0 (preferred) or 1 (unclean), got {kind}",
        )
    try:
        results = await _elect(services, asked, unclean=kind == UNCLEAN)
    except KafkaError as error:
        return _failed(context.version, asked, error.code, error.detail)
    elected = [tp for tp, result in results.items() if result.code is ErrorCode.NONE]
    await services.metadata.wait_until(
        lambda: all(_is_led(services, tp, kind) for tp in elected),
        request.timeout_ms,
        {tp.topic for tp in elected},
    )
    late = PartitionResult(
        ErrorCode.REQUEST_TIMED_OUT, "the leader is elected, but this broker does not know it yet"
    )
    results |= {tp: late for tp in elected if not _is_led(services, tp, kind)}
    if asked is None:
        results = {
            tp: result
            for tp, result in results.items()
            if result.code is not ErrorCode.ELECTION_NOT_NEEDED
        }
    return _answer(context.version, results)


async def _asked(services: Services, request: Entity) -> list[TopicPartition] | None:
    """Return the partitions that the request names, without repetitions; None if it requests all partitions."""
    if request.topic_partitions is None:
        return None
    named = (
        TopicPartition(topic.topic, partition)
        for topic in request.topic_partitions
        for partition in topic.partitions
    )
    return list({tp: None async for tp in services.pauses.each(named)})


async def _elect(
    services: Services, asked: list[TopicPartition] | None, *, unclean: bool
) -> Results:
    """Let the controller elect leaders for the partitions `asked`. Return the result of each partition.

    A long list is handled in parts, so that other requests are served between the parts. Raises KafkaError
    NOT_CONTROLLER.
    """
    elect = services.administration.elect_leaders
    if asked is None:
        return await elect(unclean=unclean, partitions=None)
    results: Results = {}
    async for part in services.pauses.parts(asked):
        possible = [tp for tp in part if may_exist(tp.topic)]
        results |= {tp: _UNKNOWN for tp in part if not may_exist(tp.topic)}
        results |= await elect(unclean=unclean, partitions=possible)
    return results


def _is_led(services: Services, tp: TopicPartition, kind: int) -> bool:
    """Return True if this broker's metadata shows the elected leader, or no longer has the partition."""
    state = services.metadata.topics.get(tp.topic, {}).get(tp.partition)
    if state is None:
        return True
    if kind == PREFERRED:
        return state.leader == state.replicas[0]
    return state.leader in services.metadata.brokers


def _failed(
    version: int, asked: list[TopicPartition] | None, code: ErrorCode, message: str
) -> Steps:
    return _answer(version, dict.fromkeys(asked or (), PartitionResult(code, message)), code)


def _answer(
    version: int,
    results: Mapping[TopicPartition, PartitionResult],
    code: ErrorCode = ErrorCode.NONE,
) -> Steps:
    by_topic = yield from by_topic_in_steps(results)
    return (
        yield from response_in_steps(
            ELECT_LEADERS,
            version,
            error_code=code,
            replica_election_results=(
                {
                    "topic": topic,
                    "partition_result": map(
                        _elected, partitions, map(results.__getitem__, partitions)
                    ),
                }
                for topic, partitions in by_topic.items()
            ),
        )
    )


def _elected(tp: TopicPartition, result: PartitionResult) -> dict[str, Any]:
    return {
        "partition_id": tp.partition,
        "error_code": result.code,
        "error_message": result.message or None,
    }


HANDLERS: Final[dict[int, Handler]] = {ELECT_LEADERS: elect_leaders}
