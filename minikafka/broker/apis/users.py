"""SCRAM credentials of users.

DescribeUserScramCredentials 50, version 0.
- The response has mechanism and iterations of each credential. A null or empty list of users requests all users.
- A named user without a credential gets RESOURCE_NOT_FOUND, or DUPLICATE_RESOURCE if the request names the user twice.

AlterUserScramCredentials 51, version 0.
- In the controller mode, only the controller alters credentials; other brokers answer NOT_CONTROLLER.
- Each user is altered as a whole or not at all. An empty name and 4,095 or fewer or 16,385 or more iterations get
  UNACCEPTABLE_CREDENTIAL, an unknown mechanism UNSUPPORTED_SASL_MECHANISM, a mechanism that the request alters twice
  DUPLICATE_RESOURCE, and the deletion of a missing credential RESOURCE_NOT_FOUND. A name of more than 1,000 characters
  gets UNACCEPTABLE_CREDENTIAL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.broker.admin.refusals import refusal
from minikafka.broker.admin.users import (
    EMPTY_NAME,
    DeletedCredential,
    UserResult,
    WrittenCredential,
)
from minikafka.broker.capabilities import Overrides
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.kafka.wire.codec import response_in_steps
from minikafka.kafka.wire.versions import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from minikafka.security import scram
from minikafka.security.operations import ALTER, CLUSTER, DESCRIBE, need

_DESCRIBE: Final = need("DescribeUserScramCredentials", DESCRIBE, CLUSTER)
_ALTER: Final = need("AlterUserScramCredentials", ALTER, CLUSTER)


async def describe_user_scram_credentials(
    services: Services, request: Entity, context: RequestContext
) -> Steps:
    """Return the response to a DescribeUserScramCredentials request as `Steps`: one result for each user."""
    if not services.access.allows(context.connection, _DESCRIBE):
        denied = {"error_code": _DESCRIBE.error, "error_message": _DESCRIBE.message}
        rows = ({"user": user.name, **denied} for user in request.users or ())
        return response_in_steps(
            DESCRIBE_USER_SCRAM_CREDENTIALS, context.version, **denied, results=rows
        )
    counts: Counter[str] = Counter()
    async for user in services.pauses.each(request.users or ()):
        counts[user.name] += 1
    wanted = [name for name, count in counts.items() if count == 1] if counts else None
    found: dict[str, Overrides] = {}
    error: dict[str, Any] = {}
    try:
        async for part in services.admin.users.overrides(wanted):
            found.update(part)
    except (KafkaError, CoordinationError) as failure:
        code, message = refusal(failure, "credentials of users")
        error = {"error_code": code, "error_message": message}
    results = _all(found) if not counts else _named(counts, found)
    return response_in_steps(
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        context.version,
        **error,
        results=() if error else results,
    )


def _all(found: Mapping[str, Overrides]) -> Iterator[dict[str, Any]]:
    return (_described(user, found[user]) for user in sorted(found) if _has_any(found[user]))


def _named(counts: Mapping[str, int], found: Mapping[str, Overrides]) -> Iterator[dict[str, Any]]:
    for user, count in counts.items():
        if not user:
            yield _failed(user, ErrorCode.RESOURCE_NOT_FOUND, EMPTY_NAME)
        elif count > 1:
            message = (
                "Cannot describe SCRAM credentials for the same user twice "
                f"in a single request: {user}"
            )
            yield _failed(user, ErrorCode.DUPLICATE_RESOURCE, message)
        elif not _has_any(found.get(user, {})):
            message = f"Attempt to describe a user credential that does not exist: {user}"
            yield _failed(user, ErrorCode.RESOURCE_NOT_FOUND, message)
        else:
            yield _described(user, found[user])


def _has_any(overrides: Overrides) -> bool:
    return not scram.BY_NAME.keys().isdisjoint(overrides)


def _described(user: str, overrides: Overrides) -> dict[str, Any]:
    infos = []
    for mechanism in scram.MECHANISMS:
        text = overrides.get(mechanism.name)
        if text is not None:
            try:
                iterations = scram.decode_credential(mechanism, text).iterations
            except scram.InvalidScram as invalid:
                return _failed(user, ErrorCode.UNKNOWN_SERVER_ERROR, str(invalid))
            infos.append({"mechanism": mechanism.type, "iterations": iterations})
    return {"user": user, "credential_infos": infos}


def _failed(user: str, code: ErrorCode, message: str) -> dict[str, Any]:
    return {"user": user, "error_code": code, "error_message": message, "credential_infos": ()}


async def alter_user_scram_credentials(
    services: Services, request: Entity, context: RequestContext
) -> Steps:
    """Return the response to an AlterUserScramCredentials request as `Steps`: one result for each user."""
    each = services.pauses.each
    upsertions = [
        WrittenCredential(
            item.name,
            item.mechanism,
            item.iterations,
            bytes(item.salt),
            bytes(item.salted_password),
        )
        async for item in each(request.upsertions)
    ]
    deletions = [
        DeletedCredential(item.name, item.mechanism) async for item in each(request.deletions)
    ]
    try:
        services.admin.users.check_may_alter()
        if not services.access.allows(context.connection, _ALTER):
            raise KafkaError(_ALTER.error, _ALTER.message)
    except KafkaError as error:
        users = sorted({item.user for item in upsertions} | {item.user for item in deletions})
        results: Sequence[UserResult] = [
            UserResult(user, error.code, error.detail) for user in users
        ]
    else:
        results = await services.admin.users.alter(upsertions, deletions)
    rows = (
        {"user": item.user, "error_code": item.error, "error_message": item.message}
        for item in results
    )
    return response_in_steps(ALTER_USER_SCRAM_CREDENTIALS, context.version, results=rows)


HANDLERS: Final[dict[int, Handler]] = {
    DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
    ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
}
