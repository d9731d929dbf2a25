"""The APIs and versions that this broker serves (KIP-35, KIP-511).

ApiVersions 18, versions 0–4.
- The response lists the APIs and versions in `SERVED` (`wire/versions.py`). Its header never has tagged fields.
- A request of a higher version is not decoded. The response has version 0, the error UNSUPPORTED_VERSION and the same
  list. Clients then repeat the request in a version that the list allows for ApiVersions.
- From version 3, a client software name or version with characters other than letters, digits, dots and dashes
  gets INVALID_REQUEST.
Deliberately omitted: features (KIP-584).
"""

from __future__ import annotations

import re
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.broker.requests.services import Entity, Handler, RequestContext, Services
from minikafka.wire.codec import encode_response, response
from minikafka.wire.versions import API_VERSIONS, SERVED

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMED_SINCE: Final = 3


def api_versions(services: Services, request: Entity, context: RequestContext) -> Entity:
    """Return the response to an ApiVersions request."""
    if context.version >= _NAMED_SINCE:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return response(API_VERSIONS, context.version, error_code=ErrorCode.INVALID_REQUEST)
    return _table(context.version, ErrorCode.NONE)


def unsupported(correlation: int) -> bytes:
    """Return the response frame, of version 0, to an ApiVersions request of a version that is not served."""
    return encode_response(correlation, API_VERSIONS, 0, _table(0, ErrorCode.UNSUPPORTED_VERSION))


def _table(version: int, error: ErrorCode) -> Entity:
    keys = [
        {"api_key": key, "min_version": low, "max_version": high}
        for key, (low, high) in sorted(SERVED.items())
    ]
    return response(API_VERSIONS, version, error_code=error, api_keys=keys)


HANDLERS: Final[dict[int, Handler]] = {API_VERSIONS: api_versions}
