"""The APIs and versions that this broker serves (KIP-35, KIP-511), and its features (KIP-584): none.

ApiVersions 18, versions 0–4.
- The response lists the APIs and versions in `SERVED` (`kafka/wire/versions.py`). Its header never has tagged fields.
- A request of a higher version is not decoded. The response has version 0, the error UNSUPPORTED_VERSION and the same
  list. Clients then repeat the request in a version that the list allows for ApiVersions.
- From version 3, a client software name or version with characters other than letters, digits, dots and dashes
  gets INVALID_REQUEST.
- The lists of features are empty.

UpdateFeatures 57, versions 0–1.
- Each feature gets INVALID_REQUEST, as on a broker of Kafka with ZooKeeper, which has no feature to update either.
- Any broker answers. In Kafka only the controller does.
"""

from __future__ import annotations

import re
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.kafka.wire.codec import encode_response, response, response_in_steps
from minikafka.kafka.wire.versions import API_VERSIONS, SERVED, UPDATE_FEATURES
from minikafka.security.operations import ALTER, CLUSTER, need

_UPDATE: Final = need("UpdateFeatures", ALTER, CLUSTER)
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMED_SINCE: Final = 3
_UPGRADE: Final = 1
_UPGRADE_TYPES: Final = (_UPGRADE, 2, 3)
"""Kafka's numbers: upgrade, safe downgrade and unsafe downgrade."""


def api_versions(services: Services, request: Entity, context: RequestContext) -> bytes:
    """Return the response to an ApiVersions request."""
    return answer(context.version, request)


def answer(version: int, request: Entity) -> bytes:
    """Return the response to an ApiVersions request of this version, from any client."""
    if version >= _NAMED_SINCE:
        name, release = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(release)):
            return response(API_VERSIONS, version, error_code=ErrorCode.INVALID_REQUEST)
    return _table(version, ErrorCode.NONE)


def unsupported(correlation: int) -> bytes:
    """Return the response frame, of version 0, to an ApiVersions request of a version that is not served."""
    return encode_response(correlation, API_VERSIONS, 0, _table(0, ErrorCode.UNSUPPORTED_VERSION))


def _table(version: int, error: ErrorCode) -> bytes:
    keys = [
        {"api_key": key, "min_version": low, "max_version": high}
        for key, (low, high) in sorted(SERVED.items())
    ]
    return response(API_VERSIONS, version, error_code=error, api_keys=keys)


def update_features(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to an UpdateFeatures request as `Steps`: one error for each feature."""
    if not services.access.allows(context.connection, _UPDATE):
        denied = {"error_code": _UPDATE.error, "error_message": _UPDATE.message}
        return response_in_steps(UPDATE_FEATURES, context.version, **denied)
    results = (
        {
            "feature": update.feature,
            "error_code": ErrorCode.INVALID_REQUEST,
            "error_message": _refusal(update),
        }
        for update in request.feature_updates
    )
    return response_in_steps(UPDATE_FEATURES, context.version, results=results)


def _refusal(update: Entity) -> str:
    """Return Kafka's message for an update of a feature that does not exist."""
    may_lower = update.allow_downgrade or update.upgrade_type != _UPGRADE
    if not update.feature:
        return "Feature name can not be empty."
    if update.upgrade_type not in _UPGRADE_TYPES:
        return "Received unknown upgrade type."
    if update.max_version_level >= 1:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if may_lower:
        return "Can not delete non-existing finalized feature."
    return (
        f"Can not provide maxVersionLevel: {update.max_version_level} less than 1 without setting the "
        "allowDowngrade flag to true in the request."
    )


HANDLERS: Final[dict[int, Handler]] = {
    API_VERSIONS: api_versions,
    UPDATE_FEATURES: update_features,
}
