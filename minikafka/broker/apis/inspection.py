"""What this broker knows of itself, of the cluster and of its past, for `status`, `why`, `trace`, `plan` and `health`.

InspectBroker 27755, version 0.
- Kafka does not have this request. `question` says what is asked, `argument` is a JSON object with its arguments, and
  each row of the response is a JSON object: `state` (first the broker, then each of its replicas; `since`: only those
  that have changed), `explain` (`topic`, `partition`), `explain_group` (`group`), `plan` (the operation), and `ledger`
  (`topic` or `group`: only the lines that concern it).
- The ledger comes in pages of about 256 KiB. The request for the next page has `next_position` of the response as its
  `position`; after the last page this is empty. A page without rows may have a next one. With `follows` in the
  argument, the first page begins 64 KiB before the end, and the last one has a `next_position` for later lines.
- The right Describe on the cluster is needed, and enough for all topics and groups.
- An unknown question, or a wrong argument, gets INVALID_REQUEST.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError, StorageFailed
from minikafka.base.names import parse_json
from minikafka.broker.ledger.pages import Wanted
from minikafka.broker.ledger.reader import about_group, about_topic
from minikafka.broker.reports.partition_report import group_asked, partition_asked
from minikafka.broker.rpc.messages import EXPLAIN, EXPLAIN_GROUP, PLAN, STATE
from minikafka.broker.services import Entity, Handler, Reports, RequestContext, Services, Steps
from minikafka.kafka.wire.codec import response, response_in_steps
from minikafka.kafka.wire.versions import INSPECT_BROKER
from minikafka.security.operations import CLUSTER, DESCRIBE, need

_NEED: Final = need("InspectBroker", DESCRIBE, CLUSTER)
LEDGER: Final = "ledger"
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode

Argument = Mapping[str, Any]


def inspect_broker(
    services: Services, request: Entity, context: RequestContext
) -> bytes | Steps | Awaitable[bytes | Steps]:
    """Return the response to an InspectBroker request, in steps; that to `plan` later."""
    if not services.access.allows(context.connection, _NEED):
        return _failed(services, _NEED.error, _NEED.message)
    try:
        argument = parse_json(request.argument or "{}")
        if request.question == PLAN:
            return _plan(services, argument)
        if request.question == LEDGER:
            follows = argument.get("follows") is True
            return _page(services, request.position, _wanted(argument), follows)
        rows = _QUESTIONS.get(request.question)
        if rows is None:
            known = ", ".join([*_QUESTIONS, PLAN, LEDGER])
            raise ValueError(f"unknown question {request.question[:50]!r}; known: {known}")
        return _answered(services, rows(services.reports, argument))
    except (ValueError, RecursionError) as error:
        return _failed(services, ErrorCode.INVALID_REQUEST, str(error))
    except KafkaError as error:
        return _failed(services, error.code, error.detail)


def _state(reports: Reports, argument: Argument) -> Iterator[Any]:
    since = argument.get("since")
    facts, rows = reports.replica_rows(since)
    yield {**reports.summary(since), **facts}
    yield from rows


def _explain(reports: Reports, argument: Argument) -> list[Any]:
    return [reports.explain(partition_asked(dict(argument)))]


def _explain_group(reports: Reports, argument: Argument) -> list[Any]:
    return [reports.explain_group(group_asked(dict(argument)))]


_QUESTIONS: Final[Mapping[str, Callable[[Reports, Argument], Iterable[Any]]]] = {
    STATE: _state,
    EXPLAIN: _explain,
    EXPLAIN_GROUP: _explain_group,
}


async def _plan(services: Services, argument: Argument) -> bytes | Steps:
    try:
        return _answered(services, await services.reports.plan(argument))
    except KafkaError as error:
        return _failed(services, error.code, error.detail)


def _wanted(argument: Argument) -> Wanted:
    topic, group = argument.get("topic", ""), argument.get("group")
    if not isinstance(topic, str) or not isinstance(group, str | None):
        raise ValueError("topic and group must be texts")
    return about_topic(topic) if group is None else about_group(group)


def _page(services: Services, position: str, wanted: Wanted, follows: bool) -> Steps:
    try:
        page = yield from services.reports.ledger_page(position, wanted, follows=follows)
    except ValueError as error:
        return (yield from _failing(services, ErrorCode.INVALID_REQUEST, str(error)))
    except StorageFailed as failure:
        return (yield from _failing(services, ErrorCode.KAFKA_STORAGE_ERROR, failure.reason))
    rows = ({"json": line} for line in page.lines)
    return (yield from _responding(services, rows=rows, next_position=page.following))


def _answered(services: Services, rows: Iterable[Any]) -> Steps:
    return _responding(services, rows=({"json": _encode(row).encode()} for row in rows))


def _failing(services: Services, code: ErrorCode, text: str) -> Steps:
    return _responding(services, error_code=code, error_message=text)


def _responding(services: Services, **values: Any) -> Steps:
    return response_in_steps(INSPECT_BROKER, 0, broker_id=services.broker_id, **values)


def _failed(services: Services, code: ErrorCode, text: str) -> bytes:
    return response(
        INSPECT_BROKER, 0, broker_id=services.broker_id, error_code=code, error_message=text
    )


HANDLERS: Final[dict[int, Handler]] = {INSPECT_BROKER: inspect_broker}
