"""Delegation tokens (KIP-48).

CreateDelegationToken 38, versions 0–3, RenewDelegationToken 39, versions 0–2, ExpireDelegationToken 40, versions 0–2,
and DescribeDelegationToken 41, versions 0–3.
- Any broker creates, renews, ends and describes tokens, and all brokers learn of it through ZooKeeper. A broker
  without `delegation.token.secret.key` answers DELEGATION_TOKEN_AUTH_DISABLED.
- A client that has not authenticated, or that has authenticated with a token, gets
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
- The owner of a token and its renewers may renew and end it. They and its requester may describe it, and so may a
  client with the right Describe on the token or DescribeTokens on its owner: everyone, without an authorizer.
- A token of another owner than the client needs the right CreateTokens on that owner. Renewers that are no users get
  INVALID_PRINCIPAL_TYPE.
- A negative time in ExpireDelegationToken removes the token.
- A null list of owners requests all tokens that the client may describe, an empty list none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from minikafka.base.endpoints import PLAINTEXT, SecurityProtocol
from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.base.ports import Buffer
from minikafka.base.printable import printable
from minikafka.broker.admin.refusals import refusal
from minikafka.broker.services import (
    ANONYMOUS,
    ClientConnection,
    Entity,
    Handler,
    RequestContext,
    Services,
    Steps,
)
from minikafka.kafka.wire.codec import response, response_in_steps
from minikafka.kafka.wire.versions import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    NAMES,
    RENEW_DELEGATION_TOKEN,
)
from minikafka.security.operations import (
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DESCRIBE,
    DESCRIBE_TOKENS,
    USER,
    need,
)
from minikafka.security.principals import split_principal
from minikafka.security.tokens import DelegationToken

_CREATE: Final = need("CreateDelegationToken", CREATE_TOKENS, USER)
_DESCRIBE: Final = need("DescribeDelegationToken", DESCRIBE, DELEGATION_TOKEN)
_DESCRIBE_OF_OWNER: Final = need("DescribeDelegationToken", DESCRIBE_TOKENS, USER)
_USER: Final = "User"
_NO_TIME: Final = -1
_RENEWERS_MAX: Final = 1_000


async def create_delegation_token(
    services: Services, request: Entity, context: RequestContext
) -> bytes:
    """Return the response to a CreateDelegationToken request."""
    requester = context.connection.principal
    owner = _owner(request, requester)
    try:
        _check_may_ask(services, context.connection)
        if owner != requester and not services.access.allows(context.connection, _CREATE, owner):
            raise KafkaError(_CREATE.error, _CREATE.message)
        renewers = [_principal(item) for item in request.renewers]
        _check_renewers(renewers)
        token = await services.tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except (KafkaError, CoordinationError) as error:
        code, _ = refusal(error, f"delegation token of {printable(owner)}")
        nothing = DelegationToken("", owner, requester, (), _NO_TIME, _NO_TIME, _NO_TIME)
        fields = {**_times(nothing), "error_code": code, "hmac": b""}
    else:
        hmac = services.tokens.require().hmac_of(token.id)
        fields = {**_times(token), "error_code": ErrorCode.NONE, "hmac": hmac}
    return response(CREATE_DELEGATION_TOKEN, context.version, **fields)


def _owner(request: Entity, requester: str) -> str:
    """Return the owner of a new token; requests up to version 2 have none."""
    name = getattr(request, "owner_principal_name", None)
    return f"{request.owner_principal_type or _USER}:{name}" if name else requester


def _times(token: DelegationToken) -> dict[str, Any]:
    return {
        **_named("principal", token.owner),
        **_named("token_requester_principal", token.requester),
        "token_id": token.id,
        "issue_timestamp_ms": token.issued_ms,
        "expiry_timestamp_ms": token.expires_ms,
        "max_timestamp_ms": token.max_ms,
    }


def _named(field: str, principal: str) -> dict[str, str]:
    kind, name = split_principal(principal)
    return {f"{field}_type": kind, f"{field}_name": name}


def _principal(item: Entity) -> str:
    return f"{item.principal_type}:{item.principal_name}"


def _check_renewers(renewers: list[str]) -> None:
    if any(split_principal(renewer)[0] != _USER for renewer in renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    if len(renewers) > _RENEWERS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"a token may have at most {_RENEWERS_MAX} renewers"
        )


def _check_may_ask(services: Services, client: ClientConnection) -> None:
    """Raise KafkaError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED unless the client has authenticated by itself."""
    [security] = [
        endpoint.security
        for endpoint in services.config.endpoints.kafka
        if endpoint.name == client.listener
    ]
    is_unknown = security is SecurityProtocol.SSL and client.principal == ANONYMOUS
    is_by_token = client.authentication is not None and client.authentication.is_by_token
    if is_by_token or security is PLAINTEXT or is_unknown:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


async def renew_delegation_token(
    services: Services, request: Entity, context: RequestContext
) -> bytes:
    """Return the response to a RenewDelegationToken request."""
    renewal = services.tokens.renew, request.renew_period_ms
    return await _changed(services, context, RENEW_DELEGATION_TOKEN, request.hmac, *renewal)


async def expire_delegation_token(
    services: Services, request: Entity, context: RequestContext
) -> bytes:
    """Return the response to an ExpireDelegationToken request."""
    end = services.tokens.end, request.expiry_time_period_ms
    return await _changed(services, context, EXPIRE_DELEGATION_TOKEN, request.hmac, *end)


async def _changed(
    services: Services,
    context: RequestContext,
    api: int,
    hmac: Buffer,
    change: Callable[[str, bytes, int], Awaitable[int]],
    period_ms: int,
) -> bytes:
    """Change the end of a token, and return the response with the new end."""
    client = context.connection
    code, expires_ms = ErrorCode.NONE, _NO_TIME
    try:
        _check_may_ask(services, client)
        expires_ms = await change(client.principal, bytes(hmac), period_ms)
    except (KafkaError, CoordinationError) as error:
        code, _ = refusal(error, f"{NAMES[api]} of {printable(client.principal)}")
    return response(api, context.version, error_code=code, expiry_timestamp_ms=expires_ms)


def describe_delegation_token(
    services: Services, request: Entity, context: RequestContext
) -> Steps:
    """Return the response to a DescribeDelegationToken request as `Steps`."""
    code = ErrorCode.NONE
    rows: Iterator[dict[str, Any]] = iter(())
    try:
        _check_may_ask(services, context.connection)
        services.tokens.require()
        rows = _described(services, request, context.connection)
    except KafkaError as error:
        code = error.code
    return response_in_steps(
        DESCRIBE_DELEGATION_TOKEN, context.version, error_code=code, tokens=rows
    )


def _described(
    services: Services, request: Entity, client: ClientConnection
) -> Iterator[dict[str, Any]]:
    known = services.tokens.require()
    owners = None if request.owners is None else {_principal(item) for item in request.owners}
    for token in known:
        is_wanted = owners is None or not owners.isdisjoint(token.principals)
        if is_wanted and (
            client.principal in token.principals
            or services.access.allows(client, _DESCRIBE, token.id)
            or services.access.allows(client, _DESCRIBE_OF_OWNER, token.owner)
        ):
            yield {
                **_named("principal", token.owner),
                **_named("token_requester_principal", token.requester),
                "issue_timestamp": token.issued_ms,
                "expiry_timestamp": token.expires_ms,
                "max_timestamp": token.max_ms,
                "token_id": token.id,
                "hmac": known.hmac_of(token.id),
                "renewers": [_named("principal", renewer) for renewer in token.renewers],
            }


HANDLERS: Final[dict[int, Handler]] = {
    CREATE_DELEGATION_TOKEN: create_delegation_token,
    RENEW_DELEGATION_TOKEN: renew_delegation_token,
    EXPIRE_DELEGATION_TOKEN: expire_delegation_token,
    DESCRIBE_DELEGATION_TOKEN: describe_delegation_token,
}
